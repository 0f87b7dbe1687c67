/** What a flow is asked for as, over HTTP: plain JSON, a graph of steps by their names. */
import { z } from 'zod';
import { isStorableText } from '../text/storable.ts';
import { jsonObject } from '../tasks/check-by-schema.ts';
import { submissionBody } from '../tasks/submission-body.ts';

/** Tasks of one flow at most. */
export const MOST_STEPS = 20_000;
/** What `onFailure` of a flow may say. */
export const FLOW_RULES = ['stop', 'continue', 'compensate'] as const;
/** What `onFailure` of a step may say. */
export const STEP_RULES = ['stop', 'continue', 'ignore'] as const;

const LONGEST_NAME = 100;
const LONGEST_DELAY_MS = 31_622_400_000;

const text = (most: number): z.ZodString =>
  z
    .string()
    .min(1)
    .max(most)
    .refine((given) => isStorableText(given), 'must not hold U+0000 or a lone surrogate');

const NAME_RULE = `must be a letter, then letters, digits, "_", "." or "-"; at most ${LONGEST_NAME}`;
/** Name of a step, a signal or a flow. */
export const stepName = z.string(NAME_RULE).regex(/^[A-Za-z][A-Za-z0-9_.-]{0,99}$/, NAME_RULE);

const name = stepName;
const { type, queue, priority, maxAttempts } = submissionBody.shape;
const input = jsonObject
  .optional()
  .describe(
    'The input. `{"$result": "check"}` anywhere in it stands for the result of that step, `{"$result": "check", "path": "/id"}` for a part of it (RFC 6901), `{"$signal": "approved"}` for what came with a signal. A step refers to a group as to the list of its results. Absent: the result of the one step before it; of several, an object with each under its name.',
  );

const task = {
  type,
  input,
  queue,
  priority,
  maxAttempts,
};

/** One step. */
export const step = z.strictObject({
  ...task,
  inputs: z
    .array(jsonObject)
    .optional()
    .describe(
      'In place of input: a group, one task for each; 0 to 10 000. Of none: steps of the flow may add some while they run.',
    ),
  after: z
    .array(name)
    .optional()
    .describe('Steps that must have succeeded before. Those that its input refers to are meant anyway.'),
  delayMs: z
    .int()
    .min(0)
    .max(LONGEST_DELAY_MS)
    .optional()
    .describe('Milliseconds that it waits once the steps before it are done.'),
  onFailure: z
    .enum(STEP_RULES)
    .optional()
    .describe(
      'Once it has ended otherwise than by success: stop (cancel what has not begun), continue (cancel what comes after it alone), ignore (go on as if it had succeeded with null). Default: as the flow says.',
    ),
  undo: z.strictObject(task).optional().describe('The task that undoes it, where the flow compensates.'),
  signal: z
    .strictObject({
      name,
      timeoutMs: z
        .int()
        .min(1)
        .max(LONGEST_DELAY_MS)
        .optional()
        .describe('Milliseconds after which it expires, from when nothing but the signal is missing.'),
    })
    .optional()
    .describe('Waits for this signal as well.'),
});

/** Body of a start. */
export const flowBody = z
  .strictObject({
    name: name.describe('What kind of flow it is, to find it by.'),
    businessType: text(LONGEST_NAME).optional().describe('With businessKey: the kind of thing that it is about.'),
    businessKey: text(200)
      .optional()
      .describe(
        'The thing that it is about. One flow at a time: another with the same type and key is answered with the first, unless that failed or was cancelled.',
      ),
    onConflict: z
      .enum(['return', 'reject'])
      .default('return')
      .describe('What to answer while another flow holds the business key.'),
    onFailure: z
      .enum(FLOW_RULES)
      .default('stop')
      .describe(
        'Once a step has ended otherwise than by success: stop (cancel what has not begun; the flow ends failed), continue (cancel what comes after that step; it ends partial), compensate (stop, then undo what succeeded, the last first).',
      ),
    steps: z.record(name, step).describe('The steps by their names. Those that wait for nothing start at once.'),
    failureStep: z
      .strictObject(task)
      .optional()
      .describe(
        'A task that runs once when the flow fails. Its input is told what failed, where it says nothing else.',
      ),
    tags: submissionBody.shape.tags,
    dryRun: z.boolean().default(false).describe('True: only say what would be done.'),
  })
  .describe('A flow as it is asked for.');

/** What the schema gives. */
export type FlowBody = z.output<typeof flowBody>;
/** One of its steps. */
export type StepBody = z.output<typeof step>;
/** A task of it that is made when it comes to that. */
export type LaterBody = NonNullable<StepBody['undo']>;
