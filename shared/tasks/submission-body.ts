/** The body of `POST /v1/tasks`: one schema that checks it and describes it in the OpenAPI document. */
import { z } from 'zod';
import { CONFLICT_RULES, MESSAGE_LIMITS, parseInstant, UNIQUE_WHILE } from '../amqp/message.ts';
import { isStorableText } from '../text/storable.ts';
import { jsonObject } from './check-by-schema.ts';
import { TERMINAL_STATES } from './state-machine.ts';
import type { TaskState } from './state-machine.ts';

const { delayMs, maxAttempts, tags, tagLength, businessKeyLength, uniqueKeyLength } = MESSAGE_LIMITS;

const integerIn = (least: number, most: number): z.ZodInt => z.int().min(least).max(most);

const INSTANT = 'must be an RFC 3339 instant with an offset, from 1970 to 9999, such as 2030-01-31T12:00:00Z';

const instant = z.string(INSTANT).refine((text) => parseInstant(text) !== undefined, INSTANT);

const textUpTo = (longest: number): z.ZodString =>
  z.string().min(1).max(longest).refine(isStorableText, 'must not hold U+0000 or a lone surrogate');

const uniqueKey = textUpTo(uniqueKeyLength).describe('Of which there is one task of the type at a time.');
const withinMs = integerIn(1, delayMs);

const unique = z
  .strictObject({
    key: uniqueKey,
    while: z
      .enum(UNIQUE_WHILE)
      .optional()
      .describe(
        'How long the key is held. waiting: until the task starts. unfinished (default): until it has ended. Not together with withinMs.',
      ),
    withinMs: withinMs.optional().describe('Hold the key for so many milliseconds, whatever becomes of the task.'),
    onConflict: z
      .enum(CONFLICT_RULES)
      .optional()
      .describe(
        'What happens while another task holds the key. return (default): 200 with that task, and nothing is made. replace: where that task waits, it becomes this one, with a new input, priority and time; 200. reject: 409.',
      ),
  })
  .refine((rule) => rule.while === undefined || rule.withinMs === undefined, {
    path: ['withinMs'],
    error: 'must not be given together with while',
  });

/** The body of a submission over HTTP. Members that are not here are refused by name. */
export const submissionBody = z
  .strictObject({
    type: z.string('must be the name of a task type').describe('Name of a task type that a worker has announced.'),
    input: jsonObject.describe(
      'The input: any JSON object that the input schema of the type accepts. Kept byte for byte.',
    ),
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
    tags: z.array(textUpTo(tagLength)).max(tags).optional().describe('Marks to find the task by.'),
    businessKey: textUpTo(businessKeyLength)
      .optional()
      .describe('What the task is about, to find it by: an order number.'),
    unique: unique.optional().describe('One task at a time under a key.'),
    debounce: z
      .strictObject({
        key: uniqueKey,
        delayMs: withinMs.describe('The task starts so many milliseconds after the last submission under the key.'),
        maxWaitMs: withinMs.optional().describe('It is put off no longer than this after the first.'),
      })
      .optional()
      .describe(
        'Runs once, with the last input, when no more comes under the key. Short for unique with while waiting and onConflict replace, with a delay.',
      ),
    throttle: z
      .strictObject({ key: uniqueKey, withinMs })
      .optional()
      .describe(
        'The first task runs; further ones under the key within so many milliseconds are answered with it. Short for unique with withinMs and onConflict return.',
      ),
    webhook: z
      .strictObject({
        url: textUpTo(2_048).describe(
          'An https URL. Private addresses are refused, unless webhooks.allowHosts allows them.',
        ),
        states: z
          .array(z.enum(TERMINAL_STATES as readonly [TaskState, ...TaskState[]]))
          .min(1)
          .optional()
          .describe('The ends that are told of. Default: all.'),
      })
      .optional()
      .describe('Called when the task has ended, signed by Standard Webhooks, and tried again until it is taken.'),
  })
  .describe('A task as it is asked for.');

/** What the schema gives. */
export type SubmissionBody = z.output<typeof submissionBody>;

/** The members that a submission may have. */
export const SUBMISSION_MEMBERS: ReadonlySet<string> = new Set(Object.keys(submissionBody.shape));
