/** Many claims at once. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ClaimAnswer } from '../../services/worker/claims.ts';
import { addTasks, count, deadlocks, openWorker, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase({ max: 8 });
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

const claimAll = async (worker: TestWorker, ids: readonly string[]): Promise<ClaimAnswer[]> =>
  await Promise.all(ids.map(async (taskId) => await worker.claims.claim({ taskId, generation: 1 })));

test('workers that claim the same tasks in opposite orders win each once, without a deadlock', async () => {
  const before = await deadlocks(db);
  const ids = await addTasks(db, 400);
  const one = await openWorker(db, { maxBatch: 50 });
  const other = await openWorker(db, { maxBatch: 50 });
  const answers = await Promise.all([claimAll(one, ids), claimAll(other, ids.toReversed())]);
  const won = answers.flat().filter(({ kind }) => kind === 'won');
  expect(won).toHaveLength(400);
  expect(await count(db, 'tasks', `state = 'running' and attempt = 1`)).toBe(400);
  // What the claims say they hold is what the tasks say who holds them.
  const held = await rows<{ n: number }>(
    db,
    `select count(*)::int4 as n from claims c, unnest(c.task_ids) u (id) join tasks t on t.id = u.id where t.claim_id = c.id`,
  );
  expect(held[0]?.n).toBe(400);
  expect(await deadlocks(db)).toBe(before);
});

test('claims and settles of many batches leave no claim behind', async () => {
  const worker = await openWorker(db, { maxBatch: 20 });
  const ids = await addTasks(db, 300);
  await Promise.all(ids.map(async (id) => await worker.settles.succeed(await worker.win(id), undefined)));
  await worker.settles.forgetFinished();
  expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(0);
  expect(await count(db, 'tasks', `worker = '${worker.workerId}' and state = 'succeeded'`)).toBe(300);
});
