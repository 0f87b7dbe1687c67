/** How a worker lets go of its work: what ends, what goes back, and what bounds it. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { z } from 'zod';
import { createDrain } from '../../services/worker/drain.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import { defineTask } from '../../shared/tasks/define-task.ts';
import type { TaskContext, TaskType } from '../../shared/tasks/define-task.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { count, openFaulty, partDeps, readTask, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { inviteTask, openIntake } from '../support/intake.ts';
import type { TestIntake } from '../support/intake.ts';
import { openRunner } from '../support/runner.ts';
import type { TestRunner } from '../support/runner.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
beforeAll(async () => {
  work = await openWork();
});
afterAll(async () => await work[Symbol.asyncDispose]());

/** A worker of one slot whose handler is the test's. */
interface Draining extends AsyncDisposable {
  readonly open: TestIntake;
  readonly runner: TestRunner;
  readonly drain: Part;
}

const inMs = (ms: number): number => systemClock.monotonicMs() + ms;

async function openDraining(
  handler: (ctx: TaskContext) => Promise<unknown>,
  over: TestWork = work,
  abortGraceMs = 1_000,
): Promise<Draining> {
  const runner = await openRunner({ run: { abortGraceMs } });
  const type: TaskType = defineTask({
    name: 'test.noop',
    input: z.unknown(),
    run: async (_, ctx) => await handler(ctx),
  });
  const open = await openIntake(over, {
    handlers: {
      'test.noop': async ({ taskId, attempt, claimId, input }) =>
        await runner.runner.run({ type, taskId: taskId as TaskId, attempt, claimId, input }),
    },
    concurrency: 1,
    prefetch: 10,
  });
  const { claims, settles } = open.worker;
  const drain = createDrain({ ...partDeps, intake: open.intake, runner: runner.runner, claims, settles });
  await drain.start();
  return {
    open,
    runner,
    drain,
    [Symbol.asyncDispose]: async () => {
      await drain.stop(inMs(0));
      await open[Symbol.asyncDispose]();
      await runner[Symbol.asyncDispose]();
    },
  };
}

const historyOf = async (id: string): Promise<unknown[]> =>
  await rows(work.db, 'select attempt, outcome, error_code from attempts where task_id = $1', id);

test('what runs ends and is settled and answered; what was not started is invited anew', async () => {
  const hold = new AbortController();
  await using worker = await openDraining(async () => await systemClock.sleep(60_000, hold.signal));
  const { open, drain } = worker;
  const running = await inviteTask(work);
  await eventually(() => expect(open.started).toEqual([running]));
  const waiting = [await inviteTask(work), await inviteTask(work), await inviteTask(work)];
  await eventually(() => expect(open.intake.lines[0]?.waiting).toBe(3));

  const stopped = drain.stop(inMs(20_000));
  // It need not wait for what runs to be had by others.
  expect((await work.invitations(3)).toSorted()).toEqual(waiting.toSorted());
  const late = await inviteTask(work);
  hold.abort();
  await stopped;
  expect(open.settled).toEqual(new Map([[running, 'succeeded']]));
  expect(open.started).toEqual([running]);
  expect(await work.invitations(1)).toEqual([late]);
  for (const id of [...waiting, late])
    expect(await readTask(work.db, id)).toMatchObject({ state: 'pending', attempt: 0 });
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]); // all was answered
  expect(await count(work.db, 'claims')).toBe(0);
});

test('what does not end in time is aborted and handed back, uncounted', async () => {
  let heard: unknown;
  await using worker = await openDraining(async ({ signal }) => {
    await systemClock.sleep(60_000, signal);
    heard = signal.reason;
    signal.throwIfAborted();
  });
  const { open, drain } = worker;
  const id = await inviteTask(work);
  await eventually(() => expect(open.started).toEqual([id]));
  await drain.stop(inMs(4_500));
  expect(heard).toMatchObject({ code: 'attempt-interrupted', facts: { by: 'shutdown' } });
  expect(await readTask(work.db, id)).toMatchObject({ state: 'pending', attempt: 1, failures: 0, lost_attempts: 0 });
  expect(await historyOf(id)).toEqual([{ attempt: 1, outcome: 'interrupted', error_code: null }]);
  expect(open.worker.invited).toMatchObject([{ invitations: [{ taskId: id }] }]);
});

test('what ignores its abort does not keep the worker: it is handed back without', async () => {
  const hold = new AbortController();
  await using worker = await openDraining(async () => await systemClock.sleep(60_000, hold.signal), work, 100);
  const { open, drain } = worker;
  const id = await inviteTask(work);
  await eventually(() => expect(open.started).toEqual([id]));
  const startMs = systemClock.monotonicMs();
  await drain.stop(inMs(4_000));
  expect(systemClock.monotonicMs() - startMs).toBeLessThan(10_000);
  expect(await readTask(work.db, id)).toMatchObject({ state: 'pending', failures: 0 });
  expect(worker.runner.runner.abandonedCount).toBe(1);
  expect(await historyOf(id)).toEqual([{ attempt: 1, outcome: 'interrupted', error_code: 'abort-ignored' }]);
  hold.abort();
  await work.take();
});

test('while Postgres is away a stop ends at its deadline, and the reaper finds what was not settled', async () => {
  await using faulty = await openFaulty(work.db);
  await using worker = await openDraining(async () => await Promise.resolve(), { ...work, db: faulty });
  const { open, drain } = worker;
  faulty.fault = (name) => (name === 'settle_succeeded' ? 'refuse' : undefined);
  const id = await inviteTask(work);
  await eventually(() => expect(open.started).toEqual([id]));
  const startMs = systemClock.monotonicMs();
  await drain.stop(inMs(2_000));
  expect(systemClock.monotonicMs() - startMs).toBeLessThan(10_000);
  expect(open.settled.has(id)).toBe(false);
  expect(await readTask(work.db, id)).toMatchObject({ state: 'running', attempt: 1 });
  expect(await count(work.db, 'claims', `worker = '${open.worker.workerId}'`)).toBe(1);
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toHaveLength(1); // unanswered, it comes again, and its claim will lose
});
