/** What a queue lost is invited anew. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { createReconciler } from '../../services/producer/reconciler.ts';
import type { Loop } from '../../shared/lifecycle/loop.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import type { Invitation } from '../../shared/tasks/invitation.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addTask, addTasks, openWorker, partDeps } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
let db: Database;
let running: Loop[] = [];
beforeAll(async () => {
  work = await openWork({ queues: ['default', 'other'] });
  db = work.db;
});
afterEach(async () => {
  for (const each of running.splice(0)) await each.stop(systemClock.monotonicMs() + 2_000);
  await db.query({ text: 'truncate tasks, leases, claims, due' });
  await work.take();
  await work.take('other');
});
afterAll(async () => await work[Symbol.asyncDispose]());

interface Reconciling {
  readonly published: Invitation[];
  /** Rounds that failed. */
  readonly failures: string[];
}

/** Runs a reconciler and notes what it publishes beside sending it to the broker. */
async function reconcile({
  intervalMs = 50,
  queues = ['default', 'other'],
  canPublish = (): boolean => true,
}: {
  readonly intervalMs?: number;
  readonly queues?: readonly string[];
  readonly canPublish?: () => boolean;
} = {}): Promise<Reconciling> {
  const published: Invitation[] = [];
  const failures: string[] = [];
  const { consuming, names } = work.backbone;
  const loop = createReconciler(
    {
      ...partDeps,
      db,
      connection: consuming,
      names,
      queues: () => queues,
      metrics: work.metrics,
      canPublish,
      onFailure: (name) => failures.push(name),
      publish: async (invitation) => {
        published.push(invitation); // in the order of publishing; confirms may come in another
        try {
          await work.backbone.invite(invitation);
        } catch (thrown) {
          published.splice(published.indexOf(invitation), 1);
          throw thrown;
        }
      },
    },
    { intervalMs },
  );
  running.push(loop);
  await loop.start();
  return { published, failures };
}

const idsOf = (invitations: readonly Invitation[]): string[] => invitations.map(({ taskId }) => taskId);
const ago = (ms: number): string => `clock_timestamp() - interval '${ms} ms'`;

test('tasks whose queue was purged are invited anew, each with its own priority, oldest first', async () => {
  const ids: string[] = [];
  for (const priority of [1, 9, 4]) ids.push(await addTask(db, { priority }));
  await Promise.all(ids.map(async (taskId) => await invite(taskId)));
  await eventually(async () => {
    expect((await work.broker.raw.checkQueue(work.backbone.names.queue('default'))).messageCount).toBe(3);
  });
  const { published } = await reconcile({ intervalMs: 100 });
  await work.broker.raw.purgeQueue(work.backbone.names.queue('default'));
  expect(new Set(await work.invitations(3))).toEqual(new Set(ids));
  expect(idsOf(published)).toEqual(ids);
  expect(published.map(({ priority }) => priority)).toEqual([1, 9, 4]);
  expect(await work.metrics.render()).toMatch(/warren_invited_anew_total\{why="queue_empty"\} [1-9]/);
});

test('while a queue holds messages nothing of it is invited, and another that is empty is not held up', async () => {
  await addTask(db, { invitedAt: ago(60_000) });
  await invite('00000000-0000-7000-8000-000000000001'); // keeps the queue from being empty
  const other = await addTask(db, { queue: 'other', invitedAt: ago(60_000) });
  const { published } = await reconcile();
  await eventually(() => expect(idsOf(published)).toContain(other));
  await work.take('other');
  expect(published.filter(({ queue }) => queue === 'default')).toEqual([]);
});

test('a queue that is missing is empty', async () => {
  const id = await addTask(db, { queue: 'gone', invitedAt: ago(60_000) });
  const { failures } = await reconcile({ queues: ['gone'] });
  await eventually(() => expect(failures).not.toEqual([])); // unroutable: the topology keeper declares what is announced
  await work.broker.raw.assertQueue(work.backbone.names.queue('gone'));
  await work.broker.raw.bindQueue(work.backbone.names.queue('gone'), work.backbone.names.work, 'gone');
  expect(await work.invitations(1, 'gone')).toEqual([id]);
  await work.broker.raw.deleteQueue(work.backbone.names.queue('gone'));
});

test('what is held back, runs, or has ended is left alone', async () => {
  await addTask(db, { invitedAt: 'null' });
  await addTask(db, { state: 'scheduled', runAt: `clock_timestamp() + interval '1 h'`, invitedAt: ago(60_000) });
  const worker = await openWorker(db);
  await worker.win(await addTask(db, { invitedAt: ago(60_000) }));
  const lost = await addTask(db, { invitedAt: ago(60_000) });
  const { published } = await reconcile();
  await eventually(() => expect(published).not.toEqual([]));
  expect(new Set(idsOf(published))).toEqual(new Set([lost]));
});

test('a task that still waits is invited again after pauses that double', async () => {
  const id = await addTask(db, { invitedAt: ago(60_000) });
  const { published } = await reconcile({ intervalMs: 50 });
  const times: number[] = [];
  for (let seen = 1; seen <= 5; seen += 1) {
    await eventually(() => expect(published).toHaveLength(seen), { everyMs: 5 });
    times.push(systemClock.monotonicMs());
    expect(await work.invitations(1)).toEqual([id]); // the queue is empty again
  }
  const pauses = times.slice(1).map((at, index) => at - (times[index] ?? 0));
  pauses.forEach((pause, index) => expect(pause).toBeGreaterThanOrEqual(50 * 2 ** (index + 1) - 50));
});

test('nothing is invited while the broker takes nothing: the outbox holds it', async () => {
  let isBlocked = true;
  const id = await addTask(db, { invitedAt: ago(60_000) });
  const { published, failures } = await reconcile({ canPublish: () => !isBlocked });
  await systemClock.sleep(300);
  expect([published, failures]).toEqual([[], []]);
  isBlocked = false;
  await eventually(() => expect(idsOf(published)).toContain(id));
});

test('a purge of thousands behind thousands that ended is made good within a few rounds', async () => {
  const start = idAtLeast(new Date(systemClock.now().getTime() - 180_000)).slice(0, -12);
  await db.query({
    text: `insert into tasks (id, state, finished_at, max_attempts, priority, type, queue, input)
           select ($1 || lpad(n::text, 12, '0'))::uuid, 'succeeded', now(), 3, 4, 'test.noop', 'default', ''
             from generate_series(1, 20000) n`,
    values: [start],
  });
  const ids = await addTasks(db, 6_000);
  await reconcile({ intervalMs: 200 });
  const found = await work.invitations(6_000);
  expect(new Set(found)).toEqual(new Set(ids));
});

test('an old task that a replay made wait, and whose invitation was lost, is found', async () => {
  const start = idAtLeast(new Date(systemClock.now().getTime() - 180_000)).slice(0, -12);
  await db.query({
    text: `insert into tasks (id, state, finished_at, max_attempts, priority, type, queue, input)
           select ($1 || lpad(n::text, 12, '0'))::uuid, 'dead', now(), 3, 1, 'test.noop', 'default', ''
             from generate_series(1, 3000) n`,
    values: [start],
  });
  const { published } = await reconcile();
  await addTask(db, { invitedAt: ago(60_000) });
  await eventually(() => expect(published).not.toEqual([])); // the walk has passed the dead
  const replayed = `${start}000000000007`;
  await db.query({
    text: `update tasks set state = 'pending', generation = 2, finished_at = null,
                            invited_at = clock_timestamp() - interval '2 min' where id = $1`,
    values: [replayed],
  });
  await work.take();
  await eventually(async () => {
    await work.take();
    expect(idsOf(published)).toContain(replayed);
  });
});

async function invite(taskId: string): Promise<void> {
  await work.backbone.invite({ taskId, type: 'test.noop', queue: 'default', priority: 4, generation: 1 });
}
