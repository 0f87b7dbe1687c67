/** Which of the deliveries that a worker holds it starts, and which it gives back. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { readTask } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { inviteTask, openIntake, succeeded } from '../support/intake.ts';
import type { Handler } from '../support/intake.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
beforeAll(async () => {
  work = await openWork();
});
afterAll(async () => await work[Symbol.asyncDispose]());

/** A handler that runs until it is let go. */
function held(): { readonly handler: Handler; readonly release: () => void } {
  const waiting: ((outcome: Outcome) => void)[] = [];
  let isOpen = false;
  return {
    handler: async () => (isOpen ? succeeded : await new Promise<Outcome>((resolve) => waiting.push(resolve))),
    release: () => {
      isOpen = true;
      for (const resolve of waiting.splice(0)) resolve(succeeded);
    },
  };
}

test('a free slot takes the highest priority that waits, and of one priority what came first', async () => {
  const { handler, release } = held();
  await using open = await openIntake(work, {
    handlers: { 'test.held': handler, 'test.noop': () => succeeded },
    concurrency: 1,
    prefetch: 50,
  });
  const blocker = await inviteTask(work, { type: 'test.held' });
  await eventually(() => expect(open.started).toEqual([blocker]));
  const low = [await inviteTask(work, { priority: 1 }), await inviteTask(work, { priority: 1 })];
  const usual = await inviteTask(work, { priority: 4 });
  const high = await inviteTask(work, { priority: 9 });
  await eventually(() => expect(open.intake.lines[0]?.waiting).toBe(4));
  release();
  await eventually(() => expect(open.started).toHaveLength(5));
  expect(open.started).toEqual([blocker, high, usual, ...low]);
});

test('two slots run two attempts at most, however many deliveries are held', async () => {
  const { handler, release } = held();
  const several: Handler = async (claim) => {
    const outcome = await handler(claim);
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    return outcome;
  };
  await using open = await openIntake(work, { handlers: { 'test.noop': several }, concurrency: 2, prefetch: 50 });
  const ids: string[] = [];
  for (let task = 0; task < 60; task += 1) ids.push(await inviteTask(work));
  await eventually(() => expect(open.intake.lines).toMatchObject([{ taken: 2, waiting: 48 }]));
  release();
  await eventually(() => expect(open.settled.size).toBe(60));
  expect(open.mostRunning()).toBe(2);
  expect(ids.every((id) => open.settled.get(id) === 'succeeded')).toBe(true);
});

test('a worker that is stuck gives back what waits, another starts it, and it takes part again once it is free', async () => {
  const { handler, release } = held();
  const handlers = { 'test.held': handler, 'test.noop': (): Outcome => succeeded };
  await using stuck = await openIntake(work, { handlers, concurrency: 1, prefetch: 10, localWaitMs: 100 });
  const blocker = await inviteTask(work, { type: 'test.held' });
  await eventually(() => expect(stuck.started).toEqual([blocker]));
  const ids = [await inviteTask(work), await inviteTask(work), await inviteTask(work)];
  await eventually(() => expect(stuck.intake.lines[0]?.waiting).toBe(0));
  await using other = await openIntake(work, { handlers });
  await eventually(() => expect(other.started.toSorted()).toEqual(ids.toSorted()));
  expect(stuck.intake.lines).toMatchObject([{ taken: 1, waiting: 0, isConsuming: true }]); // full is not unwell
  await other[Symbol.asyncDispose]();
  release();
  await eventually(() => expect(stuck.settled.get(blocker)).toBe('succeeded'));
  const late = await inviteTask(work);
  await eventually(() => expect(stuck.settled.get(late)).toBe('succeeded'));
});

test('while Postgres is away nothing is taken, and what waited goes back', async () => {
  await using open = await openIntake(work, { handlers: { 'test.noop': () => succeeded } });
  await eventually(() => expect(open.intake.lines).toMatchObject([{ isConsuming: true }]));
  open.canClaim = false;
  await eventually(() => expect(open.intake.lines).toMatchObject([{ isConsuming: false }]));
  const taskId = await inviteTask(work);
  await eventually(async () =>
    expect((await work.broker.raw.checkQueue(work.backbone.names.queue('default'))).messageCount).toBe(1),
  );
  expect((await readTask(work.db, taskId)).state).toBe('pending');
  open.canClaim = true;
  await eventually(() => expect(open.settled.get(taskId)).toBe('succeeded'));
});

test('invariant 1: a worker that drains invites anew what it did not start, and lets what runs end', async () => {
  const { handler, release } = held();
  const handlers = { 'test.held': handler, 'test.noop': (): Outcome => succeeded };
  const open = await openIntake(work, { handlers, concurrency: 1, prefetch: 10 });
  const blocker = await inviteTask(work, { type: 'test.held' });
  await eventually(() => expect(open.started).toEqual([blocker]));
  const high = await inviteTask(work, { priority: 8 });
  const low = await inviteTask(work, { priority: 2 });
  await eventually(() => expect(open.intake.lines[0]?.waiting).toBe(2));
  await open.intake.drain(systemClock.monotonicMs() + 2_000);
  expect(open.intake.isDraining).toBe(true);
  release();
  await open[Symbol.asyncDispose]();
  expect(open.settled.get(blocker)).toBe('succeeded');
  expect(open.started).toEqual([blocker]);
  const messages = await work.take();
  expect(
    messages.map(({ content, properties }) => [
      (JSON.parse(content.toString()) as { taskId: string }).taskId,
      properties.priority as unknown,
    ]),
  ).toEqual([
    [high, 8],
    [low, 2],
  ]);
  expect(messages.map(({ fields }) => fields.redelivered)).toEqual([false, false]); // new messages, not returned ones
});

test('an intake may be started twice, stopped twice, and stopped before its start', async () => {
  const open = await openIntake(work, { handlers: { 'test.noop': () => succeeded } });
  await open.intake.start();
  const taskId = await inviteTask(work);
  await eventually(() => expect(open.settled.get(taskId)).toBe('succeeded'));
  await open[Symbol.asyncDispose]();
  await open[Symbol.asyncDispose]();
  expect(open.started).toEqual([taskId]);
});
