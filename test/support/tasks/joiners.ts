/** Task types that read the results of other steps; on the loop and in a thread. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { Isolation, TaskType } from '../../../shared/tasks/define-task.ts';

const input = z.looseObject({
  /** Whose results. */
  step: z.string(),
  path: z.string().optional(),
  /** Returns the results themselves. */
  whole: z.boolean().default(false),
  /** Returns what was refused instead of failing of it. */
  catches: z.boolean().default(false),
});

const sum = (name: string, isolation: Isolation): TaskType =>
  defineTask({
    name,
    input,
    isolation,
    retry: { maxAttempts: 1 },
    run: async ({ step, path, whole, catches, all }, ctx) => {
      const got: unknown[] = [];
      let total = 0;
      let inOrder = true;
      let last = -1;
      try {
        for await (const each of ctx.stepResults(step, path === undefined ? {} : { path })) {
          got.push(whole ? each : null);
          const { n = 0 } = (each ?? {}) as { readonly n?: number };
          total += n;
          inOrder &&= n > last;
          last = n;
        }
      } catch (thrown) {
        if (!catches) throw thrown;
        const { code, facts } = thrown as { readonly code?: string; readonly facts?: object };
        return { code, ...facts };
      }
      return whole ? got : { count: got.length, total, inOrder, all };
    },
  });

export const sumOnLoop = sum('flow.sum', 'loop');
export const sumInThread = sum('flow.sum.thread', 'thread');
