/** Claims that Postgres holds for a worker and that nobody runs. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Unstarted } from '../../services/worker/unstarted.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { addTask, addTasks, count, openFaulty, openWorker, partDeps, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
const invited: OutboxRow[] = [];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

const open = (over = db): Unstarted =>
  new Unstarted(
    {
      ...partDeps,
      db: over,
      invite: async (row) => {
        invited.push(row);
        return await Promise.resolve(true);
      },
    },
    { maxBatch: 100 },
  );

test('invariant 1: what a stray claim holds is handed back, invited, and costs no budget', async () => {
  const worker = await openWorker(db);
  const [done, stray] = await addTasks(db, 2);
  const [first, second] = await Promise.all([worker.win(String(done)), worker.win(String(stray))]);
  await worker.settles.succeed(first, undefined);
  await open().handBack(worker.workerId, [first.claimId]);
  expect(await readTask(db, String(done))).toMatchObject({ state: 'succeeded' });
  expect(await readTask(db, String(stray))).toMatchObject({
    state: 'pending',
    attempt: 1,
    failures: 0,
    lost_attempts: 0,
  });
  expect(await rows(db, 'select outcome from attempts where task_id = $1', stray)).toEqual([
    { outcome: 'interrupted' },
  ]);
  expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(0);
  expect(invited.at(-1)?.invitations.map(({ taskId }) => taskId)).toEqual([stray]);
  expect(await worker.settles.succeed(second, undefined)).not.toBe('succeeded');
});

test('a worker hands back no claim of another', async () => {
  const [owner, other] = [await openWorker(db), await openWorker(db)];
  const claim = await owner.win(await addTask(db));
  await open().handBack(other.workerId, [claim.claimId]);
  expect((await readTask(db, claim.taskId)).state).toBe('running');
});

test('a hand-back that meets an outage leaves all as it is, for the next renewal', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(db);
  const claim = await worker.win(await addTask(db));
  faulty.fault = () => 'refuse';
  await open(faulty).handBack(worker.workerId, [claim.claimId]);
  expect((await readTask(db, claim.taskId)).state).toBe('running');
});

test('a task that was not started is invited anew where it still waits, and not where it does not', async () => {
  const worker = await openWorker(db);
  const [waits, runs] = [await addTask(db, { generation: 2 }), await addTask(db)];
  await worker.win(runs);
  const before = await count(db, 'outbox');
  expect(await open().inviteAgain({ taskId: waits, generation: 2 })).toBe(true);
  expect(invited.at(-1)?.invitations).toMatchObject([{ taskId: waits, generation: 2 }]);
  expect(await open().inviteAgain({ taskId: runs, generation: 1 })).toBe(true);
  expect(await open().inviteAgain({ taskId: waits, generation: 1 })).toBe(true);
  expect(await count(db, 'outbox')).toBe(before + 1);
});
