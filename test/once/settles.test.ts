/** How attempts end: settles. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { aDeath, aHandBack, aVerdict, addTask, count, openWorker, readTask, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
let worker: TestWorker;
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  worker = await openWorker(db);
});
afterAll(async () => await opened[Symbol.asyncDispose]());

interface AttemptRow {
  readonly attempt: number;
  readonly worker: string;
  readonly outcome: string;
  readonly error_type: string | null;
  readonly error_message: string | null;
  readonly code_version: string;
}

const history = async (id: string): Promise<AttemptRow[]> =>
  await rows(db, 'select * from attempts where task_id = $1 order by attempt', id);
const letters = async (id: string): Promise<Record<string, unknown>[]> =>
  await rows(db, 'select * from dead_letters where task_id = $1', id);
const dueInMs = async (id: string): Promise<number | undefined> =>
  (
    await rows<{ ms: number }>(
      db,
      'select (extract(epoch from at - clock_timestamp()) * 1000)::float8 as ms from due where task_id = $1',
      id,
    )
  )[0]?.ms;

test('a success ends the task with its result, and leaves no history', async () => {
  const taskId = await addTask(db);
  const result = Buffer.from('{"sum":9007199254740993}');
  expect(await worker.settles.succeed(await worker.win(taskId), result)).toBe('succeeded');
  const row = await readTask(db, taskId);
  expect(row).toMatchObject({ state: 'succeeded', attempt: 1, failures: 0 });
  expect(row.result?.equals(result)).toBe(true);
  expect(row.finished_at).not.toBeNull();
  expect(await history(taskId)).toEqual([]);
});

test('a success without a result stores none', async () => {
  const taskId = await addTask(db);
  await worker.settles.succeed(await worker.win(taskId), undefined);
  expect((await readTask(db, taskId)).result).toBeNull();
});

test('a failure waits for its backoff and is kept in the history', async () => {
  const taskId = await addTask(db);
  const error = { type: 'TypeError', code: 'E1', message: 'no "x"', stack: 'at y', causes: [] };
  const settled = await worker.settles.settle(await worker.win(taskId), aVerdict({ delayMs: 30_000, error }));
  expect(settled).toBe('retrying');
  const row = await readTask(db, taskId);
  expect(row).toMatchObject({ state: 'retrying', failures: 1, attempt: 1, finished_at: null });
  expect(await dueInMs(taskId)).toBeGreaterThan(25_000);
  expect(await dueInMs(taskId)).toBeLessThanOrEqual(30_000);
  expect(await history(taskId)).toMatchObject([
    {
      attempt: 1,
      worker: worker.workerId,
      outcome: 'failed',
      error_type: 'TypeError',
      error_code: 'E1',
      error_message: 'no "x"',
      error_stack: 'at y',
      code_version: 'test',
    },
  ]);
  expect(await letters(taskId)).toEqual([]);
});

test('what waits for a retry is due at its deadline, where that comes first', async () => {
  const taskId = await addTask(db, { deadline: `clock_timestamp() + interval '10 s'` });
  await worker.settles.settle(await worker.win(taskId), aVerdict({ delayMs: 60_000 }));
  expect(await dueInMs(taskId)).toBeLessThanOrEqual(10_000);
});

test('invariant 4: a death leaves exactly one dead letter, written with it', async () => {
  const taskId = await addTask(db, { type: 'test.dies' });
  expect(await worker.settles.settle(await worker.win(taskId), aDeath())).toBe('dead');
  expect(await readTask(db, taskId)).toMatchObject({ state: 'dead', failures: 1, run_at: null });
  expect(await letters(taskId)).toMatchObject([
    {
      kind: 'task',
      state: 'open',
      reason: 'non_retryable',
      type: 'test.dies',
      queue: 'default',
      attempt: 1,
      error_message: 'did not work',
      recorded_at: null,
    },
  ]);
  expect(await history(taskId)).toMatchObject([{ attempt: 1, outcome: 'failed' }]);
  expect(await dueInMs(taskId)).toBeUndefined();
});

test('invariant 4: a failure past the deadline is a death, and its letter says so', async () => {
  const taskId = await addTask(db, { deadline: `clock_timestamp() + interval '1 h'` });
  const claim = await worker.win(taskId);
  await db.query({ text: `update tasks set deadline = clock_timestamp() where id = $1`, values: [taskId] });
  const settled = await worker.settles.settle(claim, aVerdict({ reason: 'deadline_passed' }));
  expect(settled).toBe('dead');
  expect(await readTask(db, taskId)).toMatchObject({ state: 'dead', run_at: null });
  expect(await letters(taskId)).toMatchObject([{ reason: 'deadline_passed', attempt: 1 }]);
});

test('invariant 2: a success past the deadline is a success', async () => {
  const taskId = await addTask(db, { deadline: `clock_timestamp() + interval '1 h'` });
  const claim = await worker.win(taskId);
  await db.query({ text: `update tasks set deadline = clock_timestamp() where id = $1`, values: [taskId] });
  expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
});

test('a deferred attempt waits and costs nothing of the budget', async () => {
  const taskId = await addTask(db);
  const verdict = aVerdict({ state: 'scheduled', failures: 0, outcome: 'deferred', delayMs: 5_000, error: undefined });
  expect(await worker.settles.settle(await worker.win(taskId), verdict)).toBe('scheduled');
  expect(await readTask(db, taskId)).toMatchObject({ state: 'scheduled', failures: 0, attempt: 1 });
  expect(await dueInMs(taskId)).toBeGreaterThan(3_000);
  expect(await history(taskId)).toMatchObject([{ outcome: 'deferred', error_type: null }]);
});

test('invariant 3: a handed-back attempt is invited anew in the same statement', async () => {
  const taskId = await addTask(db, { priority: 7, generation: 3 });
  expect(await worker.settles.settle(await worker.win(taskId, 3), aHandBack())).toBe('pending');
  expect(await readTask(db, taskId)).toMatchObject({ state: 'pending', failures: 0, attempt: 1, run_at: null });
  const invited = await rows<{ id: string }>(db, 'select * from outbox where $1 = any(task_ids)', taskId);
  expect(invited).toMatchObject([{ task_ids: [taskId], queues: ['default'], priorities: [7], generations: [3] }]);
  expect(worker.invited).toContainEqual({
    id: invited[0]?.id,
    invitations: [{ taskId, type: 'test.noop', queue: 'default', priority: 7, generation: 3 }],
  });
  expect(await history(taskId)).toMatchObject([{ outcome: 'interrupted' }]);
  expect((await worker.win(taskId, 3)).attempt).toBe(2);
});

test('a handed-back task with a deadline still expires at it', async () => {
  const taskId = await addTask(db, { deadline: `clock_timestamp() + interval '1 h'` });
  const claim = await worker.win(taskId);
  await db.query({ text: 'delete from due where task_id = $1', values: [taskId] }); // as the dispatcher does while it runs
  await worker.settles.settle(claim, aHandBack());
  expect(await dueInMs(taskId)).toBeGreaterThan(3_000_000);
});

test('a cancelled attempt ends the task', async () => {
  const taskId = await addTask(db);
  const verdict = aVerdict({ state: 'cancelled', failures: 0, outcome: 'cancelled', error: undefined });
  expect(await worker.settles.settle(await worker.win(taskId), verdict)).toBe('cancelled');
  expect((await readTask(db, taskId)).finished_at).not.toBeNull();
  expect(await history(taskId)).toMatchObject([{ outcome: 'cancelled' }]);
});

test.each([
  ['a failure', aVerdict()],
  ['a deferral', aVerdict({ state: 'scheduled', failures: 0, outcome: 'deferred' })],
  ['a hand-back', aHandBack()],
])('after %s nothing waits again where cancelling was asked for', async (_name, verdict) => {
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  await db.query({ text: `insert into cancel_requests (task_id, requested_by) values ($1, 'anna')`, values: [taskId] });
  expect(await worker.settles.settle(claim, verdict)).toBe('cancelled');
  expect(await readTask(db, taskId)).toMatchObject({ state: 'cancelled', run_at: null });
  expect(await history(taskId)).toMatchObject([{ outcome: 'cancelled' }]);
  expect(await count(db, 'cancel_requests', `task_id = '${taskId}'`)).toBe(0);
  expect(await dueInMs(taskId)).toBeUndefined();
  expect(await count(db, 'outbox', `'${taskId}' = any(task_ids)`)).toBe(0);
});

test('a death is a death although cancelling was asked for', async () => {
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  await db.query({ text: `insert into cancel_requests (task_id, requested_by) values ($1, 'anna')`, values: [taskId] });
  expect(await worker.settles.settle(claim, aDeath())).toBe('dead');
  expect(await letters(taskId)).toHaveLength(1);
  expect(await count(db, 'cancel_requests', `task_id = '${taskId}'`)).toBe(0);
});
