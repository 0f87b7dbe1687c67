/** A rolling deployment: workers of the old and of the new version of the task types side by side. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { NewTask } from '../support/fleet.ts';

test('an old worker puts a new task type off, and a new one runs it without an attempt burned', async () => {
  await using fleet = await openFleet({ workers: 1, queues: 'default:1', tasks: ['old-version'] });
  const old = fleet.worker(0);
  const young = await fleet.start('worker', {}, ['new-version']).ready();
  await fleet.submit(...Array.from({ length: 20 }, () => ({ type: 'fault.invoice' })));
  await old.next('task type unknown here');
  await eventually(
    async () => {
      await fleet.makeDue();
      expect(await fleet.books()).toMatchObject({ accepted: 20, succeeded: 20 });
    },
    { withinMs: 15_000, everyMs: 200 },
  );

  expect(new Set(fleet.entries().map(({ pid }) => pid))).toEqual(new Set([young.pid]));
  expect((await fleet.tasks()).map(({ attempt }) => attempt)).toEqual(Array(20).fill(1));
  expect(await fleet.attempts()).toEqual([]);
});

test('a waiting task whose input a newer schema refuses becomes a dead letter, and its neighbours run', async () => {
  await using fleet = await openFleet({ workers: 1, tasks: ['old-version'] });
  const order = (size: unknown): NewTask => ({ type: 'fault.order', input: { size }, delayMs: 3_600_000 });
  const [refused = '', fits = ''] = await fleet.submit(order('large'), order(3));
  const young = await fleet.start('worker', {}, ['new-version']).ready();
  await fleet.worker(0).terminate();
  await fleet.makeDue();

  expect(await fleet.ended()).toMatchObject({ accepted: 2, succeeded: 1, dead: 1 });
  expect(await fleet.task(fits)).toMatchObject({ state: 'succeeded' });
  expect(await fleet.deadLetters()).toMatchObject([{ task_id: refused, reason: 'invalid_input', attempt: 1 }]);
  expect(fleet.entries().map(({ taskId }) => taskId)).toEqual([fits]);
  expect(young.exitCode).toBeUndefined();
});
