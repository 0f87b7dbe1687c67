/** The task types of a fleet before a deployment. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { journalled, note } from './journal.ts';

/** Takes any size. */
export const order = defineTask({
  name: 'fault.order',
  input: z.object({ ...journalled, size: z.union([z.string(), z.int()]) }),
  run: ({ journal }, ctx) => note(journal, ctx, 'started'),
});
