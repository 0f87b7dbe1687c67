/** One outcome that Postgres refuses does not hold up the others. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { aVerdict, addTask, addTasks, count, openWorker, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

/** What no sanitising let through. */
const unstorable = aVerdict({ error: { type: 'Error', message: 'a\0b', causes: [] } });

test.each([0, 1, 4, 6])('of seven outcomes in one batch only the bad one, number %s, dies', async (bad) => {
  const worker = await openWorker(db);
  const ids = await addTasks(db, 7);
  const claims = await Promise.all(ids.map(async (id) => await worker.win(id)));
  const settled = await Promise.all(
    claims.map(async (claim, index) => await worker.settles.settle(claim, index === bad ? unstorable : aVerdict())),
  );
  expect(settled).toEqual(ids.map((_id, index) => (index === bad ? 'dead' : 'retrying')));
  const guilty = String(ids[bad]);
  expect((await readTask(db, guilty)).state).toBe('dead');
  expect(await rows(db, 'select reason, error_code from dead_letters where task_id = $1', guilty)).toEqual([
    { reason: 'result_unstorable', error_code: 'result-unstorable' },
  ]);
  expect(await count(db, 'attempts', `worker = '${worker.workerId}'`)).toBe(7);
  await worker.settles.forgetFinished();
  expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(0);
  expect(worker.book.has(String(claims[0]?.claimId))).toBe(false);
});

test('where all of a batch is bad, all of it dies', async () => {
  const worker = await openWorker(db);
  const claims = await Promise.all((await addTasks(db, 3)).map(async (id) => await worker.win(id)));
  expect(await Promise.all(claims.map(async (claim) => await worker.settles.settle(claim, unstorable)))).toEqual([
    'dead',
    'dead',
    'dead',
  ]);
  await worker.settles.forgetFinished();
  expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(0);
});

test('a bad outcome of an attempt that lost its claim kills nothing', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  expect(await worker.settles.settle({ ...claim, attempt: 7 }, unstorable)).toBe('fenced');
  expect((await readTask(db, taskId)).state).toBe('running');
});

test('a delay that Postgres cannot add is an outcome that it refuses', async () => {
  const worker = await openWorker(db);
  const claim = await worker.win(await addTask(db));
  expect(await worker.settles.settle(claim, aVerdict({ delayMs: 1e300 }))).toBe('dead');
});
