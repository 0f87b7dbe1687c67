/** Failures and deaths of workers in turn: each is counted for what it is. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { dispatchDue } from '../../services/producer/dispatcher.sql.ts';
import { reapOrphans } from '../../services/producer/reaper.sql.ts';
import { judge } from '../../services/worker/verdict.ts';
import { run } from '../../shared/postgres/statement.ts';
import { DEFAULT_RETRY } from '../../shared/tasks/retry-policy.ts';
import { addTask, count, openWorker, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

const MAX_ATTEMPTS = 3;

async function failOnce(taskId: string): Promise<string> {
  const worker = await openWorker(db);
  const claim = await worker.win(taskId);
  const error = { type: 'Error', message: 'no', causes: [] };
  const outcome = { kind: 'failed', reason: 'error', retryable: true, error } as const;
  const verdict = judge(outcome, { ...claim, policy: DEFAULT_RETRY }, () => 0.5);
  const settled = await worker.settles.settle(claim, verdict);
  await db.query({
    text: `update tasks set run_at = now() - interval '1 s' where id = $1 and state = 'retrying'`,
    values: [taskId],
  });
  await db.query({ text: `update due set at = now() - interval '1 s' where task_id = $1`, values: [taskId] });
  await run(db, dispatchDue, 100);
  return settled;
}

async function loseOnce(taskId: string): Promise<string> {
  const worker = await openWorker(db);
  await worker.win(taskId);
  await db.query({ text: 'delete from leases where worker = $1', values: [worker.workerId] });
  await run(db, reapOrphans, 100, 3);
  return (await readTask(db, taskId)).state;
}

test('a task whose worker dies between its failures keeps its budget, and its attempt numbers only rise', async () => {
  const taskId = await addTask(db, { maxAttempts: MAX_ATTEMPTS });
  const became = [
    await failOnce(taskId),
    await loseOnce(taskId),
    await failOnce(taskId),
    await loseOnce(taskId),
    await failOnce(taskId),
  ];
  expect(became).toEqual(['retrying', 'pending', 'retrying', 'pending', 'dead']);
  expect(await readTask(db, taskId)).toMatchObject({
    attempt: 5,
    failures: MAX_ATTEMPTS,
    lost_attempts: 2,
    lost_alone: 0,
  });
  const history = await rows<{ attempt: number; outcome: string }>(
    db,
    'select attempt, outcome from attempts where task_id = $1 order by attempt',
    taskId,
  );
  expect(history.map(({ attempt, outcome }) => `${attempt} ${outcome}`)).toEqual([
    '1 failed',
    '2 lost',
    '3 failed',
    '4 lost',
    '5 failed',
  ]);
  expect(await count(db, 'dead_letters', `task_id = '${taskId}' and reason = 'attempts_exhausted'`)).toBe(1);
});
