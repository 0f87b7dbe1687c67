/** Task types that add steps to their flow; on the loop and in a thread. */
import { z } from 'zod';
import type { AddStepOptions } from '../../../shared/tasks/add-step.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { Isolation, TaskType } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { note } from './journal.ts';

const input = z.looseObject({
  journal: z.string().optional(),
  /**
   * Steps to add, one after the other, as JSON text of a list of their names and options: in an input of a flow references would be looked for. Of
   * `pieces` the group has so many inputs, of `length` the input a text so long.
   */
  add: z.string().default('[]'),
  /** Attempts that fail after it has added. */
  failures: z.int().default(0),
  /** Attempts that end with their process then. */
  killedIn: z.int().default(0),
  /** Milliseconds that it goes on then. */
  ms: z.int().default(0),
  /** Milliseconds before. */
  beforeMs: z.int().default(0),
  /** Returns what was refused instead of failing of it. */
  catches: z.boolean().default(false),
});

interface Added extends Readonly<Record<string, unknown>> {
  readonly name: string;
  readonly pieces?: number;
  readonly length?: number;
}

const split = (name: string, isolation: Isolation): TaskType =>
  defineTask({
    name,
    input,
    isolation,
    retry: { maxAttempts: 3, firstDelayMs: 20, maxDelayMs: 50 },
    run: async ({ journal, add, failures, killedIn, ms, beforeMs, catches }, ctx) => {
      if (journal !== undefined) note(journal, ctx, 'started', 'split');
      await systemClock.sleep(beforeMs, ctx.signal);
      const added: unknown[] = [];
      for (const { name: step, pieces, length, ...options } of JSON.parse(add) as readonly Added[]) {
        const inputs = Array.from({ length: pieces ?? 0 }, (_each, n) => ({
          give: n,
          name: `${step}-${n}`,
          ...(journal === undefined ? {} : { journal }),
        }));
        const asked = {
          ...options,
          ...(pieces === undefined ? {} : { inputs }),
          ...(length === undefined ? {} : { input: { text: 'x'.repeat(length) } }),
        } as unknown as AddStepOptions;
        try {
          const { taskIds, duplicate } = await ctx.addStep(step, asked);
          added.push({ tasks: taskIds.length, duplicate });
        } catch (thrown) {
          if (!catches) throw thrown;
          const { code, facts } = thrown as { readonly code?: string; readonly facts?: object };
          added.push({ code, ...facts });
        }
      }
      if (ctx.attempt <= killedIn) {
        process.kill(process.pid, 'SIGKILL');
        await systemClock.sleep(60_000);
      }
      await systemClock.sleep(ms, ctx.signal);
      if (ctx.attempt <= failures) throw new Error('told to fail');
      return { added };
    },
  });

export const splitOnLoop = split('flow.split', 'loop');
export const splitInThread = split('flow.split.thread', 'thread');
