/** The body of `POST /v1/tasks`: one schema that checks it and describes it in the OpenAPI document. */
import { z } from 'zod';
import { isStorableText, MESSAGE_LIMITS, parseInstant } from '../amqp/message.ts';

const { delayMs, maxAttempts, tags, tagLength, businessKeyLength } = MESSAGE_LIMITS;

const integerIn = (least: number, most: number): z.ZodInt =>
  z
    .int(`must be an integer from ${least} to ${most}`)
    .min(least, `must be an integer from ${least} to ${most}`)
    .max(most, `must be an integer from ${least} to ${most}`);

const INSTANT = 'must be an RFC 3339 instant with an offset, from 1970 to 9999, such as 2030-01-31T12:00:00Z';

const instant = z.string(INSTANT).refine((text) => parseInstant(text) !== undefined, INSTANT);

const textUpTo = (longest: number): z.ZodString => {
  const rule = `must be a text of 1 to ${longest} characters`;
  return z
    .string(rule)
    .min(1, rule)
    .max(longest, rule)
    .refine(isStorableText, 'must not hold U+0000 or a lone surrogate');
};

/** The body of a submission over HTTP. Members that are not here are refused by name. */
export const submissionBody = z
  .strictObject({
    type: z.string('must be the name of a task type').describe('Name of a task type that a worker has announced.'),
    input: z
      .record(z.string(), z.unknown(), 'must be an object')
      .describe('The input: any JSON object that the input schema of the type accepts. Kept byte for byte.'),
    queue: z.string('must be the name of a queue').optional().describe('Default: the queue of the type.'),
    priority: integerIn(0, 9).optional().describe('0 to 9, 9 first. Default: that of the type.'),
    delayMs: integerIn(0, delayMs)
      .optional()
      .describe('Milliseconds from acceptance until the task may start. Not together with runAt.'),
    runAt: instant.optional().describe('RFC 3339: not before this instant. Not together with delayMs.'),
    deadline: instant.optional().describe('RFC 3339: a task that has not started by then expires.'),
    maxAttempts: integerIn(1, maxAttempts)
      .optional()
      .describe('Runs that may fail, the first included. Default: that of the type.'),
    tags: z
      .array(textUpTo(tagLength), 'must be a list of texts')
      .max(tags, `must be at most ${tags} tags`)
      .optional()
      .describe('Marks to find the task by.'),
    businessKey: textUpTo(businessKeyLength)
      .optional()
      .describe('What the task is about, to find it by: an order number.'),
  })
  .describe('A task as it is asked for.');

/** What the schema gives. */
export type SubmissionBody = z.output<typeof submissionBody>;

/** The members that a submission may have. */
export const SUBMISSION_MEMBERS: ReadonlySet<string> = new Set(Object.keys(submissionBody.shape));
