/** Task types that log, and fail as often as they are told. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { Isolation, TaskType } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { journalled, note } from './journal.ts';

const talk = (name: string, isolation: Isolation, keepLogs: boolean): TaskType =>
  defineTask({
    name,
    isolation,
    keepLogs,
    input: z.strictObject({
      ...journalled,
      lines: z.int().default(1),
      failures: z.int().default(0),
      ms: z.int().default(0),
      text: z.string().default('line'),
    }),
    retry: { maxAttempts: 3, firstDelayMs: 20, maxDelayMs: 50 },
    run: async ({ journal, lines, failures, ms, text }, ctx) => {
      note(journal, ctx, 'started');
      for (let line = 1; line <= lines; line += 1)
        ctx.log.info(text, { line, odd: 'a\0b', password: 'not to be seen' });
      await systemClock.sleep(ms, ctx.signal);
      ctx.signal.throwIfAborted();
      if (ctx.attempt <= failures) throw new Error(`fails in attempt ${ctx.attempt}`);
      note(journal, ctx, 'ended');
    },
  });

export const onLoop = talk('fault.talk', 'loop', false);
export const inThread = talk('fault.talk.thread', 'thread', false);
export const keeping = talk('fault.talk.kept', 'loop', true);
