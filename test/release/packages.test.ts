/** What is handed to others: packed, listed, installed in an empty folder, and used against a real producer. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { openFleet } from '../support/fleet.ts';
import { ROOT } from '../support/source-files.ts';

const MAKE_MS = 600_000;
const run = promisify(execFile);
const PATH = `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;

let out: string;
let empty: string;
beforeAll(async () => {
  out = await mkdtemp(join(tmpdir(), 'warren-release-'));
  empty = await mkdtemp(join(tmpdir(), 'warren-empty-'));
  await run(process.execPath, ['dist/scripts/release.js', out], { cwd: ROOT });
  await writeFile(join(empty, 'package.json'), '{ "type": "module" }');
  const tarballs = (await readdir(out)).filter((name) => name.endsWith('.tgz')).map((name) => join(out, name));
  await run('npm', ['install', '--silent', '--no-audit', '--no-fund', ...tarballs], { cwd: empty });
}, MAKE_MS);
afterAll(async () => {
  for (const folder of [out, empty]) await rm(folder, { recursive: true, force: true });
}, MAKE_MS);

const warren = async (args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string> => {
  const { stdout } = await run(join(empty, 'node_modules/.bin/warren'), args, { cwd: empty, env: { PATH, ...env } });
  return stdout;
};

test('two packages, a list of what they stand on, and checksums', async () => {
  const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { readonly version: string };
  const names = ['SHA256SUMS', `warren-${version}.cdx.json`, `warren-${version}.tgz`, `warren-client-${version}.tgz`];
  expect((await readdir(out)).toSorted()).toEqual(names.toSorted());
  await run('sha256sum', ['--check', 'SHA256SUMS'], { cwd: out });
  const sbom = JSON.parse(await readFile(join(out, `warren-${version}.cdx.json`), 'utf8')) as {
    readonly dependencies: readonly { readonly ref: string }[];
    readonly components: readonly { readonly name: string }[];
  };
  expect(sbom).toMatchObject({ bomFormat: 'CycloneDX', metadata: { component: { name: 'warren', version } } });
  expect(sbom.dependencies.map(({ ref }) => ref)).toContain(`warren@${version}`);
  const components = sbom.components.map(({ name }) => name);
  expect(components).toEqual(expect.arrayContaining(['pg', 'amqplib', 'fastify']));
  expect(components).not.toContain('jest');
  expect(await warren(['--version'])).toBe(`${version}\n`);
});

test('the command line and the client, installed alone, submit to a real producer', async () => {
  expect(await warren(['--help'])).toContain('Drives a Warren fleet');
  await using fleet = await openFleet();
  const { url } = fleet.producer();
  const options = ['--url', url, '--json'];
  const input = JSON.stringify({ journal: fleet.journal });
  const { id } = JSON.parse(await warren(['task', 'submit', 'fault.step', '--input', input, '--wait', ...options])) as {
    readonly id: string;
  };
  expect(JSON.parse(await warren(['task', 'get', id, ...options]))).toMatchObject({ state: 'succeeded' });
  const script = `import { createClient } from '@warren/client';
    console.log((await createClient({ url: ${JSON.stringify(url)} }).enqueue('fault.step', ${input})).id);`;
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: empty });
  expect(stdout).toMatch(/^[0-9a-f-]{36}\n$/);
});
