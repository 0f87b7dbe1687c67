/** Task types that tests run in threads, and one that is on the loop. */
import { access, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isMainThread } from 'node:worker_threads';
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { NonRetryable, RetryAfter } from '../../../shared/tasks/handler-errors.ts';

const parts = { input: z.unknown(), isolation: 'thread', timeoutMs: 10_000 } as const;

export const echo = defineTask({
  ...parts,
  name: 'thread.echo',
  run: (input, ctx) => ({ input, isMainThread, taskId: ctx.taskId, fencingToken: ctx.fencingToken }),
});

export const block = defineTask({
  ...parts,
  name: 'thread.block',
  timeoutMs: 100,
  run: () => {
    for (;;);
  },
});

export const sleeper = defineTask({
  ...parts,
  name: 'thread.sleeper',
  timeoutMs: 200,
  run: async (_input, { signal, log }) => {
    await sleep(60_000, undefined, { signal }).catch(() => log.info('heeded', { reason: signal.reason as unknown }));
    signal.throwIfAborted();
  },
});

export const greedy = defineTask({
  ...parts,
  name: 'thread.greedy',
  run: () => {
    const kept: unknown[] = [];
    for (;;) kept.push(Array.from({ length: 10_000 }, (_, index) => ({ index })));
  },
});

export const exits = defineTask({
  ...parts,
  name: 'thread.exits',
  run: () => process.exit(3),
});

export const throws = defineTask({
  ...parts,
  name: 'thread.throws',
  retry: { neverOn: (error) => error.message === 'never' },
  run: (input, ctx) => {
    if (input === 'non-retryable') throw new NonRetryable('no');
    if (input === 'later') throw new RetryAfter(1_234);
    if (input === 'defer') ctx.defer(4_321);
    if (input === 'unhandled') void Promise.reject(new Error('nobody hears this'));
    if (input === 'unhandled') return sleep(1_000);
    throw new Error(String(input));
  },
});

export const busy = defineTask({
  ...parts,
  name: 'thread.busy',
  run: async (_input, ctx) => {
    for (let step = 1; step <= 5; step += 1) ctx.progress(step / 5, `step ${step}`);
    ctx.log.child({ part: 'inner' }).warn('said in a thread', { password: 'hunter2', fn: () => 1 });
    const path = await ctx.tempDir();
    await writeFile(join(path, 'x'), 'x');
    await access(path);
    return path;
  },
});

export const calls = defineTask({
  ...parts,
  name: 'thread.calls',
  run: (input, ctx) =>
    ctx.breaker('dependency', async (signal) => {
      await sleep(1);
      if (input === 'hang') await sleep(60_000, undefined, { signal });
      if (input === 'block') for (;;);
      if (input === 'fail') throw new Error('refused');
      if (input === 'wrong') throw new NonRetryable('404');
      return 'called';
    }),
});

export const onLoop = defineTask({ name: 'loop.echo', input: z.unknown(), run: (input) => input });
