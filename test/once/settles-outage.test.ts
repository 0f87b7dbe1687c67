/** A finished run is not thrown away: settles while Postgres is away, and many at once. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Settled } from '../../services/worker/settles.ts';
import { systemClock } from '../../shared/time/clock.ts';
import {
  aDeath,
  aVerdict,
  addTask,
  addTasks,
  count,
  deadlocks,
  openFaulty,
  openWorker,
  readTask,
  rows,
} from '../support/core.ts';
import { aDatabase, openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase({ max: 8 });
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

test('invariant 1: a settle that meets an outage arrives once it is over', async () => {
  await using proxy = await FaultyProxy.open(opened.url);
  const through = aDatabase(proxy.urlOf(opened.url), { connectTimeoutMs: 500 });
  await through.connectOrThrow();
  const worker = await openWorker(through);
  const [succeeds, fails] = [await worker.win(await addTask(db)), await worker.win(await addTask(db))];
  proxy.refuse();
  proxy.cut();
  const settled = Promise.all([
    worker.settles.succeed(succeeds, Buffer.from('1')),
    worker.settles.settle(fails, aDeath()),
  ]);
  await eventually(() => expect(through.isAvailable).toBe(false));
  expect((await readTask(db, succeeds.taskId)).state).toBe('running');
  proxy.accept();
  expect(await settled).toEqual(['succeeded', 'dead']);
  await through.stop(systemClock.monotonicMs() + 2_000);
});

test('invariant 1: sessions that Postgres ends in the middle cost no settle', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(faulty, { maxBatch: 10 });
  const ids = await addTasks(db, 200);
  const claims = await Promise.all(ids.map(async (id) => await worker.win(id)));
  const settled = Promise.all(claims.map(async (claim) => await worker.settles.succeed(claim, undefined)));
  await db.query({
    text: `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
  });
  expect(new Set(await settled)).toEqual(new Set(['succeeded']));
  expect(await count(db, 'tasks', `worker = '${worker.workerId}' and state = 'succeeded'`)).toBe(200);
});

test('a worker that must end gives its settles up, and the tasks stay for the reaper', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(faulty);
  const claim = await worker.win(await addTask(db));
  faulty.fault = (name) => (name === 'settle_succeeded' ? 'refuse' : undefined);
  const settled = worker.settles.succeed(claim, undefined);
  worker.settles.giveUp();
  await expect(settled).rejects.toMatchObject({ code: 'attempt-interrupted' });
  await worker.settles.idle();
  expect((await readTask(db, claim.taskId)).state).toBe('running');
  expect(await count(db, 'claims', `id = '${claim.claimId}'`)).toBe(1);
});

test('a finished claim that could not be deleted is deleted later', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(faulty);
  const claims = await Promise.all((await addTasks(db, 2)).map(async (id) => await worker.win(id)));
  // A success and a failure are settled by two statements at once: neither knows that it is the last.
  await Promise.all(
    claims.map(async (claim, index) =>
      index === 0 ? await worker.settles.succeed(claim, undefined) : await worker.settles.settle(claim, aDeath()),
    ),
  );
  const mine = `worker = '${worker.workerId}'`;
  expect(await count(db, 'claims', mine)).toBe(1);
  faulty.fault = () => 'refuse';
  await expect(worker.settles.forgetFinished()).rejects.toMatchObject({ code: 'database-unavailable' });
  faulty.fault = () => undefined;
  await worker.settles.forgetFinished();
  expect(await count(db, 'claims', mine)).toBe(0);
});

test('two workers that settle the tasks of each other in opposite orders do not deadlock, and settle each once', async () => {
  const before = await deadlocks(db);
  const owner = await openWorker(db, { maxBatch: 40 });
  const twin = await openWorker(db, { worker: owner.workerId, maxBatch: 40 });
  const ids = await addTasks(db, 400);
  const claims = await Promise.all(ids.map(async (id) => await owner.win(id)));
  const settle = async (worker: typeof owner, order: typeof claims): Promise<Settled[]> =>
    await Promise.all(
      order.map(async (claim, index) =>
        index % 2 === 0
          ? await worker.settles.succeed(claim, undefined)
          : await worker.settles.settle(claim, aVerdict()),
      ),
    );
  await Promise.all([settle(owner, claims), settle(twin, claims.toReversed())]);
  expect(await count(db, 'tasks', `worker = '${owner.workerId}' and state in ('succeeded', 'retrying')`)).toBe(400);
  const [once] = await rows<{ n: number }>(
    db,
    `select count(*)::int4 as n from tasks t left join attempts a on a.task_id = t.id
      where t.worker = $1 and (t.state = 'retrying') = (a.task_id is not null)`,
    owner.workerId,
  );
  expect(once?.n).toBe(400);
  expect(await deadlocks(db)).toBe(before);
});
