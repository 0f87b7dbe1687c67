/** The commands that set an installation up and check it, on a real database and a real broker. */
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { AMQP_URL, openBroker, removeTopology } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { warren } from '../support/cli-io.ts';
import type { CliRun } from '../support/cli-io.ts';
import { openEmptyDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

const MODULE = fileURLToPath(new URL('../support/task-modules/in-thread.ts', import.meta.url));
/** Nothing listens on port 1. */
const NOWHERE = '127.0.0.1:1';

let db: TestDatabase;
let broker: TestBroker;
let env: Record<string, string>;

beforeAll(async () => {
  db = await openEmptyDatabase();
  broker = await openBroker();
  env = {
    DATABASE_URL: db.url,
    AMQP_URL,
    WARREN_PREFIX: broker.prefix,
    WARREN_URL: `http://${NOWHERE}`,
    WARREN_DEAD_LETTERS_URL: `http://${NOWHERE}`,
  };
});
afterAll(async () => {
  await removeTopology(broker.prefix, ['default', 'extra']);
  await broker[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
});

const run = async (args: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<CliRun> =>
  await warren(args, { env: { ...env, ...more } });

/** Status of each check. */
async function examine(
  more: Readonly<Record<string, string>> = {},
): Promise<{ exitCode: number; statuses: Record<string, string> }> {
  const done = await run(['doctor', '--json'], more);
  const { findings } = done.json<{ findings: { check: string; status: string; message: string; hint?: string }[] }>();
  for (const { status, hint } of findings) expect(hint === undefined).toBe(status === 'ok');
  return {
    exitCode: done.exitCode,
    statuses: Object.fromEntries(findings.map(({ check, status }) => [check, status])),
  };
}

test('migrate --wait applies nothing, and returns when another has migrated', async () => {
  const late = await run(['migrate', '--wait', '10ms']);
  expect([late.exitCode, late.stderr]).toEqual([78, expect.stringContaining('run `warren migrate`')]);
  await using fresh = await openEmptyDatabase();
  const there = { DATABASE_URL: fresh.url };
  const waiting = run(['migrate', '--wait', '60s'], there);
  await run(['migrate'], there);
  expect(await waiting).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('up to date') });
  const away = await run(['migrate', '--wait', '10ms'], { DATABASE_URL: `postgres://x:secret@${NOWHERE}/x` });
  expect(away.exitCode).toBe(69);
  expect(away.stderr).not.toContain('secret');
});

test('an installation is set up by migrate, types apply and topology apply, and doctor follows', async () => {
  const before = await examine();
  expect(before).toMatchObject({
    exitCode: 1,
    statuses: { configuration: 'ok', node: 'ok', postgres: 'ok', migrations: 'fail', rabbitmq: 'ok', topology: 'fail' },
  });
  expect((await run(['types', 'apply', '--tasks', MODULE])).exitCode).toBe(78);

  const migrated = await run(['migrate', '--json']);
  expect(migrated.json()).toMatchObject({
    applied: expect.arrayContaining(['0001_tasks']) as unknown,
    prefix: broker.prefix,
  });
  expect((await run(['migrate'])).stdout).toContain('up to date');

  const announced = await run(['types', 'apply', '--tasks', MODULE, '--json', '--code-version', '1.2.3']);
  expect(announced).toMatchObject({ exitCode: 0, stderr: '' });
  expect(announced.json<{ announced: { name: string }[] }>().announced.map(({ name }) => name)).toEqual(
    expect.arrayContaining(['http.request', 'thread.echo']),
  );
  const { rows } = await db.database.query({ text: `select distinct code_version from task_types` });
  expect(rows).toEqual([{ code_version: '1.2.3' }]);

  const applied = await run(['topology', 'apply', '--queues', 'extra', '--json']);
  expect(applied.exitCode).toBe(0);
  expect(applied.json<{ created: string[] }>().created).toEqual(
    expect.arrayContaining([`${broker.prefix}.q.default`, `${broker.prefix}.q.extra`, `${broker.prefix}.dead`]),
  );
  expect((await run(['topology', 'apply'])).stdout).toContain('Nothing to do');

  expect(await examine()).toEqual({
    exitCode: 0,
    statuses: {
      configuration: 'ok',
      node: 'ok',
      postgres: expect.stringMatching(/ok|warn/) as unknown,
      migrations: 'ok',
      prefix: 'ok',
      clock: 'ok',
      rights: 'ok',
      connections: expect.stringMatching(/ok|warn/) as unknown,
      replication: expect.stringMatching(/ok|warn/) as unknown,
      'long tasks': 'ok',
      workers: 'warn',
      'task types': 'ok',
      outbox: 'ok',
      'dead letters': 'ok',
      rabbitmq: 'ok',
      topology: 'ok',
      queues: 'warn',
      'task API': 'warn',
      'dead letters API': 'warn',
    },
  });
});

test('doctor counts live workers by their leases, and names the queues that they serve', async () => {
  await db.database.query({
    text: `insert into leases (worker, host, pid, code_version, queues, task_types, slots, renewed_at)
           values (gen_random_uuid(), 'h', 1, 'v', '{"default": 10}', '{}', 10, clock_timestamp()),
                  (gen_random_uuid(), 'h', 2, 'v', '{"other": 10}', '{}', 10, clock_timestamp() - interval '1 hour')`,
  });
  const { stdout } = await run(['doctor']);
  expect(stdout).toMatch(/^warn +workers +1 alive, on default; 1 lapsed$/m);
  expect(stdout).toMatch(/^ok +queues +each of 1 has a worker$/m);
  await db.database.query({ text: 'delete from leases' });
});

test('drift is told by doctor and by topology apply, and nothing is changed', async () => {
  const name = `${broker.prefix}.dead`;
  await broker.raw.deleteQueue(name);
  await broker.raw.assertQueue(name, { durable: true, arguments: { 'x-queue-type': 'classic', 'x-max-length': 7 } });
  const { exitCode, stderr } = await run(['topology', 'apply']);
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(new RegExp(`^differs: queue ${name.replaceAll('.', '\\.')}`, 'm'));
  expect((await examine()).statuses['topology']).toBe('warn');
  await broker.raw.deleteQueue(name);
  expect(await examine()).toMatchObject({ exitCode: 1, statuses: { topology: 'fail' } });
  await run(['topology', 'apply']);
});

test('another prefix is refused by migrate and by doctor, which name both', async () => {
  const { exitCode, stderr } = await run(['migrate'], { WARREN_PREFIX: 'other' });
  expect(exitCode).toBe(78);
  expect(stderr).toMatch(/configured +other\n +database +t/);
  const doctor = await run(['doctor'], { WARREN_PREFIX: 'other' });
  expect(doctor.exitCode).toBe(1);
  expect(doctor.stdout).toMatch(new RegExp(`^fail +prefix +the database belongs to ${broker.prefix}`, 'm'));
});

test.each([
  ['migrate', { DATABASE_URL: `postgres://x:secret@${NOWHERE}/x` }, 69],
  ['topology apply', { AMQP_URL: `amqp://x:secret@${NOWHERE}`, WARREN_AMQP_CONNECT_TIMEOUT_MS: '500' }, 69],
  ['topology apply', { AMQP_URL: AMQP_URL.replace(/\/\/[^@]*@/, '//nobody:secret@') }, 77],
  ['migrate', { WARREN_HTTP_PRODUCER_PORT: 'x', WARREN_LOG_LEVEL: 'loud' }, 78],
])('%s with %j is exit %d, without the password', async (command, more, expected) => {
  const { exitCode, stdout, stderr } = await run(command.split(' '), more);
  expect(exitCode).toBe(expected);
  expect(stdout + stderr).not.toContain('secret');
});

test('doctor goes on to the end when servers are away, and hides passwords', async () => {
  const { exitCode, stdout } = await run(['doctor'], {
    DATABASE_URL: `postgres://x:secret@${NOWHERE}/x`,
    AMQP_URL: `amqp://x:secret@${NOWHERE}`,
    WARREN_AMQP_CONNECT_TIMEOUT_MS: '500',
  });
  expect(exitCode).toBe(1);
  expect(stdout).toMatch(/^fail +postgres +.*ECONNREFUSED/m);
  expect(stdout).toMatch(/^fail +rabbitmq +/m);
  expect(stdout).toMatch(/^warn +dead letters API +/m);
  expect(stdout).not.toContain('secret');
});

test('every fault of the configuration is a line of doctor, and exit 78', async () => {
  const { exitCode, stdout } = await run(['doctor'], {
    WARREN_LOG_LEVEL: 'loud',
    WARREN_HTTP_PRODUCER_PORT: '99999999',
  });
  expect(exitCode).toBe(78);
  expect(stdout.match(/^fail +configuration/gm)).toHaveLength(2);
});

test('config print shows values, sources and no secrets', async () => {
  const done = await run(['config', 'print', '--json'], {
    DATABASE_URL: 'postgres://u:s3cr3t@127.0.0.1/x',
    WARREN_TOKENS: '[{"name":"ci","role":"viewer","token":"s3cr3t-0123456789"}]',
  });
  expect(done.stdout).not.toContain('s3cr3t');
  const { settings } = done.json<{ settings: { path: string; value: unknown; source: string }[] }>();
  expect(settings).toContainEqual({ path: 'prefix', value: broker.prefix, source: 'environment' });
  expect(settings).toContainEqual({ path: 'http.tokens', value: 'ci (viewer)', source: 'environment' });
  const changed = await run(['config', 'print', '--changed']);
  expect(changed.stdout).toMatch(/^prefix +environment +t/m);
  expect(changed.stdout).not.toContain('default');
});

test('schedules of the code are made, changed and taken away as it says, and belong to it', async () => {
  await run(['migrate']);
  const apply = async (file: string, ...more: readonly string[]): Promise<CliRun> => {
    const module = fileURLToPath(new URL(`../support/task-modules/${file}`, import.meta.url));
    return await run(['types', 'apply', '--tasks', module, ...more]);
  };
  const changes = async (...args: Parameters<typeof apply>): Promise<readonly string[]> => {
    const done = await apply(...args, '--json');
    expect([done.exitCode, done.stderr]).toEqual([0, '']);
    const { schedules } = done.json<{ schedules: { name: string; change: string }[] }>();
    return schedules.map(({ name, change }) => `${name} ${change}`);
  };
  const names = async (): Promise<unknown> =>
    (await db.database.query({ text: `select name, source, paused_by from schedules order by name` })).rows;

  expect(await changes('scheduled.ts')).toEqual(['nightly created', 'weekly created']);
  expect(await changes('scheduled.ts')).toEqual(['nightly unchanged', 'weekly unchanged']);
  // What an operator paused stays so.
  await db.database.query({
    text: `update schedules set paused_at = now(), paused_by = 'anna' where name = 'nightly'`,
  });
  const planned = await apply('scheduled-later.ts', '--dry-run');
  expect(planned).toMatchObject({ exitCode: 0, stderr: expect.stringContaining('Nothing was changed.') });
  expect(planned.stdout).toMatch(
    /~ schedule nightly changed\n {2}- .*"0 2 [^]*\n {2}\+ .*"30 2 [^]*\? schedule weekly gone/,
  );
  expect(await changes('scheduled-later.ts')).toEqual(['nightly changed', 'weekly gone']);
  const kept = { source: 'code', paused_by: null };
  expect(await names()).toEqual([
    { ...kept, name: 'nightly', paused_by: 'anna' },
    { ...kept, name: 'weekly' },
  ]);
  expect(await changes('scheduled-later.ts', '--prune')).toEqual(['nightly unchanged', 'weekly removed']);
  expect(await names()).toEqual([{ ...kept, name: 'nightly', paused_by: 'anna' }]);

  const wrong = await apply('scheduled-wrong.ts');
  expect([wrong.exitCode, wrong.stderr]).toEqual([65, expect.stringMatching(/flow\.steps\.settle\.input/)]);
  expect(await names()).toHaveLength(1);
});

test.each(['broken.ts', 'empty.ts', 'nowhere.ts'])('types apply says why it cannot take %s', async (file) => {
  const module = fileURLToPath(new URL(`../support/task-modules/${file}`, import.meta.url));
  const { exitCode, stderr } = await run(['types', 'apply', '--tasks', module]);
  expect(exitCode).toBe(78);
  expect(stderr).toMatch(/task-module-invalid[^]*reason /);
});
