/** The task type of the benchmark: does nothing. */
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';

/** Does nothing with 200 bytes. */
export const benchNoop = defineTask({
  name: 'bench.noop',
  input: z.object({ text: z.string() }),
  run: () => undefined,
});
