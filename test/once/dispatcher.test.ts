/** What is due becomes an invitation; what waits past its deadline expires. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createDispatcher } from '../../services/producer/dispatcher.ts';
import { dispatchDue } from '../../services/producer/dispatcher.sql.ts';
import type { Loop } from '../../shared/lifecycle/loop.ts';
import { run } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { systemClock } from '../../shared/time/clock.ts';
import {
  aHandBack,
  aVerdict,
  addTask,
  addTasks,
  count,
  deadlocks,
  openWorker,
  partDeps,
  readTask,
  rows,
} from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

const PAST = `clock_timestamp() - interval '1 s'`;
const LATER = `clock_timestamp() + interval '1 h'`;

let opened: TestDatabase;
let db: TestDatabase['database'];
const invited: OutboxRow[] = [];
beforeAll(async () => {
  opened = await openDatabase({ max: 10 });
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

const dispatch = async (limit = 500): Promise<number> => (await run(db, dispatchDue, limit)).length;
const dueAt = async (id: string): Promise<Date | undefined> =>
  (await rows<{ at: Date }>(db, 'select at from due where task_id = $1', id))[0]?.at;

function aDispatcher(batchSize = 500): Loop {
  const invite = async (row: OutboxRow): Promise<boolean> => {
    invited.push(row);
    return await Promise.resolve(true);
  };
  return createDispatcher({ ...partDeps, db, invite }, { intervalMs: 5, batchSize });
}

test.each(['scheduled', 'retrying'] as const)(
  'a %s task that is due waits for a worker, and is invited',
  async (state) => {
    const taskId = await addTask(db, { state, runAt: PAST, invitedAt: 'null', generation: 3, priority: 6 });
    const dispatcher = aDispatcher();
    await dispatcher.start();
    await eventually(() =>
      expect(invited.flatMap(({ invitations }) => invitations)).toContainEqual({
        taskId,
        type: 'test.noop',
        queue: 'default',
        priority: 6,
        generation: 3,
      }),
    );
    await dispatcher.stop(systemClock.monotonicMs() + 2_000);
    const row = await readTask(db, taskId);
    expect(row).toMatchObject({ state: 'pending', run_at: null, generation: 3 });
    expect(row.invited_at).not.toBeNull();
    expect(await count(db, 'outbox', `'${taskId}' = any(task_ids)`)).toBe(1);
    expect(await dueAt(taskId)).toBeUndefined();
    expect(await partDeps.metrics.render()).toContain('warren_due_total{became="pending"}');
  },
);

test('what is due later is left alone', async () => {
  const taskId = await addTask(db, { state: 'scheduled', runAt: LATER });
  await dispatch();
  expect((await readTask(db, taskId)).state).toBe('scheduled');
  expect(await dueAt(taskId)).toBeDefined();
});

test('a task with a deadline is looked at again at its deadline', async () => {
  const taskId = await addTask(db, { state: 'scheduled', runAt: PAST, deadline: LATER });
  await dispatch();
  const { state, deadline } = await readTask(db, taskId);
  expect(state).toBe('pending');
  expect(await dueAt(taskId)).toEqual(deadline);
});

test.each([
  ['pending', {}],
  ['scheduled', { runAt: LATER }],
  ['retrying', { runAt: PAST }],
] as const)('a %s task past its deadline expires, and is not invited', async (state, times) => {
  const taskId = await addTask(db, { state, deadline: PAST, ...times });
  await dispatch();
  const row = await readTask(db, taskId);
  expect(row.state).toBe('expired');
  expect(row.finished_at).not.toBeNull();
  expect(await dueAt(taskId)).toBeUndefined();
  expect(await count(db, 'outbox', `'${taskId}' = any(task_ids)`)).toBe(0);
});

test('a running task past its deadline runs on, and dies with its next failure', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { deadline: LATER });
  const claim = await worker.win(taskId);
  await db.query({ text: `update tasks set deadline = ${PAST} where id = $1`, values: [taskId] });
  await db.query({ text: `update due set at = ${PAST} where task_id = $1`, values: [taskId] });
  await dispatch();
  expect((await readTask(db, taskId)).state).toBe('running');
  expect(await dueAt(taskId)).toBeUndefined();
  expect(await worker.settles.settle(claim, aVerdict())).toBe('dead');
});

test('a running task that is handed back past its deadline expires', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db, { deadline: LATER });
  const claim = await worker.win(taskId);
  await db.query({ text: `update tasks set deadline = ${PAST} where id = $1`, values: [taskId] });
  await worker.settles.settle(claim, aHandBack());
  await dispatch();
  expect((await readTask(db, taskId)).state).toBe('expired');
});

test('rows of tasks that ended, or that are not there, go', async () => {
  const [ended] = await addTasks(db, 1);
  const worker = await openWorker(db);
  await worker.settles.succeed(await worker.win(String(ended)), undefined);
  const missing = '019e0000-0000-7000-8000-000000000000';
  await db.query({
    text: `insert into due (task_id, at) select id, ${PAST} from unnest($1::uuid[]) id`,
    values: [`{${String(ended)},${missing}}`],
  });
  await dispatch();
  expect(await dueAt(String(ended))).toBeUndefined();
  expect(await dueAt(missing)).toBeUndefined();
  expect((await readTask(db, String(ended))).state).toBe('succeeded');
});

test('a row that names an earlier instant than its task is put right', async () => {
  const taskId = await addTask(db, {
    state: 'scheduled',
    runAt: LATER,
    deadline: `clock_timestamp() + interval '2 h'`,
  });
  await db.query({ text: `update due set at = ${PAST} where task_id = $1`, values: [taskId] });
  await dispatch();
  const { state, run_at: runAt } = await readTask(db, taskId);
  expect(state).toBe('scheduled');
  expect(await dueAt(taskId)).toEqual(runAt);
});

test('what another holds is skipped, stays due, and holds up nobody', async () => {
  const [heldRow, heldTask, free] = [
    await addTask(db, { state: 'scheduled', runAt: PAST }),
    await addTask(db, { state: 'retrying', runAt: PAST }),
    await addTask(db, { state: 'scheduled', runAt: PAST }),
  ];
  await inTransaction(db, async (tx) => {
    await tx.query({ text: 'select from due where task_id = $1 for update', values: [heldRow] });
    await tx.query({ text: 'select from tasks where id = $1 for no key update', values: [heldTask] });
    await dispatch();
    expect((await readTask(db, free)).state).toBe('pending');
    for (const id of [heldRow, heldTask]) expect(await dueAt(id)).toBeDefined();
  });
  await dispatch();
  for (const id of [heldRow, heldTask]) expect((await readTask(db, id)).state).toBe('pending');
});

test('replicas share what is due: each task is invited once', async () => {
  const ids = await Promise.all(
    Array.from({ length: 60 }, async () => await addTask(db, { state: 'scheduled', runAt: PAST })),
  );
  const before = await count(db, 'outbox, unnest(task_ids) u (id)', 'true');
  const dispatchers = [aDispatcher(7), aDispatcher(7), aDispatcher(7)];
  for (const dispatcher of dispatchers) await dispatcher.start();
  await eventually(async () => expect(await count(db, 'due', `at <= now()`)).toBe(0));
  for (const dispatcher of dispatchers) await dispatcher.stop(systemClock.monotonicMs() + 2_000);
  expect(await count(db, 'outbox, unnest(task_ids) u (id)', 'true')).toBe(before + 60);
  expect(await count(db, 'tasks', `id = any('{${ids.join(',')}}') and state = 'pending'`)).toBe(60);
});

test('dispatching does not deadlock with settles that make the same tasks wait again', async () => {
  const before = await deadlocks(db);
  const dispatchers = [aDispatcher(20), aDispatcher(20)];
  for (const dispatcher of dispatchers) await dispatcher.start();
  const worker = await openWorker(db, { maxBatch: 40 });
  const ids = await addTasks(db, 80);
  for (let attempt = 0; attempt < 4; attempt += 1) {
    await eventually(async () =>
      expect(await count(db, 'tasks', `id = any('{${ids.join(',')}}') and state = 'pending'`)).toBe(80),
    );
    const claims = await Promise.all(ids.map(async (id) => await worker.win(id)));
    await Promise.all(claims.map(async (claim) => await worker.settles.settle(claim, aVerdict({ delayMs: 0 }))));
  }
  for (const dispatcher of dispatchers) await dispatcher.stop(systemClock.monotonicMs() + 2_000);
  expect(await count(db, 'attempts', `worker = '${worker.workerId}'`)).toBe(320);
  expect(await deadlocks(db)).toBe(before);
});
