/** What becomes of the tasks of a worker whose lease lapsed. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cancelTask } from '../../services/producer/cancel.ts';
import { cancelTasks } from '../../services/producer/cancel.sql.ts';
import { closeLease } from '../../services/worker/leases.sql.ts';
import { run } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { aDeath, aVerdict, addLease, addTask, addTasks, count, openWorker, readTask, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openReaper } from '../support/reaper.ts';
import type { TestReaper } from '../support/reaper.ts';

const LAPSE_MS = 5_000;

let opened: TestDatabase;
let db: TestDatabase['database'];
let reaper: TestReaper;
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  reaper = await openReaper(db, LAPSE_MS);
  await reaper.wait(LAPSE_MS);
});
afterAll(async () => {
  await reaper[Symbol.asyncDispose]();
  await opened[Symbol.asyncDispose]();
});

/** A worker without any sign of life for an hour. */
async function lapse(worker: TestWorker): Promise<void> {
  await db.query({
    text: `update leases set renewed_at = clock_timestamp() - interval '1 h' where worker = $1`,
    values: [worker.workerId],
  });
}

const actor = { name: 'anna', role: 'operator' } as const;

test('invariant 1: what a lost worker ran waits again, is invited, and its attempt is kept as lost', async () => {
  const worker = await openWorker(db);
  const ids = await addTasks(db, 3);
  const claims = await Promise.all(ids.map(async (id) => await worker.win(id)));
  await lapse(worker);
  await eventually(async () => expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(0));
  for (const id of ids) {
    expect(await readTask(db, id)).toMatchObject({ state: 'pending', lost_attempts: 1, failures: 0, attempt: 1 });
  }
  expect(await rows(db, `select outcome, error_code, worker from attempts where task_id = $1`, ids[0])).toEqual([
    { outcome: 'lost', error_code: 'worker-lost', worker: worker.workerId },
  ]);
  expect(await count(db, 'leases', `worker = '${worker.workerId}'`)).toBe(0);
  const invitations = reaper.invited.flatMap((row) => row.invitations);
  expect(invitations.map(({ taskId }) => taskId)).toEqual(expect.arrayContaining(ids));
  expect(await count(db, 'outbox', `'${String(ids[0])}' = any(task_ids)`)).toBe(1);
  expect(claims[0]?.attempt).toBe(1);
});

test('invariant 2: a worker that was taken for dead cannot settle what it ran', async () => {
  const worker = await openWorker(db);
  const [taskId, other] = [await addTask(db), await addTask(db)];
  const [claim, otherClaim] = [await worker.win(taskId), await worker.win(other)];
  await lapse(worker);
  await eventually(async () => expect((await readTask(db, other)).state).toBe('pending'));
  await eventually(async () => expect((await readTask(db, taskId)).state).toBe('pending'));
  const successor = await openWorker(db);
  const second = await successor.win(taskId);
  expect(second.attempt).toBe(2);
  expect(await worker.settles.succeed(claim, Buffer.from('"late"'))).toBe('fenced');
  expect(await worker.settles.settle(claim, aDeath())).toBe('fenced');
  expect(await successor.settles.succeed(second, Buffer.from('"right"'))).toBe('succeeded');
  expect((await readTask(db, taskId)).result?.toString()).toBe('"right"');
  // Not claimed anew yet: it waits, and so it is not told to be settled as the attempt wanted.
  expect(['fenced', 'pending']).toContain(await worker.settles.settle(otherClaim, aVerdict()));
  expect((await readTask(db, other)).state).toBe('pending');
});

test('what was settled before its worker was lost stays settled', async () => {
  const worker = await openWorker(db);
  const [done, runs] = await addTasks(db, 2);
  const [first] = await Promise.all([worker.win(String(done)), worker.win(String(runs))]);
  await worker.settles.succeed(first, undefined);
  await lapse(worker);
  await eventually(async () => expect((await readTask(db, String(runs))).state).toBe('pending'));
  expect(await readTask(db, String(done))).toMatchObject({ state: 'succeeded', lost_attempts: 0 });
});

test('invariant 4: the third attempt lost alone is the death of the task, with one dead letter', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, {
    lostAttempts: 4,
    lostAlone: 2,
    type: 'test.kills',
    deadline: `clock_timestamp() + interval '1 h'`,
  });
  expect(await worker.claims.markAlone(await worker.win(taskId))).toBe(true);
  await lapse(worker);
  await eventually(async () => expect((await readTask(db, taskId)).state).toBe('dead'));
  expect(await readTask(db, taskId)).toMatchObject({ lost_attempts: 5, lost_alone: 3, failures: 0 });
  expect(await rows(db, 'select * from dead_letters where task_id = $1', taskId)).toMatchObject([
    { state: 'open', kind: 'task', reason: 'worker_lost', type: 'test.kills', attempt: 1, error_code: 'worker-lost' },
  ]);
  expect(await count(db, 'outbox', `'${taskId}' = any(task_ids)`)).toBe(0);
});

test('an attempt that was lost beside others does not count towards three, however many there were', async () => {
  const worker = await openWorker(db);
  const [suspect, beside] = [
    await addTask(db, { lostAttempts: 9, lostAlone: 1 }),
    await addTask(db, { lostAttempts: 9, lostAlone: 2 }),
  ];
  const [alone] = await Promise.all([worker.win(suspect), worker.win(beside)]); // one claim, and beside waits for its turn
  expect(await worker.claims.markAlone(alone)).toBe(true);
  await lapse(worker);
  for (const [id, lostAlone] of [
    [suspect, 2],
    [beside, 2],
  ] as const) {
    await eventually(async () => expect((await readTask(db, id)).state).toBe('pending'));
    expect(await readTask(db, id)).toMatchObject({ lost_attempts: 10, lost_alone: lostAlone });
  }
  expect(await rows(db, `select error_message from attempts where task_id = $1`, suspect)).toEqual([
    { error_message: expect.stringContaining('while nothing else ran in it') },
  ]);
});

test('a claim that is gone, or whose lease is, starts nothing alone', async () => {
  const worker = await openWorker(db);
  const [settled, lost] = [await addTask(db), await addTask(db)];
  const first = await worker.win(settled);
  await worker.settles.succeed(first, undefined);
  expect(await worker.claims.markAlone(first)).toBe(false);
  const second = await worker.win(lost);
  await run(db, closeLease, worker.workerId);
  expect(await worker.claims.markAlone(second)).toBe(false);
});

test('a task whose cancelling was asked for ends when its worker is lost', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { lostAttempts: 4, lostAlone: 2 });
  await worker.claims.markAlone(await worker.win(taskId));
  expect((await cancelTask(db, taskId, { actor, reason: undefined })).kind).toBe('requested');
  await lapse(worker);
  await eventually(async () => expect((await readTask(db, taskId)).state).toBe('cancelled'));
  expect(await count(db, 'cancel_requests', `task_id = '${taskId}'`)).toBe(0);
  expect(await count(db, 'dead_letters', `task_id = '${taskId}'`)).toBe(0);
});

test('a reaped task with a deadline still expires at it', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { deadline: `clock_timestamp() + interval '1 h'` });
  await worker.win(taskId);
  await db.query({ text: 'delete from due where task_id = $1', values: [taskId] });
  await lapse(worker);
  await eventually(async () => expect(await count(db, 'due', `task_id = '${taskId}'`)).toBe(1));
});

test('a claim that was committed while its lease was taken away is found in a later round', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  // The claim has seen the lease; its commit comes when the lease has gone and the reaper has been there.
  await inTransaction(db, async (tx) => {
    await tx.query({
      text: `with c as (update tasks set state = 'running', attempt = 1, claim_id = gen_random_uuid(), worker = $2::uuid,
                               started_at = clock_timestamp() where id = $1::uuid returning id, claim_id, worker)
             insert into claims select claim_id, worker, clock_timestamp(), array[id] from c`,
      values: [taskId, worker.workerId],
    });
    await lapse(worker);
    await reaper.rounds();
  });
  await eventually(async () => expect((await readTask(db, taskId)).state).toBe('pending'));
});

test('a worker that gives its lease up leaves nothing behind', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  await worker.win(taskId);
  await run(db, closeLease, worker.workerId);
  await eventually(async () => expect((await readTask(db, taskId)).state).toBe('pending'));
});

test('a living worker keeps what it runs', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  await worker.win(taskId);
  await addLease(db, { renewedAt: `clock_timestamp() - interval '1 h'` });
  await eventually(async () => expect(await count(db, 'leases', `renewed_at < now() - interval '30 min'`)).toBe(0));
  await reaper.rounds();
  expect((await readTask(db, taskId)).state).toBe('running');
});

test('a cancel that crosses the settle of a failed attempt is not lost', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  let settling: Promise<unknown> = Promise.resolve();
  await inTransaction(db, async (tx) => {
    await run(tx, cancelTasks, [taskId], actor.name, actor.role, '{}', null);
    // Begins before the request is committed, waits for its lock, and cannot see it.
    settling = worker.settles.settle(claim, aVerdict());
    await eventually(async () =>
      expect(await count(db, 'pg_stat_activity', `datname = current_database() and wait_event_type = 'Lock'`)).toBe(1),
    );
  });
  await settling;
  await eventually(async () => expect((await readTask(db, taskId)).state).toBe('cancelled'));
  expect(await readTask(db, taskId)).toMatchObject({ run_at: null, generation: 2 });
  expect(await count(db, 'cancel_requests', `task_id = '${taskId}'`)).toBe(0);
  expect(await count(db, 'due', `task_id = '${taskId}'`)).toBe(0);
});

test('requests to cancel what has ended are forgotten', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  await cancelTask(db, taskId, { actor, reason: undefined });
  await worker.settles.succeed(claim, undefined);
  await eventually(async () => expect(await count(db, 'cancel_requests', `task_id = '${taskId}'`)).toBe(0));
  expect((await readTask(db, taskId)).state).toBe('succeeded');
});
