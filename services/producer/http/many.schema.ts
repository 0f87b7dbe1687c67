/** Schemas of cancelling and editing many tasks. */
import { z } from 'zod';
import { isStorableText } from '../../../shared/text/storable.ts';
import { FILTER_LIMITS } from '../../../shared/filter/filter.ts';
import { LONGEST_WAIT_MS } from '../../../shared/tasks/in-chunks.ts';
import { submissionBody } from '../../../shared/tasks/submission-body.ts';
import { listedTask } from './tasks.schema.ts';

/** A reason, for the record. */
export const reasonText = z
  .string()
  .min(1)
  .max(500)
  .refine((text) => isStorableText(text), 'must not hold U+0000 or a lone surrogate');

const { priority, queue, runAt, delayMs } = submissionBody.shape;
const when = {
  runAt: runAt
    .unwrap()
    .nullable()
    .optional()
    .describe('RFC 3339: not before this instant; null, or one that has passed: at once. Not together with delayMs.'),
  delayMs: delayMs.describe('Milliseconds from now until the task may start; 0: at once. Not together with runAt.'),
};

/** How anything is done to many. */
export const manyOrder = {
  reason: reasonText.optional().describe('Why, for the record. Required unless dryRun is true.'),
  dryRun: z.boolean().optional().describe('True: only say how many there are, with ten samples.'),
  cursor: z
    .string()
    .max(1_024)
    .optional()
    .describe('From `nextCursor`, with the same filter: the same operation goes on.'),
  withinMs: z
    .int()
    .min(100)
    .max(LONGEST_WAIT_MS)
    .default(LONGEST_WAIT_MS)
    .describe('Milliseconds after which it answers, with what is done until then.'),
};

const manyBody = {
  filter: z
    .string()
    .max(FILTER_LIMITS.length)
    .optional()
    .describe('The tasks that this filter selects, as in `GET /v1/tasks`.'),
  all: z.boolean().optional().describe('True: yes, a filter that selects everything is meant.'),
  ...manyOrder,
};

/** Body of a cancel of many. */
export const cancelManyBody = z.strictObject(manyBody);

/** Body of an edit of many. */
export const editManyBody = z.strictObject({
  ...manyBody,
  changes: z
    .strictObject({
      priority,
      queue: queue.describe('Another queue.'),
      ...when,
    })
    .describe('What shall be different; what is absent stays.'),
});

/** Body of an edit of one task. */
export const editBody = z
  .strictObject({
    priority: priority.describe('0 to 9, 9 first.'),
    queue: queue.describe('Another queue.'),
    ...when,
    deadline: submissionBody.shape.deadline
      .unwrap()
      .nullable()
      .optional()
      .describe('RFC 3339: it expires when it has not started by then. null: it never expires.'),
    input: submissionBody.shape.input.optional().describe('Another input, as a whole. Needs the role editor.'),
    reason: reasonText.optional().describe('Why, for the record.'),
  })
  .describe('What shall be different; what is absent stays.');

/** Headers of an edit. */
export const editHeaders = z.looseObject({
  'if-match': z
    .string()
    .max(200)
    .optional()
    .describe('Only where the task is still as that ETag says, else 412 precondition-failed.'),
});

/** What is answered of anything that is done to many. */
export const manyAnswer = {
  dryRun: z.boolean(),
  operation: z.uuid().optional().describe('Id of the line in the audit; the line of each task names it.'),
  selected: z.int().optional().describe('Of a dry run: how many there are.'),
  samples: z.array(listedTask).optional().describe('Of a dry run: the ten newest.'),
  skipped: z.int().optional().describe('Tasks that ended, began to run, or were as wanted, before it was their turn.'),
  isPartial: z
    .boolean()
    .describe('True where time was over first: of a dry run there may be more; else nextCursor goes on.'),
  nextCursor: z.string().optional().describe('Where to go on; absent where all is done.'),
};

/** What a cancel of many answers. */
export const cancelManyAnswer = z.object({
  ...manyAnswer,
  cancelled: z.int().optional().describe('Tasks that waited.'),
  requested: z.int().optional().describe('Tasks that run: their workers abort them.'),
});

/** What an edit of many answers. */
export const editManyAnswer = z.object({ ...manyAnswer, edited: z.int().optional() });
