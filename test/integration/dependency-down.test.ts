/** A dependency of many tasks that is down: it is neither stormed nor does it cost attempts, and its return is noticed. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { z } from 'zod';
import { judge } from '../../services/worker/verdict.ts';
import { createDispatcher } from '../../services/producer/dispatcher.ts';
import { defineTask } from '../../shared/tasks/define-task.ts';
import type { TaskContext } from '../../shared/tasks/define-task.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { systemRandom } from '../../shared/time/random.ts';
import { addTasks, openWorker, partDeps, readTask, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { inviteTask, openIntake } from '../support/intake.ts';
import { openRunner } from '../support/runner.ts';
import type { TestRunner, TestRunnerOptions } from '../support/runner.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

const RETRY = { maxAttempts: 5, firstDelayMs: 200, maxDelayMs: 400 };

let work: TestWork;
beforeAll(async () => {
  work = await openWork();
});
afterAll(async () => await work[Symbol.asyncDispose]());

interface Fleet extends AsyncDisposable {
  readonly runner: TestRunner;
  readonly settled: ReadonlyMap<string, string>;
}

/** A worker with this handler, and the dispatcher that invites what is due. */
async function openFleet(handler: (ctx: TaskContext) => Promise<unknown>, options: TestRunnerOptions): Promise<Fleet> {
  const runner = await openRunner(options);
  const run = async (_input: unknown, ctx: TaskContext): Promise<unknown> => await handler(ctx);
  const type = defineTask({ name: 'test.noop', input: z.unknown(), retry: RETRY, run });
  const open = await openIntake(work, {
    handlers: {
      'test.noop': async ({ taskId, attempt, claimId, input }) =>
        await runner.runner.run({ type, taskId: taskId as TaskId, attempt, claimId, input }),
    },
    retry: RETRY,
    concurrency: 20,
  });
  const invite = async (row: Parameters<typeof work.backbone.inviter.invite>[0]): Promise<boolean> =>
    await work.backbone.inviter.invite(row);
  const dispatcher = createDispatcher({ ...partDeps, db: work.db, invite }, { intervalMs: 20, batchSize: 500 });
  await dispatcher.start();
  return {
    runner,
    settled: open.settled,
    [Symbol.asyncDispose]: async () => {
      await dispatcher.stop(systemClock.monotonicMs() + 2_000);
      await open[Symbol.asyncDispose]();
      await runner[Symbol.asyncDispose]();
    },
  };
}

test('behind a breaker, tasks are deferred without spending attempts while it is open, and end once it closed by itself', async () => {
  let isUp = false;
  let calls = 0;
  const callDependency = async (): Promise<void> => {
    calls += 1;
    await systemClock.sleep(1);
    if (!isUp) throw new Error('connection refused');
  };
  await using fleet = await openFleet(async (ctx) => await ctx.breaker('dependency', callDependency), {
    breaker: { volumeThreshold: 10, resetTimeoutMs: 200 },
  });
  const ids: string[] = [];
  for (let task = 0; task < 40; task += 1) ids.push(await inviteTask(work));
  const stateOf = (): unknown => fleet.runner.breakers.states().get('dependency');
  await eventually(() => expect(stateOf()).toBe('open'));
  const fromMs = systemClock.monotonicMs();
  const callsAtFirst = calls;
  // Several reset times: each lets one probe through, and all else is put off.
  await eventually(() => expect(calls).toBeGreaterThan(callsAtFirst + 4));
  const resets = (systemClock.monotonicMs() - fromMs) / 200;
  expect(calls - callsAtFirst).toBeLessThan(resets + 25); // at most what was under way when it opened, and the probes

  isUp = true;
  await eventually(() => expect(ids.map((id) => fleet.settled.get(id))).toEqual(ids.map(() => 'succeeded')), {
    withinMs: 20_000,
  });
  expect(stateOf()).toBe('closed');
  // Only calls of before it opened spent an attempt: neither a refusal nor a probe that failed does.
  const tasks = await Promise.all(ids.map(async (id) => await readTask(work.db, id)));
  const spent = tasks.reduce((sum, { failures }) => sum + failures, 0);
  expect(spent).toBeLessThanOrEqual(callsAtFirst + 20);
  expect(calls - ids.length - spent).toBeGreaterThanOrEqual(4);
  const [deferred] = await rows<{ n: number }>(
    work.db,
    `select count(*)::int4 as n from attempts where outcome = 'deferred' and task_id = any($1::uuid[])`,
    `{${ids.join(',')}}`,
  );
  expect(deferred?.n).toBeGreaterThan(ids.length);
});

test('without a breaker, what fails at once is tried again no faster than its backoff', async () => {
  const startsMs = new Map<string, number[]>();
  await using fleet = await openFleet(async ({ taskId }) => {
    startsMs.set(taskId, [...(startsMs.get(taskId) ?? []), systemClock.monotonicMs()]);
    return await Promise.reject(new Error('connection refused'));
  }, {});
  const ids = [await inviteTask(work, { maxAttempts: 5 }), await inviteTask(work, { maxAttempts: 5 })];
  await eventually(() => expect(ids.map((id) => fleet.settled.get(id))).toEqual(['dead', 'dead']), {
    withinMs: 20_000,
  });
  for (const id of ids) {
    const starts = startsMs.get(id) ?? [];
    expect(starts).toHaveLength(5);
    const gaps = starts.slice(1).map((startMs, index) => startMs - (starts[index] ?? 0));
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(RETRY.firstDelayMs / 10 - 2);
  }
});

test('ten thousand tasks that fail within a second are due spread over their backoff, and none before its minimum', async () => {
  const policy = { maxAttempts: 5, firstDelayMs: 60_000, maxDelayMs: 3_600_000 };
  const worker = await openWorker(work.backbone.db); // whose plans do not depend on how full the table was
  const ids = await addTasks(work.db, 10_000);
  const claims = await Promise.all(ids.map(async (id) => await worker.win(id)));
  const error = { type: 'Error', message: 'connection refused', causes: [] };
  await Promise.all(
    claims.map(async (claim) => {
      const outcome = { kind: 'failed', reason: 'error', retryable: true, error } as const;
      const budget = { failures: claim.failures, maxAttempts: claim.maxAttempts, policy };
      return await worker.settles.settle(claim, judge(outcome, budget, systemRandom));
    }),
  );
  const buckets = await rows<{ n: number }>(
    work.db,
    `select count(*)::int4 as n from tasks where state = 'retrying' and id = any($1::uuid[])
      group by date_trunc('second', run_at)`,
    `{${ids.join(',')}}`,
  );
  expect(buckets.reduce((sum, { n }) => sum + n, 0)).toBe(10_000);
  expect(Math.max(...buckets.map(({ n }) => n))).toBeLessThan(500);
  const [earliest] = await rows<{ ms: number }>(
    work.db,
    `select (min(extract(epoch from t.run_at - a.finished_at)) * 1000)::float8 as ms
       from tasks t join attempts a on a.task_id = t.id where t.id = any($1::uuid[])`,
    `{${ids.join(',')}}`,
  );
  expect(earliest?.ms).toBeGreaterThanOrEqual(policy.firstDelayMs / 10);
});
