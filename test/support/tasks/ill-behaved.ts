/** Task types that kill their process, ignore their abort, or block what they run on. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { journalled, note } from './journal.ts';

/** Ends its own process as the kernel's memory killer would. */
export const suicide = defineTask({
  name: 'fault.suicide',
  input: z.strictObject(journalled),
  retry: { maxAttempts: 10, firstDelayMs: 50, maxDelayMs: 100 },
  run: async ({ journal }, ctx) => {
    note(journal, ctx, 'started');
    process.kill(process.pid, 'SIGKILL');
    await systemClock.sleep(60_000);
  },
});

/** Sleeps for `ms` whatever its signal says. */
export const stubborn = defineTask({
  name: 'fault.stubborn',
  input: z.strictObject({ ...journalled, ms: z.int() }),
  timeoutMs: 200,
  retry: { maxAttempts: 1 },
  run: async ({ journal, ms }, ctx) => {
    note(journal, ctx, 'started');
    await systemClock.sleep(ms);
    note(journal, ctx, 'ended');
  },
});

/** Sleeps for `ms` whatever its signal says, and may take as long as that. */
export const deaf = defineTask({
  name: 'fault.deaf',
  input: z.strictObject({ ...journalled, ms: z.int() }),
  run: async ({ journal, ms }, ctx) => {
    note(journal, ctx, 'started');
    await systemClock.sleep(ms);
    note(journal, ctx, 'ended');
  },
});

/** Never ends, and may take long. */
export const spinner = defineTask({
  name: 'fault.spinner',
  input: z.strictObject(journalled),
  isolation: 'thread',
  run: ({ journal }, ctx) => {
    note(journal, ctx, 'started');
    for (;;);
  },
});

/** Never ends, and lets nobody tell it anything. */
export const blocker = defineTask({
  name: 'fault.blocker',
  input: z.strictObject(journalled),
  isolation: 'thread',
  timeoutMs: 500,
  retry: { maxAttempts: 1 },
  run: ({ journal }, ctx) => {
    note(journal, ctx, 'started');
    for (;;);
  },
});

/** Ends its process in its first attempt, as if the handler were a script. */
export const exits = defineTask({
  name: 'fault.exits',
  input: z.strictObject(journalled),
  run: ({ journal }, ctx) => {
    note(journal, ctx, 'started');
    if (ctx.attempt === 1) process.exit(0);
    note(journal, ctx, 'ended');
  },
});

/** Blocks the event loop for `ms`. */
export const hog = defineTask({
  name: 'fault.hog',
  input: z.strictObject({ ...journalled, ms: z.int() }),
  run: ({ journal, ms }, ctx) => {
    note(journal, ctx, 'started');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    note(journal, ctx, 'ended');
  },
});

/** Starts something that fails and that nobody waits for, then goes on for `ms`. */
export const stray = defineTask({
  name: 'fault.stray',
  input: z.strictObject({ ...journalled, ms: z.int(), how: z.enum(['rejection', 'exception']) }),
  run: async ({ journal, ms, how }, ctx) => {
    note(journal, ctx, 'started');
    if (how === 'rejection') void Promise.reject(new Error('nobody waits for this'));
    else systemClock.after(1, () => JSON.parse('{') as unknown);
    await systemClock.sleep(ms, ctx.signal);
    ctx.signal.throwIfAborted();
    note(journal, ctx, 'ended');
  },
});

/** Takes memory in its thread until there is none. */
export const greedy = defineTask({
  name: 'fault.greedy',
  input: z.strictObject(journalled),
  isolation: 'thread',
  retry: { maxAttempts: 2, firstDelayMs: 50, maxDelayMs: 100 },
  run: ({ journal }, ctx) => {
    note(journal, ctx, 'started');
    const kept: unknown[] = [];
    for (;;) kept.push(Array.from({ length: 10_000 }, (_, index) => ({ index })));
  },
});
