/** Task types that do something once, and that settle in a transaction of their own; each on the loop and in a thread. */
import pg from 'pg';
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { Isolation, TaskType } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { journalled, note } from './journal.ts';

const charging = {
  input: z.strictObject({
    ...journalled,
    /** Attempts that end with their process in the middle of the side effect. */
    killedIn: z.int().default(0),
    /** Attempts that run past their timeout in the middle of it. */
    stuckIn: z.int().default(0),
    /** Attempts that fail after it. */
    failures: z.int().default(0),
    /** What to do about a run that was cut in the middle. */
    ifUnknown: z.enum(['fail', 'again', 'done']).default('fail'),
  }),
  timeoutMs: 8_000,
  retry: { maxAttempts: 5, firstDelayMs: 20, maxDelayMs: 50 },
} as const;

const charge = (name: string, isolation: Isolation): TaskType =>
  defineTask({
    ...charging,
    name,
    isolation,
    run: async ({ journal, killedIn, stuckIn, failures, ifUnknown }, ctx) => {
      const decide = (): 'again' | { result: number } => {
        return ifUnknown === 'again' ? 'again' : { result: -1 };
      };
      note(journal, ctx, 'started');
      const charged = await ctx.once(
        'charge',
        async () => {
          note(journal, ctx, 'did', 'charging');
          if (ctx.attempt <= killedIn) {
            process.kill(process.pid, 'SIGKILL');
            await systemClock.sleep(60_000);
          }
          if (ctx.attempt <= stuckIn) {
            await systemClock.sleep(60_000, ctx.signal);
            ctx.signal.throwIfAborted();
          }
          return ctx.attempt;
        },
        ifUnknown === 'fail' ? {} : { ifUnknown: decide },
      );
      if (ctx.attempt <= failures) throw new Error(`fails in attempt ${ctx.attempt}`);
      note(journal, ctx, 'ended');
      return { charged };
    },
  });

export const chargeOnLoop = charge('fault.charge', 'loop');
export const chargeInThread = charge('fault.charge.thread', 'thread');

const transferring = {
  input: z.strictObject({
    ...journalled,
    database: z.string(),
    /** What happens around the commit of the first attempt; later ones commit. */
    how: z.enum([
      'commits',
      'dies before the commit',
      'dies after the commit',
      'throws before the commit',
      'throws after the commit',
      'rolls back and returns',
      'returns before the commit',
      'is stuck before the commit',
      'is stuck after the commit',
    ]),
  }),
  timeoutMs: 8_000,
  retry: { maxAttempts: 3, firstDelayMs: 20, maxDelayMs: 50 },
} as const;

const transfer = (name: string, isolation: Isolation): TaskType =>
  defineTask({
    ...transferring,
    name,
    isolation,
    run: async ({ journal, database, how }, ctx) => {
      note(journal, ctx, 'started');
      const isFirst = ctx.attempt === 1;
      const stuck = async (): Promise<never> => {
        await systemClock.sleep(60_000, ctx.signal);
        ctx.signal.throwIfAborted();
        throw new Error('never here');
      };
      const client = new pg.Client({ connectionString: database });
      client.on('error', () => undefined);
      await client.connect();
      try {
        await client.query('begin');
        await client.query('insert into public.effects (task_id, attempt) values ($1, $2)', [ctx.taskId, ctx.attempt]);
        await ctx.settleWith(client, { settledBy: ctx.attempt });
        if (isFirst && how === 'dies before the commit') process.kill(process.pid, 'SIGKILL');
        if (isFirst && how === 'throws before the commit') throw new Error('before the commit');
        if (isFirst && how === 'is stuck before the commit') await stuck();
        if (isFirst && how === 'rolls back and returns') {
          await client.query('rollback');
          note(journal, ctx, 'ended');
          return { settledBy: 'return' };
        }
        note(journal, ctx, 'ended'); // before the commit, after which the process may end at once
        if (isFirst && how === 'returns before the commit') {
          systemClock.after(700, () => void client.query('commit').finally(() => void client.end()));
          return { settledBy: 'return' };
        }
        await client.query('commit');
        if (isFirst && how === 'dies after the commit') process.kill(process.pid, 'SIGKILL');
        if (isFirst && how === 'throws after the commit') throw new Error('after the commit');
        if (isFirst && how === 'is stuck after the commit') await stuck();
        return { settledBy: 'return' };
      } finally {
        if (how !== 'returns before the commit') await client.end();
      }
    },
  });

export const transferOnLoop = transfer('fault.transfer', 'loop');
export const transferInThread = transfer('fault.transfer.thread', 'thread');
