/** Fails while it loads, as a module with a wrong definition does. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';

export const broken = defineTask({ name: 'Not A Name', input: z.unknown(), run: () => 1 });
