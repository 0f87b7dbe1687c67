/** `demo.slow`: takes its time. Longer than its timeout, it shows how one is met. */
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** Sleeps for `ms`, in ten steps, and stops when its signal says so. */
export const demoSlow = defineTask({
  name: 'demo.slow',
  input: z.strictObject({
    /** Milliseconds, at most ten minutes. */
    ms: z.int().min(0).max(600_000),
  }),
  timeoutMs: 2_000,
  retry: { maxAttempts: 2, firstDelayMs: 200, maxDelayMs: 1_000 },
  run: async ({ ms }, ctx) => {
    for (let step = 1; step <= 10; step += 1) {
      await systemClock.sleep(ms / 10, ctx.signal);
      ctx.signal.throwIfAborted();
      ctx.progress(step / 10, `step ${step} of 10`);
    }
    return { slept: ms };
  },
});
