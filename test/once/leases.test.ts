/** A worker's proof of life. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cancelTask } from '../../services/producer/cancel.ts';
import { Leases } from '../../services/worker/leases.ts';
import type { LeasesDeps, LeasesOptions } from '../../services/worker/leases.ts';
import { loadConfig } from '../../shared/config/load.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addTask, count, openFaulty, openWorker, partDeps, readTask, rows } from '../support/core.ts';
import { aDatabase, openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';
import { openReaper } from '../support/reaper.ts';
import { listLogger } from '../support/runner.ts';
import type { LoggedLine } from '../support/runner.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

interface Heard {
  readonly cancels: string[];
  readonly claims: string[];
  lapses: number;
  readonly lines: LoggedLine[];
}

interface TestLeases extends AsyncDisposable {
  readonly leases: Leases;
  readonly heard: Heard;
}

function openLeases(
  over: Database = db,
  options: Partial<LeasesOptions> = {},
  deps: Partial<LeasesDeps> = {},
): TestLeases {
  const heard: Heard = { cancels: [], claims: [], lapses: 0, lines: [] };
  const leases = new Leases(
    {
      ...partDeps,
      log: listLogger(heard.lines),
      db: over,
      inFlight: () => 3,
      loads: () => [
        { queue: 'default', running: 2, waiting: 5 },
        { queue: 'bulk', running: 1, waiting: 0 },
      ],
      isDraining: () => false,
      onCancels: (ids) => heard.cancels.push(...ids),
      onClaims: (_workerId, ids) => heard.claims.push(...ids),
      onLapsed: () => {
        heard.lapses += 1;
      },
      ...deps,
    },
    {
      renewMs: 100,
      maxLoopBlockMs: 5_000,
      codeVersion: 'v7',
      taskTypes: ['mail.send'],
      queues: { default: 4, bulk: 2 },
      ...options,
    },
  );
  const stop = async (): Promise<void> => await leases.stop(systemClock.monotonicMs() + 3_000);
  return { leases, heard, [Symbol.asyncDispose]: stop };
}

const lease = async ({ leases }: TestLeases): Promise<Record<string, unknown> | undefined> =>
  (await rows<Record<string, unknown>>(db, 'select * from leases where worker = $1', leases.workerId))[0];
const leased = async (test: TestLeases): Promise<void> =>
  await eventually(async () => expect(await lease(test)).toBeDefined());

test('a lease says what the worker is and is renewed while it lives, and goes when it stops', async () => {
  const open = openLeases();
  await open.leases.start();
  await open.leases.start();
  await open.leases.whenLeased(AbortSignal.timeout(30_000));
  expect(await lease(open)).toMatchObject({
    code_version: 'v7',
    queues: { default: 4, bulk: 2 },
    task_types: ['mail.send'],
    slots: 6,
  });
  await eventually(async () => expect(await lease(open)).toMatchObject({ in_flight: 3 }));
  const first = await lease(open);
  await eventually(async () => expect((await lease(open))?.['renewed_at']).not.toEqual(first?.['renewed_at']));
  await eventually(async () =>
    expect(await partDeps.metrics.render()).toMatch(/^warren_lease_renewals_total\{answer="renewed"\} [1-9]/m),
  );
  await open[Symbol.asyncDispose]();
  await open[Symbol.asyncDispose]();
  expect(await lease(open)).toBeUndefined();
  expect(open.leases.isLeased).toBe(false);
});

test('a lease tells what its worker runs and holds of each queue, and that it takes nothing new', async () => {
  let isDraining = false;
  await using open = openLeases(db, {}, { isDraining: () => isDraining });
  await open.leases.start();
  const loads = { default: { running: 2, waiting: 5 }, bulk: { running: 1, waiting: 0 } };
  await eventually(async () => expect(await lease(open)).toMatchObject({ loads, is_draining: false }));
  isDraining = true;
  await eventually(async () => expect(await lease(open)).toMatchObject({ loads, is_draining: true }));
});

test('a lease tells how busy its worker is: attempts under way, CPU of all its threads, memory', async () => {
  let inFlight = 3;
  await using open = openLeases(db, {}, { inFlight: () => inFlight });
  await open.leases.start();
  await eventually(async () => expect(await lease(open)).toMatchObject({ in_flight: 3 }));
  inFlight = 17;
  await eventually(async () => expect(await lease(open)).toMatchObject({ in_flight: 17 }));
  const rss = process.memoryUsage.rss();
  const memory = Number((await lease(open))?.['memory_bytes']);
  expect([memory > rss / 3, memory < rss * 3]).toEqual([true, true]);
  // The thread that renews does nothing; the process it belongs to computes.
  const busy = new AbortController();
  const compute = (): void => {
    for (const untilMs = systemClock.monotonicMs() + 20; systemClock.monotonicMs() < untilMs;);
    if (!busy.signal.aborted) setImmediate(compute);
  };
  compute();
  try {
    await eventually(async () => expect((await lease(open))?.['cpu_fraction']).toBeGreaterThan(0.1));
  } finally {
    busy.abort();
  }
});

test('with the defaults a worker that was killed is noticed within 25 seconds', () => {
  const { config } = loadConfig({ user: 'producer', env: {} });
  // Its last renewal was at its death at the latest; a round of the reaper comes after its interval and a tenth more.
  expect(config.lease.lapseMs + config.reaper.intervalMs * 1.1).toBeLessThanOrEqual(25_000);
  expect([config.lease.renewMs, config.lease.lapseMs]).toEqual([1_500, 20_000]);
});

test('what runs for many lease times stays with its worker while that renews, and runs once', async () => {
  const LAPSE_MS = 2_000;
  await using open = openLeases();
  await using reaper = await openReaper(db, LAPSE_MS);
  await open.leases.start();
  await leased(open);
  const worker = await openWorker(db, { worker: open.leases.workerId });
  const claim = await worker.win(await addTask(db));
  await reaper.wait(LAPSE_MS * 2); // its patience with what it cannot know is over
  const startMs = systemClock.monotonicMs();
  await eventually(() => expect(systemClock.monotonicMs() - startMs).toBeGreaterThan(2 * LAPSE_MS));
  await reaper.rounds();
  expect(open.heard.lapses).toBe(0);
  expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
  expect(await readTask(db, claim.taskId)).toMatchObject({ attempt: 1, lost_attempts: 0 });
});

test('a worker hears with a renewal what is to be cancelled, and which old claims name it', async () => {
  await using open = openLeases();
  await open.leases.start();
  await leased(open);
  const worker = await openWorker(db, { worker: open.leases.workerId });
  const [old, fresh] = [await worker.win(await addTask(db)), await worker.win(await addTask(db))];
  await db.query({
    text: `update claims set claimed_at = clock_timestamp() - interval '2 min' where id = $1`,
    values: [old.claimId],
  });
  await db.query({
    text: `insert into cancel_requests (task_id, requested_by) values ($1, 'anna')`,
    values: [fresh.taskId],
  });
  await eventually(() => expect(open.heard.cancels).toContain(fresh.taskId));
  await eventually(() => expect(open.heard.claims).toContain(old.claimId));
  expect(open.heard.claims).not.toContain(fresh.claimId);
});

test('between two renewals a worker hears of cancels of its own tasks, once it is notified, and of nobody else’s', async () => {
  await using open = openLeases(db, { renewMs: 50_000 });
  await open.leases.start();
  await leased(open);
  const [mine, others] = [await openWorker(db, { worker: open.leases.workerId }), await openWorker(db)];
  const [own, strange] = [await mine.win(await addTask(db)), await others.win(await addTask(db))];
  const actor = { name: 'anna', role: 'operator' } as const;
  await cancelTask(db, strange.taskId, { actor, reason: undefined });
  await cancelTask(db, own.taskId, { actor, reason: undefined });
  await eventually(() => expect(open.heard.cancels).toEqual([own.taskId]));
  const renewed = (await lease(open))?.['renewed_at'];
  // Asked for again and again it is told again, and a few times for many: looks have a distance.
  const before = open.heard.cancels.length;
  await Promise.all(
    Array.from({ length: 50 }, async () => await cancelTask(db, own.taskId, { actor, reason: undefined })),
  );
  await eventually(() => expect(open.heard.cancels.length).toBeGreaterThan(before));
  expect(open.heard.cancels.length).toBeLessThan(25);
  expect(new Set(open.heard.cancels)).toEqual(new Set([own.taskId]));
  expect((await lease(open))?.['renewed_at']).toEqual(renewed);
});

test('a worker whose lease was taken away hears it and goes on under a new id', async () => {
  await using open = openLeases();
  await open.leases.start();
  await leased(open);
  const before = open.leases.workerId;
  await db.query({ text: 'delete from leases where worker = $1', values: [before] });
  await eventually(() => expect(open.heard.lapses).toBe(1));
  await leased(open);
  expect(open.leases.workerId).not.toBe(before);
  expect(await count(db, 'leases', `worker = '${before}'`)).toBe(0);
});

test('a lease outlives a blocked event loop, but not beyond the bound', async () => {
  const block = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  await using open = openLeases(db, { maxLoopBlockMs: 600, renewMs: 50 });
  await open.leases.start();
  await leased(open);
  const [start] = await rows<{ at: Date }>(db, 'select clock_timestamp() as at');
  block(2_500);
  const [row] = await rows<{ at: Date }>(
    db,
    'select renewed_at as at from leases where worker = $1',
    open.leases.workerId,
  );
  const renewedForMs = (row?.at.getTime() ?? 0) - (start?.at.getTime() ?? 0);
  expect(renewedForMs).toBeGreaterThan(0); // while the loop was blocked
  expect(renewedForMs).toBeLessThan(2_000); // but not once the bound was passed
  await eventually(() => expect(JSON.stringify(open.heard.lines)).toContain('the event loop is blocked'));
});

test('a lease is taken once Postgres is there', async () => {
  await using faulty = await openFaulty(db);
  let refusals = 0;
  faulty.fault = (name) => {
    if (name !== 'open_lease' || refusals > 0) return undefined;
    refusals += 1;
    return 'refuse';
  };
  await using open = openLeases(faulty);
  await open.leases.start();
  await open.leases.whenLeased(AbortSignal.timeout(30_000));
  expect([refusals, open.leases.isLeased]).toEqual([1, true]);
});

test('a worker that stops while it takes its lease stops', async () => {
  await using faulty = await openFaulty(db);
  const open = openLeases(faulty);
  let stopping: Promise<void> | undefined;
  faulty.before = ({ name }) => {
    if (name === 'open_lease') stopping = open.leases.stop(systemClock.monotonicMs() + 60_000);
  };
  await open.leases.start();
  await eventually(() => expect(stopping).toBeDefined());
  await stopping;
  expect(await lease(open)).toBeUndefined();
});

test('a worker that stops while Postgres does not answer stops at its deadline', async () => {
  await using proxy = await FaultyProxy.open(opened.url);
  const through = aDatabase(proxy.urlOf(opened.url), { connectTimeoutMs: 500 });
  await through.connectOrThrow();
  const open = openLeases(through);
  await open.leases.start();
  await eventually(async () => expect(await lease(open)).toMatchObject({ in_flight: 3 }));
  proxy.pause();
  const startMs = systemClock.monotonicMs();
  await open.leases.stop(startMs + 300);
  expect(systemClock.monotonicMs() - startMs).toBeLessThan(8_000);
  expect(JSON.stringify(open.heard.lines)).toContain('lease left to lapse');
  proxy.cut();
  await through.stop(systemClock.monotonicMs());
});

test('a worker that is stopped before its start takes no lease', async () => {
  const open = openLeases();
  await open[Symbol.asyncDispose]();
  await open.leases.start();
  await open[Symbol.asyncDispose]();
  expect(await lease(open)).toBeUndefined();
});

test('an outage is told less and less often', async () => {
  await using proxy = await FaultyProxy.open(opened.url);
  const through = aDatabase(proxy.urlOf(opened.url), { connectTimeoutMs: 500 });
  await through.connectOrThrow();
  await using open = openLeases(through, { renewMs: 20 });
  const told = (): unknown[] =>
    open.heard.lines.filter(({ message }) => message === 'lease not renewed').map(({ fields }) => fields['timesInRow']);
  await open.leases.start();
  await leased(open);
  proxy.refuse();
  proxy.cut();
  await eventually(() => expect(told()).toContain(16));
  expect(told()).toEqual([1, 2, 4, 8, 16]);
  proxy.accept();
  await through.stop(systemClock.monotonicMs() + 1_000);
});

test('a link that dies without a word costs a renewal or two, not the lease', async () => {
  await using proxy = await FaultyProxy.open(opened.url);
  const through = aDatabase(proxy.urlOf(opened.url), { statementTimeoutMs: 30_000 });
  await through.connectOrThrow();
  await using open = openLeases(through);
  await open.leases.start();
  await leased(open);
  proxy.forget();
  const forgotten = (await lease(open))?.['renewed_at'] as Date;
  await eventually(async () => {
    const renewed = (await lease(open))?.['renewed_at'] as Date;
    expect(renewed.getTime()).toBeGreaterThan(forgotten.getTime() + 500);
  });
  expect(open.heard.lines.filter(({ message }) => message === 'lease not renewed')).not.toEqual([]);
  expect(open.heard.lapses).toBe(0);
  await through.stop(systemClock.monotonicMs() + 1_000);
});
