/** No priority starves: what has waited long comes with the highest. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { createAging } from '../../services/producer/aging.ts';
import type { Loop } from '../../shared/lifecycle/loop.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import type { Invitation } from '../../shared/tasks/invitation.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addLease, addTask, openWorker, partDeps } from '../support/core.ts';
import type { NewTask } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

const AFTER_MS = 60_000;

let work: TestWork;
let db: Database;
let running: Loop | undefined;
let made = 0;
beforeAll(async () => {
  work = await openWork();
  db = work.db;
});
afterEach(async () => {
  await running?.stop(systemClock.monotonicMs() + 2_000);
  await db.query({ text: 'truncate tasks, leases, claims, due' });
  await work.take();
});
afterAll(async () => await work[Symbol.asyncDispose]());

/** Runs aging and notes what it publishes beside sending it to the broker. */
async function age(): Promise<Invitation[]> {
  const published: Invitation[] = [];
  running = createAging(
    {
      ...partDeps,
      db,
      metrics: work.metrics,
      publish: async (invitation) => {
        await work.backbone.invite(invitation);
        published.push(invitation);
      },
    },
    { intervalMs: 5, afterMs: AFTER_MS },
  );
  await running.start();
  return published;
}

/** A task that was accepted, and invited, two minutes ago; each is a little younger than the one before. */
async function addOld(task: NewTask = {}): Promise<string> {
  made += 1;
  const at = new Date(systemClock.now().getTime() - 120_000);
  const id = idAtLeast(at).slice(0, -12) + String(made).padStart(12, '0');
  return await addTask(db, { id, priority: 1, invitedAt: `clock_timestamp() - interval '2 min'`, ...task });
}

test('what has waited long is invited once more, at the highest priority, oldest first', async () => {
  await addLease(db, { slots: 4 });
  const old = [await addOld(), await addOld(), await addOld()];
  const young = await addTask(db, { priority: 1 });
  const published = await age();
  await eventually(() => expect(published.map(({ taskId }) => taskId)).toEqual(old));
  const messages = await work.take();
  expect(messages.map(({ properties }) => properties.priority as unknown)).toEqual([9, 9, 9]);
  await addOld(); // several rounds later
  await eventually(() => expect(published).toHaveLength(4));
  expect(published.map(({ taskId }) => taskId)).not.toContain(young);
});

test('what waits with the highest priority already, what is held back, and what does not wait are left alone', async () => {
  await addLease(db, { slots: 4 });
  await addOld({ priority: 9 });
  await addOld({ invitedAt: 'null' });
  await addOld({ state: 'scheduled', runAt: `clock_timestamp() + interval '1 h'` });
  const worker = await openWorker(db);
  await worker.win(await addOld());
  const last = await addOld();
  const published = await age();
  await eventually(() => expect(published.map(({ taskId }) => taskId)).toEqual([last]));
});

test('at most twice the slots of the fleet are on their way at once, and more follow as those start', async () => {
  await addLease(db, { slots: 1 });
  await addLease(db, { slots: 1 });
  const old: string[] = [];
  for (let task = 0; task < 7; task += 1) old.push(await addOld());
  const published = await age();
  await eventually(() => expect(published).toHaveLength(4));
  const worker = await openWorker(db, { worker: await addLease(db, { slots: 0 }) });
  await worker.win(String(old[0]));
  await worker.win(String(old[1]));
  await eventually(() => expect(published.map(({ taskId }) => taskId)).toEqual(old.slice(0, 6)));
});

test('without a fleet nothing is invited', async () => {
  await addOld();
  const published = await age();
  await addLease(db, { slots: 1 });
  await eventually(() => expect(published).toHaveLength(1)); // and not before there was somebody
});

test('many tasks that ended do not hide one that waits', async () => {
  await addLease(db, { slots: 4 });
  const start = idAtLeast(new Date(systemClock.now().getTime() - 180_000)).slice(0, -12);
  await db.query({
    text: `insert into tasks (id, state, finished_at, max_attempts, priority, type, queue, input)
           select ($1 || lpad(n::text, 12, '0'))::uuid, 'succeeded', now(), 3, 4, 'test.noop', 'default', ''
             from generate_series(1, 12000) n`,
    values: [start],
  });
  const first = await addOld();
  const published = await age();
  await eventually(() => expect(published.map(({ taskId }) => taskId)).toEqual([first]));
  const second = await addOld();
  await eventually(() => expect(published.map(({ taskId }) => taskId)).toEqual([first, second]));
});

test('a dead task that was replayed, old as its id is, does not starve', async () => {
  await addLease(db, { slots: 4 });
  const start = idAtLeast(new Date(systemClock.now().getTime() - 180_000)).slice(0, -12);
  await db.query({
    text: `insert into tasks (id, state, finished_at, max_attempts, priority, type, queue, input)
           select ($1 || lpad(n::text, 12, '0'))::uuid, 'dead', now(), 3, 1, 'test.noop', 'default', ''
             from generate_series(1, 6000) n`,
    values: [start],
  });
  const published = await age();
  await addOld();
  await eventually(() => expect(published).toHaveLength(1)); // the walk has passed the dead
  const replayed = `${start}000000000007`;
  await db.query({
    text: `update tasks set state = 'pending', generation = 2, finished_at = null,
                            invited_at = clock_timestamp() - interval '2 min' where id = $1`,
    values: [replayed],
  });
  await eventually(() => expect(published.map(({ taskId }) => taskId)).toContain(replayed));
});
