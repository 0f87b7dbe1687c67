/** Who may run a task: claims. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { addLease, addTask, count, openWorker, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

test('a claim starts the next attempt of a waiting task and says so in its row', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { attempt: 4 });
  const claim = await worker.win(taskId);
  expect(claim).toMatchObject({ taskId, attempt: 5, failures: 0, maxAttempts: 3 });
  expect(claim.input.toString()).toBe('{}');
  expect(claim.waitMs).toBeGreaterThanOrEqual(0);
  const row = await readTask(db, taskId);
  expect(row).toMatchObject({ state: 'running', attempt: 5, claim_id: claim.claimId, worker: worker.workerId });
  expect(row.started_at).not.toBeNull();
  expect(await rows(db, 'select worker, task_ids from claims where id = $1', claim.claimId)).toEqual([
    { worker: worker.workerId, task_ids: [taskId] },
  ]);
});

test('a second delivery of a claimed task wins nothing', async () => {
  const worker = await openWorker(db);
  const other = await openWorker(db);
  const taskId = await addTask(db);
  await worker.win(taskId);
  expect(await other.claims.claim({ taskId, generation: 1 })).toEqual({ kind: 'lost' });
  expect((await readTask(db, taskId)).attempt).toBe(1);
});

test('of two deliveries of one task in one batch one wins', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  const answers = await Promise.all([1, 2, 3].map(async () => await worker.claims.claim({ taskId, generation: 1 })));
  expect(answers.map(({ kind }) => kind).toSorted()).toEqual(['lost', 'lost', 'won']);
  expect((await readTask(db, taskId)).attempt).toBe(1);
});

test('an invitation of an earlier generation wins nothing', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { generation: 2 });
  expect(await worker.claims.claim({ taskId, generation: 1 })).toEqual({ kind: 'lost' });
  expect((await readTask(db, taskId)).state).toBe('pending');
});

test('invariant 1: a stale invitation in the same batch does not take the place of the current one', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { generation: 2 });
  const answers = await Promise.all(
    [1, 2, 1].map(async (generation) => await worker.claims.claim({ taskId, generation })),
  );
  expect(answers.map(({ kind }) => kind)).toEqual(['lost', 'won', 'lost']);
});

test('a task past its deadline cannot be claimed', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { deadline: `clock_timestamp() - interval '1 ms'` });
  expect(await worker.claims.claim({ taskId, generation: 1 })).toEqual({ kind: 'lost' });
  expect((await readTask(db, taskId)).state).toBe('pending');
});

test('what is not pending or not there cannot be claimed', async () => {
  const worker = await openWorker(db);
  const scheduled = await addTask(db, { state: 'scheduled', runAt: `clock_timestamp() + interval '1 h'` });
  const missing = '019e0000-0000-7000-8000-000000000000';
  for (const taskId of [scheduled, missing]) {
    expect(await worker.claims.claim({ taskId, generation: 1 })).toEqual({ kind: 'lost' });
  }
});

test('the row of a claim goes with the settle of its last task', async () => {
  const worker = await openWorker(db);
  const ids = [await addTask(db), await addTask(db), await addTask(db)];
  const won = await Promise.all(ids.map(async (id) => await worker.win(id)));
  const claimIds = [...new Set(won.map(({ claimId }) => claimId))];
  expect(claimIds).toHaveLength(1);
  const here = `id = '${String(claimIds[0])}'`;
  const [first, second, third] = won;
  if (first === undefined || second === undefined || third === undefined) throw new RangeError('three were claimed');
  await worker.settles.succeed(first, undefined);
  await worker.settles.succeed(second, undefined);
  expect(await count(db, 'claims', here)).toBe(1);
  await worker.settles.succeed(third, undefined);
  expect(await count(db, 'claims', here)).toBe(0);
});

test('a claim without a lease is no lost claim: it waits for a lease and then wins', async () => {
  const worker = await openWorker(db, { worker: '019e0000-0000-4000-8000-000000000001' });
  const taskId = await addTask(db);
  const asked = worker.claims.claim({ taskId, generation: 1 });
  expect((await readTask(db, taskId)).state).toBe('pending');
  worker.workerId = await addLease(db);
  const answer = await asked;
  expect(answer.kind).toBe('won');
  expect(await readTask(db, taskId)).toMatchObject({ state: 'running', attempt: 1, worker: worker.workerId });
});

test('a worker that stops without a lease gives its claims up', async () => {
  const worker = await openWorker(db, { worker: '019e0000-0000-4000-8000-000000000002' });
  const asked = worker.claims.claim({ taskId: await addTask(db), generation: 1 });
  worker.claims.giveUp();
  await expect(asked).rejects.toMatchObject({ code: 'attempt-interrupted' });
});
