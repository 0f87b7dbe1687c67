/** Task types for chaos that the fault tests do not have: one that takes its worker with it, and one that runs in a thread. */
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { NonRetryable } from '../../shared/tasks/handler-errors.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { ATTEMPTS, PART } from './flow-shapes.ts';
import { MOST_AT_ONCE } from './kinds.ts';
import { journalled, note } from '../support/tasks/journal.ts';

/** What a step gave; null of one whose failure is ignored. */
const given = z.strictObject({ taskId: z.string() }).nullable();
const QUICK_RETRY = { maxAttempts: 3, firstDelayMs: 50, maxDelayMs: 200 } as const;

/** Kills its own process in its first `crashes` attempts (by attempt number). */
export const crash = defineTask({
  name: 'chaos.crash',
  input: z.strictObject({ ...journalled, crashes: z.int().min(0) }),
  retry: QUICK_RETRY,
  run: async ({ journal, crashes }, ctx) => {
    note(journal, ctx, 'started');
    if (ctx.attempt <= crashes) {
      process.kill(process.pid, 'SIGKILL');
      await systemClock.sleep(60_000);
    }
    note(journal, ctx, 'ended');
  },
});

/** Sleeps for `ms` in a thread. */
export const threaded = defineTask({
  name: 'chaos.threaded',
  input: z.strictObject({ ...journalled, ms: z.int().min(0) }),
  isolation: 'thread',
  retry: QUICK_RETRY,
  timeoutMs: 60_000,
  run: async ({ journal, ms }, ctx) => {
    note(journal, ctx, 'started');
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
    note(journal, ctx, 'ended');
  },
});

/** Of which two run at once for each tenant, and twenty start in a second. */
export const limited = defineTask({
  name: 'chaos.limited',
  input: z.strictObject({ ...journalled, ms: z.int().min(0), tenant: z.string() }),
  retry: QUICK_RETRY,
  concurrency: { limit: MOST_AT_ONCE, key: 'input.tenant' },
  rate: { limit: 20, perMs: 1_000, key: 'input.tenant' },
  run: async ({ journal, ms }, ctx) => {
    note(journal, ctx, 'started');
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
    note(journal, ctx, 'ended');
  },
});

/** A step of a flow: writes down of which tasks it was given results, by the names of their steps, and gives its own id. */
export const part = defineTask({
  name: PART,
  input: z.strictObject({
    ...journalled,
    ms: z.int().min(0).default(0),
    failures: z.int().min(0).default(0),
    got: z.record(z.string(), z.union([given, z.array(given)])).default({}),
  }),
  retry: { ...QUICK_RETRY, maxAttempts: ATTEMPTS },
  timeoutMs: 60_000,
  run: async ({ journal, ms, failures, got }, ctx) => {
    const ids = Object.entries(got).map(([name, each]) => [
      name,
      Array.isArray(each) ? each.map((one) => one?.taskId ?? null) : (each?.taskId ?? null),
    ]);
    note(journal, ctx, 'started', JSON.stringify(Object.fromEntries(ids)));
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
    if (ctx.attempt <= failures) throw new Error(`fails in attempt ${ctx.attempt}`);
    note(journal, ctx, 'ended');
    return { taskId: ctx.taskId };
  },
});

/** Whose input does not fit its row. Every row of it must come. */
export const large = defineTask({
  name: 'chaos.large',
  input: z.strictObject({ ...journalled, tenant: z.string(), rows: z.array(z.string()).min(50) }),
  retry: QUICK_RETRY,
  run: ({ journal, rows }, ctx) => {
    note(journal, ctx, 'started');
    if (!rows.every((row, n) => row.endsWith(` ${n}`))) throw new NonRetryable('rows are missing');
    note(journal, ctx, 'ended');
    return { rows: rows.length };
  },
});
