/** The package of the client as it would be published: what is in it, and that it works where nothing else of Warren is. */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ROOT } from '../support/source-files.ts';

interface Ended {
  readonly code: number;
  readonly said: string;
}

async function run(program: string, args: readonly string[], cwd: string): Promise<Ended> {
  return await new Promise((resolve) => {
    const env = { PATH: `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`, HOME: cwd };
    execFile(program, args, { cwd, env, timeout: 100_000 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : 1, said: `${stdout}${stderr}` });
    });
  });
}

let folder: string;
let files: readonly string[];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warren-client-'));
  // Packed from a copy: another run may build beside this one.
  const copy = join(folder, 'warren/client');
  await mkdir(copy, { recursive: true });
  for (const name of ['src', 'package.json', 'tsconfig.json', 'README.md', 'LICENSE']) {
    await cp(join(ROOT, 'client', name), join(copy, name), { recursive: true });
  }
  await cp(join(ROOT, 'tsconfig.json'), join(folder, 'warren/tsconfig.json'));
  await symlink(join(ROOT, 'node_modules'), join(folder, 'warren/node_modules'));
  const packed = await run('npm', ['pack', '--json', '--pack-destination', folder], copy);
  if (packed.code !== 0) throw new Error(packed.said);
  const listed = await run('tar', ['-tzf', 'warren-client-0.1.0.tgz'], folder);
  files = listed.said
    .trim()
    .split('\n')
    .map((path) => path.replace(/^package\//, ''));
  const target = join(folder, 'app/node_modules/@warren');
  await mkdir(target, { recursive: true });
  await run('tar', ['-xzf', join(folder, 'warren-client-0.1.0.tgz')], target);
  await run('mv', ['package', 'client'], target);
  await writeFile(join(folder, 'app/package.json'), '{"type":"module"}');
});
afterAll(async () => await rm(folder, { recursive: true, force: true }));

test('holds what was built, the types, the licence and how to use it, and nothing else', () => {
  const others = files.filter((path) => !/^dist\/[a-z-]+\.(js|d\.ts)$/.test(path));
  expect(others.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(['LICENSE', 'README.md', 'package.json']);
  expect(files).toEqual(
    expect.arrayContaining(['dist/client.js', 'dist/client.d.ts', 'dist/testing.js', 'dist/testing.d.ts']),
  );
});

test('has no dependencies, and asks for amqplib only to publish over AMQP', async () => {
  const read = JSON.parse(await readFile(join(ROOT, 'client/package.json'), 'utf8')) as Record<string, unknown>;
  expect(read['dependencies']).toBeUndefined();
  const script = `
    import { createClient } from '@warren/client';
    import { createTestClient } from '@warren/client/testing';
    const test = createTestClient();
    await test.enqueue('mail.send', { to: 'a' });
    console.log(test.enqueued('mail.send').length);
    const amqp = createClient({ amqpUrl: 'amqp://127.0.0.1:1' });
    await amqp.enqueue('mail.send', {}).catch((error) => console.log(error.code, error.message));
    await createClient({ url: 'http://127.0.0.1:1' }).enqueue('a', { at: new Date() }).catch((error) => console.log(error.field));`;
  await writeFile(join(folder, 'app/main.js'), script);
  const said = 'install amqplib beside @warren/client to publish over AMQP';
  expect(await run(process.execPath, ['main.js'], join(folder, 'app'))).toEqual({
    code: 0,
    said: `1\nconfig-invalid ${said}\ninput.at\n`,
  });
});

test('has types that a strict program checks, without those of Warren or amqplib', async () => {
  const app = join(folder, 'app');
  await writeFile(
    join(app, 'typed.ts'),
    `import { createClient, enqueueIn } from '@warren/client';
     import type { PgQueryable, Task } from '@warren/client';
     import { runTask } from '@warren/client/testing';
     export const warren = createClient({ url: 'http://127.0.0.1:1', token: 'x' });
     export const amqp = createClient({ amqpUrl: 'amqp://127.0.0.1' });
     export async function use(pg: PgQueryable): Promise<Task<{ rows: number }>> {
       const { id } = await enqueueIn<object, { rows: number }>(pg, 'report.csv', { month: '2026-11' }, { priority: 7 });
       const { rows }: { rows: number } = await warren.result(id);
       await runTask({ name: 'a', input: { '~standard': {} }, run: () => rows }, {});
       return await warren.task(id);
     }
     // @ts-expect-error -- no such option
     void warren.enqueue('a', {}, { prio: 1 });\n`,
  );
  const config = {
    compilerOptions: {
      module: 'nodenext',
      target: 'es2023',
      lib: ['es2023'],
      strict: true,
      noEmit: true,
      skipLibCheck: false,
      types: ['node'],
      typeRoots: [join(ROOT, 'node_modules/@types')],
    },
    files: ['typed.ts'],
  };
  await writeFile(join(app, 'tsconfig.json'), JSON.stringify(config));
  expect(await run(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', app], app)).toEqual({
    code: 0,
    said: '',
  });
});
