/** Task types for chaos that the fault tests do not have: one that takes its worker with it, and one that runs in a thread. */
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { journalled, note } from '../support/tasks/journal.ts';

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
