/** Task types for the steps of flows. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { note } from './journal.ts';

const options = {
  journal: z.string().optional(),
  name: z.string().optional(),
  /** Attempts that fail, of two that a task has. */
  failures: z.int().default(0),
  ms: z.int().default(0),
  /** What it returns; absent: its own input. */
  give: z.unknown().optional(),
};

/** Does as its input says, and gives back what it got. */
export const step = defineTask({
  name: 'flow.step',
  input: z.looseObject(options),
  retry: { maxAttempts: 2, firstDelayMs: 20, maxDelayMs: 50 },
  run: async (input, ctx) => {
    const { journal, failures, ms, give, ...got } = input;
    const { name = '' } = input;
    if (journal !== undefined) note(journal, ctx, 'started', name);
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
    if (ctx.attempt <= failures) throw new Error('told to fail');
    return give === undefined ? got : give;
  },
});

/** One at a time for each `who` of its input. */
export const limited = defineTask({
  name: 'flow.limited',
  input: z.looseObject({ who: z.string() }),
  concurrency: { limit: 1, key: 'input.who' },
  run: ({ who }) => ({ who }),
});
