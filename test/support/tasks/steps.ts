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
  /** Characters of a text that it returns. */
  repeat: z.int().optional(),
  /** Levels of lists that it returns. */
  deep: z.int().optional(),
  /** Returns a text with U+0000, which JSON may hold and Postgres may not. */
  nul: z.boolean().optional(),
  /** What it returns; absent: its own input. */
  give: z.unknown().optional(),
};

/** Does as its input says, and gives back what it got. */
export const step = defineTask({
  name: 'flow.step',
  input: z.looseObject(options),
  retry: { maxAttempts: 2, firstDelayMs: 20, maxDelayMs: 50 },
  run: async (input, ctx) => {
    const { journal, failures, ms, give, repeat, deep, nul, ...got } = input;
    const { name = '' } = input;
    if (journal !== undefined) note(journal, ctx, 'started', name);
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
    if (ctx.attempt <= failures) throw new Error('told to fail');
    if (repeat !== undefined) return 'x'.repeat(repeat);
    if (deep !== undefined) return nested(deep);
    if (nul === true) return { text: 'a\0b', n: 1, who: 'a\0b' };
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

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}
