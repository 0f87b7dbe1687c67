/** Help texts are what users learn from and scripts lean on: they change only on purpose. */
import { readFile, readdir } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { helpTexts } from '../../../cli/help-texts.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { warren } from '../../support/cli-io.ts';

const folder = new URL('../../golden/help/', import.meta.url);
const texts = await helpTexts({
  readStdin: async () => await Promise.resolve(Buffer.alloc(0)),
  env: {},
  clock: systemClock,
  random: () => 0,
  fetch: globalThis.fetch,
  interrupted: new AbortController().signal,
});

test.each([...texts])('%s is as the golden file', async (name, text) => {
  expect(text).toBe(await readFile(new URL(name, folder), 'utf8'));
});

test('there is no golden help of a command that is gone', async () => {
  expect((await readdir(folder)).toSorted()).toEqual([...texts.keys()].toSorted());
});

test('every command that does something has an example', () => {
  const without = [...texts].filter(([, text]) => !text.includes('\nCommands:\n') && !text.includes('\nExamples:\n  '));
  expect(texts.size).toBeGreaterThan(20);
  expect(without.map(([name]) => name)).toEqual([]);
});

test('no command has an option that the program takes before it gets there', () => {
  const twice = [...texts].flatMap(([name, text]) => {
    const options = [...text.matchAll(/^ {2}(?:-\w, )?(--[\w-]+)/gm)].map(([, option]) => option ?? '');
    expect(options).toContain('--help');
    return options.filter((option, index) => options.indexOf(option) !== index).map((option) => `${name}: ${option}`);
  });
  expect(twice).toEqual([]);
});

test('--help lists the exit codes', async () => {
  const { stdout, exitCode } = await warren(['--help']);
  expect(exitCode).toBe(0);
  for (const code of [0, 1, 2, 65, 69, 70, 75, 77, 78, 130]) expect(stdout).toMatch(new RegExp(`^ +${code}  \\S`, 'm'));
});

test('--version prints the version of the package', async () => {
  const { version } = JSON.parse(await readFile(new URL('../../../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  expect(await warren(['--version'])).toMatchObject({ exitCode: 0, stdout: `${version}\n` });
});
