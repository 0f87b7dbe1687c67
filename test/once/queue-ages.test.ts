/** How long the task that waits longest has waited, by queue, and how many workers live: found without reading all tasks. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { createQueueAges } from '../../services/producer/queue-ages.ts';
import { findOldest } from '../../services/producer/queue-ages.sql.ts';
import type { Loop } from '../../shared/lifecycle/loop.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addLease, addTask, partDeps } from '../support/core.ts';
import type { NewTask } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

let opened: TestDatabase;
let db: Database;
let running: Loop | undefined;
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterEach(async () => {
  await running?.stop(systemClock.monotonicMs() + 2_000);
  await db.query({ text: 'truncate tasks, leases, claims, due, ledger_entries, ledger_audits' });
});
afterAll(async () => await opened[Symbol.asyncDispose]());

/** Reads again and again; `ready` says what waits in RabbitMQ. */
async function look(ready: Map<string, number>): Promise<Metrics> {
  const metrics = createMetrics({ service: 'producer', version: '1', withProcess: false });
  const queues = (): readonly string[] => ['default', 'bulk', 'empty'];
  running = createQueueAges(
    { ...partDeps, db, metrics, queues, readyOf: (queue) => ready.get(queue), isShown: () => true },
    { intervalMs: 10, lapseMs: 20_000 },
  );
  await running.start();
  return metrics;
}

const valueOf = async (metrics: Metrics, name: string, queue: string): Promise<number> => {
  const [, found] = new RegExp(`^${name}\\{queue="${queue}"\\} ([\\d.]+)$`, 'm').exec(await metrics.render()) ?? [];
  return Number(found);
};
const oldest = async (metrics: Metrics, queue: string): Promise<number> =>
  await valueOf(metrics, 'warren_queue_oldest_seconds', queue);

/** A task that was accepted and invited so many seconds ago. */
async function addOld(seconds: number, task: NewTask = {}): Promise<string> {
  const at = new Date(systemClock.now().getTime() - seconds * 1_000);
  const id = idAtLeast(at).slice(0, -12) + String(Math.floor(seconds * 1_000)).padStart(12, '0');
  return await addTask(db, { id, invitedAt: `clock_timestamp() - interval '${seconds} s'`, ...task });
}

const begin = async (id: string): Promise<void> => {
  await db.query({ text: `update tasks set state = 'cancelled', finished_at = now() where id = $1`, values: [id] });
};

test('the age is that of the task that was invited first, by queue; then of the next one; 0 once none waits', async () => {
  const first = await addOld(500);
  const second = await addOld(300);
  await addOld(400, { queue: 'bulk' });
  await addOld(900, { queue: 'empty' }); // still in no queue of RabbitMQ: it is under way
  const ready = new Map([
    ['default', 2],
    ['bulk', 1],
    ['empty', 0],
  ]);
  const metrics = await look(ready);
  await eventually(async () => {
    expect(Math.floor((await oldest(metrics, 'default')) / 100)).toBe(5);
    expect(Math.floor((await oldest(metrics, 'bulk')) / 100)).toBe(4);
    expect(await oldest(metrics, 'empty')).toBe(0);
  });
  await begin(first);
  await eventually(async () => expect(Math.floor((await oldest(metrics, 'default')) / 100)).toBe(3));
  await begin(second);
  ready.set('default', 0);
  await eventually(async () => expect(await oldest(metrics, 'default')).toBe(0));
});

test('what is put off, blocked or held back on purpose has no age; an old task that was replayed counts from its invitation', async () => {
  await addOld(500, { state: 'scheduled', runAt: `clock_timestamp() + interval '1 hour'` });
  await addOld(400, { invitedAt: 'null' });
  const metrics = await look(new Map([['default', 3]]));
  await eventually(async () => expect(await oldest(metrics, 'default')).toBe(0));
  await addOld(450, { invitedAt: `clock_timestamp() - interval '200 s'` });
  await eventually(async () => expect(Math.floor((await oldest(metrics, 'default')) / 100)).toBe(2));
});

test('behind more tasks than a round looks at, the age is missing until it is found, and never wrong', async () => {
  const start = new Date(systemClock.now().getTime() - 1_000_000);
  await db.query({
    text: `insert into tasks (id, state, max_attempts, priority, type, queue, input, finished_at)
           select ($1 || lpad(n::text, 12, '0'))::uuid, 'cancelled', 1, 4, 'test.noop', 'default', '{}', now()
             from generate_series(1, 120000) n`,
    values: [idAtLeast(start).slice(0, -12)],
  });
  await addOld(600);
  const seen = new Set<number>();
  const metrics = await look(new Map([['default', 1]]));
  await eventually(async () => {
    const age = await oldest(metrics, 'default');
    seen.add(Math.floor(age / 100));
    expect(age).toBeGreaterThan(0);
  });
  expect([...seen].filter((hundreds) => !Number.isNaN(hundreds))).toEqual([6]);
});

test('a step reads as many rows as it may and no more, whatever lies behind', async () => {
  for (let seconds = 1; seconds <= 5; seconds += 1) await addOld(seconds, { queue: 'bulk' });
  const [row] = await run(db, findOldest, idAtLeast(new Date(0)), idAtLeast(systemClock.now()), 'default', 3);
  expect(row).toMatchObject({ rows_seen: 3, id: null, invited_at: null });
});

test('workers are counted by queue while their lease stands', async () => {
  await addLease(db);
  await addLease(db);
  await addLease(db, { renewedAt: `clock_timestamp() - interval '30 s'` });
  const metrics = await look(new Map());
  await eventually(async () => expect(await valueOf(metrics, 'warren_workers_alive', 'default')).toBe(2));
  await eventually(async () => expect(await valueOf(metrics, 'warren_workers_alive', 'bulk')).toBe(0));
  await db.query({ text: 'truncate leases' });
  await eventually(async () => expect(await valueOf(metrics, 'warren_workers_alive', 'default')).toBe(0));
});
