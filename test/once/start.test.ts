/** Starts that must not succeed, and starts that must wait. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { expect, test } from '@jest/globals';
import { startProcess } from '../../scripts/fleet.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { openEmptyDatabase } from '../support/database.ts';
import { openFleet } from '../support/fleet.ts';
import type { LogLine } from '../support/service-process.ts';
import { testWith } from '../support/tools.ts';
import type { Tool } from '../support/tools.ts';

const SERVICES = ['producer', 'worker', 'dead-letter-handler'] as const;
const FAILED = 'service failed to start';

test('a process with another prefix than its database refuses to start with 78 and says why', async () => {
  await using fleet = await openFleet({ workers: 0 });
  fleet.expectErrors(FAILED, 'part failed to start');
  const strangers = SERVICES.map((service) => fleet.start(service, { WARREN_PREFIX: 'elsewhere' }));
  expect(await Promise.all(strangers.map(async ({ exited }) => await exited))).toEqual([78, 78, 78]);
  for (const stranger of strangers) {
    const [line] = stranger.logged(FAILED);
    expect(JSON.stringify(line)).toContain('prefix-mismatch');
    expect(JSON.stringify(line)).toContain('elsewhere');
    expect(JSON.stringify(line)).toContain(fleet.prefix);
  }
});

test('a process with a faulty configuration lists every fault, shows no secret, and ends with 78', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0 });
  const env = {
    WARREN_PREFIX: 'NOT A PREFIX',
    WARREN_QUEUES: 'default:0',
    WARREN_LEASE_LAPSE_MS: 'soon',
    WARREN_LOG_LEVEL: 'loud',
    DATABASE_URL: 'mysql://root:hunter2@127.0.0.1/warren',
    AMQP_URL: 'http://guest:hunter3@127.0.0.1',
    WARREN_TOKENS: '[{"name":"a","role":"king","token":"hunter4-hunter4-hunter4"}]',
  };
  const processes = SERVICES.map((service) => fleet.start(service, env));
  expect(await Promise.all(processes.map(async ({ exited }) => await exited))).toEqual([78, 78, 78]);
  for (const process of processes) {
    for (const path of [
      'prefix',
      'worker.queues',
      'lease.lapseMs',
      'log.level',
      'postgres.url',
      'amqp.urls',
      'http.tokens',
    ])
      expect(process.stray).toContain(path);
    expect(process.stray).not.toMatch(/hunter/);
  }
});

test('a process whose database was never migrated ends with 78 and says what to run', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0 });
  fleet.expectErrors(FAILED, 'part failed to start');
  await using empty = await openEmptyDatabase();
  const processes = SERVICES.map((service) => fleet.start(service, { DATABASE_URL: empty.url }));
  expect(await Promise.all(processes.map(async ({ exited }) => await exited))).toEqual([78, 78, 78]);
  for (const process of processes) expect(JSON.stringify(process.logged(FAILED))).toContain('warren migrate');
});

test('a worker with a task module that cannot be loaded ends with 78 and names it', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0 });
  fleet.expectErrors(FAILED);
  const worker = fleet.start('worker', { WARREN_TASKS: './no/such/tasks.js' });
  expect(await worker.exited).toBe(78);
  expect(JSON.stringify(worker.logged(FAILED))).toContain('./no/such/tasks.js');
});

test('services that start before Postgres wait for it, then run', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0, through: ['postgres'] });
  fleet.postgresProxy.refuse();
  const processes = [fleet.start('producer'), fleet.start('worker'), fleet.start('dead-letter-handler')];
  await fleet.pass(2_500);
  expect(processes.map(({ exitCode }) => exitCode)).toEqual([undefined, undefined, undefined]);
  fleet.postgresProxy.accept();
  await Promise.all(processes.map(async (process) => await process.ready()));
  expect(await fleet.run()).toBe('succeeded');
});

test('services that Postgres leaves without an answer in the middle of their start ask again, and run', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0 });
  const holder = await fleet.database.database.checkOut();
  try {
    await holder.query({ text: 'begin' });
    await holder.query({ text: 'set local idle_in_transaction_session_timeout = 0' });
    await holder.query({ text: 'lock table queues in access exclusive mode' });
    const env = {
      WARREN_LOG_LEVEL: 'debug',
      WARREN_POSTGRES_LOCK_TIMEOUT_MS: '200',
      WARREN_PRODUCER_DECLARED_QUEUES: 'default',
    };
    const processes = (['producer', 'worker'] as const).map((service) => fleet.start(service, env));
    for (const process of processes) await process.next('waiting for postgres');
    await holder.query({ text: 'rollback' });
    for (const process of processes) await process.ready();
  } finally {
    holder.release(true);
  }
  expect(await fleet.run()).toBe('succeeded');
});

test('services that start before RabbitMQ wait for it, then run', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0, through: ['broker'] });
  fleet.brokerProxy.refuse();
  const processes = [fleet.start('producer'), fleet.start('worker'), fleet.start('dead-letter-handler')];
  await Promise.all(processes.map(async (process) => await process.next('service started')));
  await fleet.pass(500);
  fleet.brokerProxy.accept();
  await Promise.all(processes.map(async (process) => await process.ready()));
  expect(await fleet.run()).toBe('succeeded');
});

test('services that wait for Postgres at their start end with 0 at a SIGTERM', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0, through: ['postgres'] });
  fleet.postgresProxy.refuse();
  const processes = SERVICES.map((service) => fleet.start(service));
  await Promise.all(processes.map(async (process) => await process.next('postgres does not answer')));
  for (const ended of await Promise.all(processes.map(async (process) => await process.terminate()))) {
    expect(ended.code).toBe(0);
    expect(ended.afterMs).toBeLessThan(8_000);
  }
});

// oxlint-disable jest/no-standalone-expect -- because testWith declares the test
const proc: Tool = { name: '/proc', path: existsSync('/proc/self/cmdline') ? '/proc' : undefined };

testWith(
  proc,
  'a process that the scripts start is node itself, and begins to end as soon as a SIGTERM comes',
  async () => {
    await using fleet = await openFleet({ workers: 0 });
    const logDir = dirname(fleet.journal);
    const env = fleet.environment(['well-behaved']);
    const worker = await startProcess({ root: process.cwd(), service: 'worker', name: 'worker', logDir, env });
    expect(await readFile(`/proc/${worker.pid}/cmdline`, 'utf8')).toMatch(/node[^\0]*\0.*worker\/main\.js/);
    expect(await readFile(`/proc/${worker.pid}/task/${worker.pid}/children`, 'utf8')).toBe('');
    const askedMs = systemClock.now().getTime();
    expect(await worker.stop()).toBe(0);
    const lines = (await readFile(worker.logFile, 'utf8')).trim().split('\n');
    const stopping = lines
      .map((line) => JSON.parse(line) as LogLine)
      .find((line) => line.message === 'service stopping');
    expect(Date.parse(String(stopping?.['at'])) - askedMs).toBeLessThan(5_000);
  },
  60_000,
);
// oxlint-enable jest/no-standalone-expect
