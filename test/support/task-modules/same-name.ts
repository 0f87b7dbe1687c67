/** Defines a name that another module has. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';

export const other = defineTask({ name: 'loop.echo', input: z.unknown(), run: () => 'other' });
