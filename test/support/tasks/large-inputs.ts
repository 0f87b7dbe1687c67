/** Task types whose inputs may be too large for their row. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { TaskContext } from '../../../shared/tasks/define-task.ts';
import { NonRetryable } from '../../../shared/tasks/handler-errors.ts';

const RETRY = { maxAttempts: 3, firstDelayMs: 50, maxDelayMs: 200 };

const input = z.strictObject({
  tenantId: z.string().optional(),
  rows: z.array(z.string()),
  /** Fails for good where it is false. */
  isGood: z.boolean().default(true),
});

/** SHA-256 of all rows, and how many there are: proof that all of the input came. */
function digest({ rows, isGood }: z.output<typeof input>, _ctx: TaskContext): unknown {
  if (!isGood) throw new NonRetryable('the rows are not good');
  const hash = createHash('sha256');
  for (const row of rows) hash.update(row);
  return { rows: rows.length, sha256: hash.digest('hex') };
}

/** Digests its rows. */
export const onLoop = defineTask({ name: 'large.digest', input, retry: RETRY, run: digest });

/** The same in a thread. */
export const inThread = defineTask({
  name: 'large.digest-in-thread',
  input,
  retry: RETRY,
  isolation: 'thread',
  run: digest,
});
