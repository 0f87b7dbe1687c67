/** Task types that do as they are told: take their time, fail so often, heed their signal. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { IS_LONG_RUN } from '../long-run.ts';
import { journalled, note } from './journal.ts';

/** Runs for `ms`, and fails in its first `failures` attempts (by attempt number). */
export const step = defineTask({
  name: 'fault.step',
  input: z.strictObject({
    ...journalled,
    ms: z.int().min(0).default(0),
    failures: z.int().min(0).default(0),
    /** Whose it is. */
    tenant: z.string().optional(),
  }),
  retry: { maxAttempts: 3, firstDelayMs: 50, maxDelayMs: 200 },
  // Some take as long as an outage, which is ten minutes in a long run.
  timeoutMs: IS_LONG_RUN ? 900_000 : 60_000,
  run: async ({ journal, ms, failures }, ctx) => {
    note(journal, ctx, 'started');
    await systemClock.sleep(ms, ctx.signal);
    if (ctx.signal.aborted) note(journal, ctx, 'aborted');
    ctx.signal.throwIfAborted();
    if (ctx.attempt <= failures) throw new Error(`fails in attempt ${ctx.attempt}`);
    note(journal, ctx, 'ended');
    return { attempt: ctx.attempt };
  },
});

/** Fails once, with a backoff of up to two seconds. */
export const spread = defineTask({
  name: 'fault.spread',
  input: z.strictObject(journalled),
  retry: { maxAttempts: 2, firstDelayMs: 2_000, maxDelayMs: 2_000 },
  run: ({ journal }, ctx) => {
    note(journal, ctx, 'started');
    if (ctx.attempt === 1) throw new Error('fails once');
  },
});

/** Leaves a file in its temporary directory and names it in the journal, then sleeps for `ms`. */
export const scratch = defineTask({
  name: 'fault.scratch',
  input: z.strictObject({ ...journalled, ms: z.int() }),
  run: async ({ journal, ms }, ctx) => {
    const file = join(await ctx.tempDir(), 'half-written');
    await writeFile(file, 'half');
    note(journal, ctx, 'started', file);
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
  },
});
