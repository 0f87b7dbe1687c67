/** Task types that tests drive through the command line. */
import { access } from 'node:fs/promises';
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { NonRetryable } from '../../../shared/tasks/handler-errors.ts';

export const echo = defineTask({ name: 'cli.echo', input: z.looseObject({}), queue: 'cli', run: (input) => input });

/** Dies while a file is missing; where it is there, says so. */
export const needsFile = defineTask({
  name: 'cli.needs-file',
  input: z.object({ path: z.string() }),
  queue: 'cli',
  run: async ({ path }) => {
    await access(path).catch(() => {
      throw new NonRetryable('the file \u001b[31mis missing');
    });
    return 'found';
  },
});

/** Runs until it is aborted, telling how far it is. */
export const endless = defineTask({
  name: 'cli.endless',
  input: z.object({}),
  queue: 'cli',
  run: async (_input, ctx) => {
    ctx.progress(0.25, 'waiting to be aborted');
    await new Promise<void>((_resolve, reject) => {
      ctx.signal.addEventListener('abort', () => reject(new NonRetryable('aborted')), { once: true });
    });
  },
});
