/** The fence: who lost its claim cannot settle, and who settled is not told that it lost. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Claim } from '../../services/worker/claims.ts';
import {
  aDeath,
  aHandBack,
  aVerdict,
  addTask,
  count,
  once,
  openFaulty,
  openWorker,
  readTask,
} from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

test('invariant 2: a settle with another claim or another attempt wins nothing', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  for (const wrong of [
    { ...claim, claimId: randomUUID() },
    { ...claim, attempt: 2 },
    { ...claim, attempt: 0 },
  ]) {
    expect(await worker.settles.succeed(wrong, undefined)).toBe('fenced');
    for (const verdict of [aVerdict(), aDeath(), aHandBack()]) {
      expect(await worker.settles.settle(wrong, verdict)).toBe('fenced');
    }
  }
  expect(await readTask(db, taskId)).toMatchObject({ state: 'running', attempt: 1 });
  expect(await count(db, 'attempts', `task_id = '${taskId}'`)).toBe(0);
  expect(await count(db, 'dead_letters', `task_id = '${taskId}'`)).toBe(0);
});

test('invariant 2: in one batch a wrong claim is not taken for the right one', async () => {
  const worker = await openWorker(db);
  const claims: Claim[] = [await worker.win(await addTask(db)), await worker.win(await addTask(db))];
  const [succeeds, fails] = claims as [Claim, Claim];
  const forged = (claim: Claim): Claim => ({ ...claim, claimId: randomUUID() });
  expect(
    await Promise.all([
      worker.settles.succeed(forged(succeeds), undefined),
      worker.settles.succeed(succeeds, undefined),
      worker.settles.settle(forged(fails), aDeath()),
      worker.settles.settle(fails, aDeath()),
    ]),
  ).toEqual(['fenced', 'succeeded', 'fenced', 'dead']);
});

test('invariant 2: of two attempts of one task that meet in a batch, the current one settles', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  const first = await worker.win(taskId);
  await worker.settles.settle(first, aHandBack());
  const second = await worker.win(taskId);
  expect(
    await Promise.all([
      worker.settles.succeed(first, Buffer.from('1')),
      worker.settles.succeed(second, Buffer.from('2')),
    ]),
  ).toEqual(['fenced', 'succeeded']);
  expect((await readTask(db, taskId)).result?.toString()).toBe('2');

  const another = await addTask(db);
  const early = await worker.win(another);
  await worker.settles.settle(early, aHandBack());
  const late = await worker.win(another);
  expect(await Promise.all([worker.settles.settle(early, aDeath()), worker.settles.settle(late, aVerdict())])).toEqual([
    'fenced',
    'retrying',
  ]);
  expect(await count(db, 'dead_letters', `task_id = '${another}'`)).toBe(0);
});

test('invariant 2: a settled task cannot be settled again in another way', async () => {
  const worker = await openWorker(db);
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  expect(await worker.settles.succeed(claim, Buffer.from('1'))).toBe('succeeded');
  expect(await worker.settles.settle(claim, aDeath())).toBe('succeeded'); // told how it stands
  expect(await count(db, 'dead_letters', `task_id = '${taskId}'`)).toBe(0);
  expect((await readTask(db, taskId)).result?.toString()).toBe('1');
});

test('a success whose answer got lost is told as what it is', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(faulty);
  const taskId = await addTask(db);
  const claim = await worker.win(taskId);
  faulty.fault = once('settle_succeeded', 'lose');
  expect(await worker.settles.succeed(claim, Buffer.from('1'))).toBe('succeeded');
  expect(faulty.sent.filter((name) => name === 'settle_succeeded')).toHaveLength(2);
  expect(await count(db, 'claims', `worker = '${worker.workerId}'`)).toBe(0);
});

test.each([
  ['dead', aDeath(), 1],
  ['retrying', aVerdict(), 0],
  ['pending', aHandBack(), 0],
] as const)(
  'invariant 4: settling as %s twice, since the answer got lost, writes it once',
  async (state, verdict, letters) => {
    await using faulty = await openFaulty(db);
    const worker = await openWorker(faulty);
    const taskId = await addTask(db);
    const claim = await worker.win(taskId);
    faulty.fault = once('settle_others', 'lose');
    expect(await worker.settles.settle(claim, verdict)).toBe(state);
    expect(await count(db, 'attempts', `task_id = '${taskId}'`)).toBe(1);
    expect(await count(db, 'dead_letters', `task_id = '${taskId}'`)).toBe(letters);
    expect(await count(db, 'outbox', `'${taskId}' = any(task_ids)`)).toBe(Number(state === 'pending'));
    expect((await readTask(db, taskId)).failures).toBe(verdict.failures);
  },
);

test('a read that fails after a settle that won nothing is asked again', async () => {
  await using faulty = await openFaulty(db);
  const worker = await openWorker(faulty);
  const claim = await worker.win(await addTask(db));
  faulty.fault = (name) =>
    faulty.sent.filter((sent) => sent === name).length === 0 && name !== '' ? 'lose' : undefined;
  expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
  expect(faulty.sent.filter((name) => name === 'read_settled')).toHaveLength(2);
});
