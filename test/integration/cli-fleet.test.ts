/** `warren dev` is a whole fleet, and the other commands drive it. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { AMQP_URL, openBroker, removeTopology } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { warren } from '../support/cli-io.ts';
import type { CliRun } from '../support/cli-io.ts';
import { openEmptyDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

const MAIN = fileURLToPath(new URL('../../cli/main.ts', import.meta.url));
const REGISTER = new URL('../support/ts-register.mjs', import.meta.url).href;
const MODULE = fileURLToPath(new URL('../support/task-modules/for-cli.ts', import.meta.url));

interface Task {
  readonly id: string;
  readonly state: string;
}

let db: TestDatabase;
let broker: TestBroker;
let folder: string;
let fleet: ChildProcess;
let fleetEnv: Record<string, string>;
let env: Record<string, string>;
const out = { stdout: '', stderr: '' };

beforeAll(async () => {
  db = await openEmptyDatabase();
  broker = await openBroker();
  folder = await mkdtemp(join(tmpdir(), 'warren-cli-'));
  fleetEnv = {
    PATH: '/usr/bin:/bin',
    DATABASE_URL: db.url,
    AMQP_URL,
    WARREN_PREFIX: broker.prefix,
    WARREN_HTTP_PRODUCER_PORT: '0',
    WARREN_HTTP_DEAD_LETTER_HANDLER_PORT: '0',
    WARREN_HTTP_WORKER_PORT: '0',
    WARREN_LEASE_RENEW_MS: '200',
    WARREN_LEASE_LAPSE_MS: '3000',
  };
  fleet = spawn(process.execPath, ['--no-warnings', '--import', REGISTER, MAIN, 'dev', '--json', '--tasks', MODULE], {
    env: fleetEnv,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  fleet.stdout?.on('data', (chunk: Buffer) => (out.stdout += chunk.toString()));
  fleet.stderr?.on('data', (chunk: Buffer) => (out.stderr += chunk.toString()));
  const urls = await eventually(() => JSON.parse(out.stdout) as Record<string, unknown>, { withinMs: 40_000 }).catch(
    () => {
      throw new Error(`the fleet did not start: ${out.stderr}`);
    },
  );
  env = { ...fleetEnv, WARREN_URL: String(urls['taskApi']), WARREN_DEAD_LETTERS_URL: String(urls['deadLetterApi']) };
});

afterAll(async () => {
  if (fleet.exitCode === null) {
    fleet.kill('SIGKILL');
    await once(fleet, 'close');
  }
  await removeTopology(broker.prefix, ['default', 'cli']);
  await broker[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const run = async (args: readonly string[]): Promise<CliRun> => await warren(args, { env });

/** Until the producer has read what the worker announced. */
async function submit(args: readonly string[]): Promise<CliRun> {
  return await eventually(async () => {
    const done = await run(['task', 'submit', ...args]);
    expect(done.stderr).not.toContain('task-type-unknown');
    return done;
  });
}

test('a submitted task is followed to its end, and its input comes back byte for byte', async () => {
  const input = '{ "price": 1.10,  "name": "Grüße \\u001b" }';
  const done = await submit(['cli.echo', '--input', input, '--wait', '--timeout', '20s', '--json', '--tag', 'first']);
  expect(done).toMatchObject({ exitCode: 0, stderr: '' });
  const { id, state } = done.json<Task>();
  expect(state).toBe('succeeded');
  expect(done.stdout).toContain(`"input":${input}`);
  const listed = (await run(['task', 'list', '--tag', 'first', '--json'])).json<{ items: Task[] }>();
  expect(listed.items.map((task) => task.id)).toEqual([id]);
  const shown = await run(['task', 'get', id]);
  expect(shown.stdout).toMatch(/state +succeeded\n/);
  expect(shown.stdout).toContain('"name": "Grüße \\u001b"');
});

test('a delayed task waits, and cancelling it ends the wait for it with exit 1', async () => {
  const { id, state } = (await submit(['cli.echo', '--delay', '1h', '--json'])).json<Task>();
  expect(state).toBe('scheduled');
  expect((await run(['task', 'get', id, '--wait', '--timeout', '100ms'])).exitCode).toBe(75);
  expect(await run(['task', 'cancel', id])).toMatchObject({ exitCode: 0, stdout: 'Cancelled.\n' });
  expect((await run(['task', 'get', id, '--wait'])).exitCode).toBe(1);
  expect((await run(['task', 'cancel', id])).exitCode).toBe(1);
});

test('a running task shows its progress, and cancelling it aborts it', async () => {
  const { id } = (await submit(['cli.endless', '--json'])).json<Task>();
  await eventually(async () =>
    expect((await run(['task', 'get', id])).stdout).toMatch(/progress +25% waiting to be aborted/),
  );
  const cancelled = await run(['task', 'cancel', id]);
  expect(cancelled).toMatchObject({ exitCode: 0, stdout: 'It runs; its worker has been asked to abort it.\n' });
  const ended = await run(['task', 'get', id, '--wait', '--timeout', '20s', '--json']);
  expect(ended.json<Task>().state).toBe('cancelled');
});

test('a dead letter is found, shown, and replayed once its cause is gone', async () => {
  const path = join(folder, 'wanted');
  const dead = await submit([
    'cli.needs-file',
    '--input',
    JSON.stringify({ path }),
    '--wait',
    '--timeout',
    '20s',
    '--json',
  ]);
  expect(dead).toMatchObject({ exitCode: 1 });
  const taskId = dead.json<Task>().id;
  const { items } = (await run(['dead', 'list', '--state', 'open', '--type', 'cli.needs-file', '--json'])).json<{
    items: { id: string; taskId: string }[];
  }>();
  expect(items.map((letter) => letter.taskId)).toEqual([taskId]);
  const letterId = items[0]?.id ?? '';
  const shown = await run(['dead', 'show', letterId]);
  expect(shown).toMatchObject({ exitCode: 0 });
  expect(shown.stdout).toContain(String.raw`the file \u001b[31mis missing`);

  await writeFile(path, '');
  const replayed = await run([
    'dead',
    'replay',
    letterId,
    '--reason',
    'the file is back',
    '--wait',
    '--timeout',
    '20s',
    '--json',
  ]);
  expect(replayed.stderr).toBe('');
  expect(replayed.json<Task>()).toMatchObject({ id: taskId, state: 'succeeded' });
  expect((await run(['dead', 'replay', letterId])).exitCode).toBe(1);
});

test('a dead letter is discarded with a reason', async () => {
  const dead = await submit([
    'cli.needs-file',
    '--input',
    JSON.stringify({ path: join(folder, 'never') }),
    '--wait',
    '--timeout',
    '20s',
    '--json',
  ]);
  expect(dead.exitCode).toBe(1);
  const { items } = (await run(['dead', 'list', '--state', 'open', '--json'])).json<{ items: { id: string }[] }>();
  const letterId = items[0]?.id ?? '';
  expect(await run(['dead', 'discard', letterId, '--reason', 'not needed'])).toMatchObject({
    exitCode: 0,
    stdout: 'Discarded.\n',
  });
  expect((await run(['dead', 'show', letterId])).stdout).toMatch(/close reason +not needed\n/);
});

test.each([
  [['cli.echo', '--input', '{"n": 9007199254740993}'], 65, 'input.n'],
  [['cli.needs-file', '--input', '{"path": 1}'], 65, 'input.path'],
  [['constructor'], 65, 'type'],
  [['cli.echo', '--queue', 'nowhere'], 65, 'queue'],
])('task submit %j is refused with %d, naming %s', async (args, exitCode, field) => {
  const done = await run(['task', 'submit', ...args]);
  expect(done.exitCode).toBe(exitCode);
  expect(done.stderr).toMatch(new RegExp(`field +${field.replaceAll('.', '\\.')}\n`));
});

test('doctor finds nothing wrong with a running fleet', async () => {
  const done = await run(['doctor']);
  expect(done.exitCode).toBe(0);
  expect(done.stdout).toMatch(/^ok +workers +1 alive/m);
  expect(done.stdout).toMatch(/^ok +task API +answers$/m);
  expect(done.stdout).toMatch(/^ok +dead letters API +answers$/m);
  expect(done.stdout).not.toMatch(/^fail/m);
});

test('the worker consumes every queue that its task types name', () => {
  const { queues } = JSON.parse(out.stdout) as { queues: unknown[] };
  expect(queues).toEqual([
    { name: 'default', concurrency: 10 },
    { name: 'cli', concurrency: 10 },
  ]);
});

test('Ctrl-C stops the fleet, and nothing but its document was on stdout', async () => {
  fleet.kill('SIGINT');
  const [code] = (await once(fleet, 'close')) as [number | null];
  expect(code).toBe(0);
  expect(() => JSON.parse(out.stdout) as unknown).not.toThrow();
});
