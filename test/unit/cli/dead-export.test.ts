/** `warren dead export`: lines as they come, and files that are there whole or not at all. */
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { answering, jsonAnswer, warren } from '../../support/cli-io.ts';

const lines = '{"id":"a","input":{ "price": 1.10 }}\n{"id":"b","input":"ü\u007f"}\n';
const answer = (body: string | ReadableStream, status = 200): (() => Response) => {
  return () => new Response(body, { status, headers: { 'content-type': 'application/jsonl; charset=utf-8' } });
};
/** Gives one line and then breaks, as a connection that is cut does. */
const broken = answer(
  new ReadableStream({
    start(controller) {
      controller.enqueue(Buffer.from(lines.slice(0, 40)));
    },
    pull(controller) {
      controller.error(new TypeError('terminated'));
    },
  }),
);
let folder: string;
beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'warren-export-'))));
afterEach(async () => await rm(folder, { recursive: true }));

test('writes the lines to standard output as they come, harmless to a terminal', async () => {
  const { fetch, seen } = answering(answer(lines));
  const run = await warren(['dead', 'export', 'reason:timeout', 'age:<1d', '--reason', 'a look'], { fetch });
  expect(run).toMatchObject({ exitCode: 0, stdout: lines.replace('\u007f', '\\u007f'), stderr: '' });
  expect(new URL(seen[0]?.url ?? '').pathname).toBe('/v1/dead-letters/export');
  expect(new URL(seen[0]?.url ?? '').searchParams.get('filter')).toBe('reason:timeout age:<1d');
  expect(new URL(seen[0]?.url ?? '').searchParams.get('why')).toBe('a look');
});

test('writes a file byte for byte, says how many, and leaves nothing else beside it', async () => {
  const file = join(folder, 'letters.jsonl');
  await writeFile(file, 'of yesterday');
  const run = await warren(['dead', 'export', '--output', file], answering(answer(lines)));
  expect(run).toMatchObject({ exitCode: 0, stdout: '', stderr: `2 dead letters are in ${file}.\n` });
  expect(await readFile(file, 'utf8')).toBe(lines);
  expect(await readdir(folder)).toEqual(['letters.jsonl']);
  const json = await warren(['dead', 'export', '--output', file, '--json'], answering(answer(lines)));
  expect(json.json()).toEqual({ file, letters: 2 });
});

test('an answer that breaks off leaves no half file, and what was there before', async () => {
  const file = join(folder, 'letters.jsonl');
  await writeFile(file, 'of yesterday');
  const run = await warren(['dead', 'export', '--output', file], answering(broken));
  expect({ exitCode: run.exitCode, stdout: run.stdout }).toEqual({ exitCode: 69, stdout: '' });
  expect(await readdir(folder)).toEqual(['letters.jsonl']);
  expect(await readFile(file, 'utf8')).toBe('of yesterday');
});

test('an answer that breaks off is a failure on standard output too', async () => {
  expect((await warren(['dead', 'export'], answering(broken))).exitCode).toBe(69);
});

test('a problem is told, and no file is made', async () => {
  const refused = answering(jsonAnswer({ type: 'field-invalid', title: 'No.', status: 400, field: 'filter' }, 400));
  const run = await warren(['dead', 'export', 'x:y', '--output', join(folder, 'x')], refused);
  expect(run.exitCode).toBe(65);
  expect(await readdir(folder)).toEqual([]);
});

test('a file that cannot be written is told before anything is asked for', async () => {
  const { fetch, seen } = answering(answer(lines));
  const run = await warren(['dead', 'export', '--output', join(folder, 'no', 'x')], { fetch });
  expect(run).toMatchObject({ exitCode: 2, stdout: '' });
  expect(run.stderr).toContain('ENOENT');
  expect(seen).toEqual([]);
});

test('what answers with something else is no Warren service', async () => {
  expect((await warren(['dead', 'export'], answering(jsonAnswer({ items: [] })))).exitCode).toBe(69);
});
