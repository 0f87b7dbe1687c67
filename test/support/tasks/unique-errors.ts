/** Task types whose every attempt is unlike any other: by the text of its error, its name, what it logs. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { journalled } from './journal.ts';

/** Succeeds, or fails with an error that nobody has seen before. `word` stands in all that it says. */
export const unique = defineTask({
  name: 'fault.unique',
  input: z.strictObject({ ...journalled, word: z.string(), fails: z.boolean() }),
  retry: { maxAttempts: 2, firstDelayMs: 20, maxDelayMs: 40 },
  run: ({ word, fails }, ctx) => {
    ctx.log.info(`looks at ${word}`);
    if (!fails) return { word };
    const error = new Error(`${word} is gone, said attempt ${ctx.attempt} of ${ctx.taskId}`);
    error.name = `Gone${word.replaceAll('-', '')}`;
    throw error;
  },
});
