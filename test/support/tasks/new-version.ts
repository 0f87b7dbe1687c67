/** The task types of the same fleet after it: one more, and one that refuses what it took before. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { journalled, note } from './journal.ts';

/** Takes sizes that are whole numbers. */
export const order = defineTask({
  name: 'fault.order',
  input: z.object({ ...journalled, size: z.int() }),
  run: ({ journal }, ctx) => note(journal, ctx, 'started'),
});

/** Did not exist before. */
export const invoice = defineTask({
  name: 'fault.invoice',
  input: z.object(journalled),
  run: ({ journal }, ctx) => note(journal, ctx, 'started'),
});
