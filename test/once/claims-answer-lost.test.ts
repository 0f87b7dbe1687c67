/** A claim whose answer gets lost on its way may have been committed. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { claimTasks } from '../../services/worker/claims.sql.ts';
import { run } from '../../shared/postgres/statement.ts';
import { addTask, count, once, openFaulty, openWorker, readTask } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

test('invariant 1: a claim that was committed and not answered is won at the next try, as the same attempt', async () => {
  await using faulty = await openFaulty(db);
  faulty.fault = once('claim_tasks', 'lose');
  const worker = await openWorker(faulty);
  const ids = [await addTask(db), await addTask(db)];
  const won = await Promise.all(ids.map(async (id) => await worker.win(id)));
  expect(won.map(({ attempt }) => attempt)).toEqual([1, 1]);
  for (const id of ids) expect(await readTask(db, id)).toMatchObject({ state: 'running', attempt: 1 });
  expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(1);
  for (const claim of won) expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
  expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(0);
});

test('a claim that never arrived is won at the next try', async () => {
  await using faulty = await openFaulty(db);
  faulty.fault = once('claim_tasks', 'refuse');
  const worker = await openWorker(faulty);
  expect((await worker.win(await addTask(db))).attempt).toBe(1);
});

test('invariant 1: a first try that commits while the second is under way strands nothing', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(faulty);
  const [late, prompt] = [await addTask(db), await addTask(db)];
  // The first try is held up on its way to Postgres, and done only when the second is asked.
  let tries = 0;
  faulty.fault = once('claim_tasks', 'refuse');
  faulty.before = async ({ name, values }) => {
    if (name !== 'claim_tasks') return;
    tries += 1;
    if (tries === 2) await run(db, claimTasks, [late], [1], worker.workerId, String(values?.[3]));
  };
  const won = await Promise.all([worker.win(late), worker.win(prompt)]);
  expect(won.map(({ attempt }) => attempt)).toEqual([1, 1]);
});

test('a worker that stops while Postgres does not answer gives its claims up', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(faulty);
  faulty.fault = (name) => (name === 'claim_tasks' ? 'refuse' : undefined);
  const asked = worker.claims.claim({ taskId: await addTask(db), generation: 1 });
  worker.claims.giveUp();
  await expect(asked).rejects.toMatchObject({ code: 'attempt-interrupted' });
});
