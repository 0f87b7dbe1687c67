/** The task type of the simulation: takes its time, and no processor. */
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** Takes `ms`, and heeds its signal. */
export const simWork = defineTask({
  name: 'sim.work',
  input: z.strictObject({ ms: z.int().min(0) }),
  run: async ({ ms }, ctx) => {
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
  },
});
