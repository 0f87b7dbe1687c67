/** What the Task API takes and answers, as the OpenAPI document shows it. */
import { z } from 'zod';
import { parseInstant } from '../../../shared/amqp/message.ts';
import { FILTER_LIMITS } from '../../../shared/filter/filter.ts';
import { pageQuery } from '../../../shared/http/paging.ts';
import { submissionBody } from '../../../shared/tasks/submission-body.ts';
import { STATE_MEANINGS, TASK_STATES } from '../../../shared/tasks/state-machine.ts';
import { MOST_IN_BATCH, batchOutline } from './batch-body.ts';

const instant = z.iso.datetime({ offset: true });
const id = z.uuid();
const state = z.enum(TASK_STATES).describe(TASK_STATES.map((each) => `${each}: ${STATE_MEANINGS[each]}`).join(' '));

/** An attempt that did not succeed at once. */
const attempt = z.object({
  attempt: z.int().min(1),
  worker: id,
  startedAt: instant,
  finishedAt: instant,
  outcome: z.enum(['failed', 'timeout', 'deferred', 'interrupted', 'cancelled', 'lost']),
  codeVersion: z.string().optional(),
  error: z
    .object({
      type: z.string().optional(),
      code: z.string().optional(),
      message: z.string().optional(),
      stack: z.string().optional(),
    })
    .optional(),
});

/** A task in a list: without its bodies and attempts. */
export const listedTask = z.object({
  id,
  type: z.string(),
  queue: z.string(),
  state,
  priority: z.int().min(0).max(9),
  generation: z.int().min(1).describe('Rises with every change of a waiting task.'),
  attempt: z.int().min(0).describe('Number of the last attempt that was started; 0 before the first.'),
  failures: z.int().min(0).describe('Attempts that count against maxAttempts.'),
  maxAttempts: z.int().min(1).max(100),
  lostAttempts: z.int().min(0).describe('Attempts whose worker died.'),
  acceptedAt: instant,
  invitedAt: instant.optional(),
  runAt: instant.optional().describe('While it is scheduled or retrying: not before this.'),
  deadline: instant.optional(),
  startedAt: instant.optional().describe('Start of the last attempt.'),
  finishedAt: instant.optional(),
  worker: id.optional().describe('The worker of the last attempt.'),
  businessKey: z.string().optional(),
  externalId: z.string().optional().describe("The publisher's message_id."),
  publisher: z.string().optional(),
  correlationId: z.string().optional(),
  tags: z.array(z.string()).optional(),
  traceId: z.string().optional().describe('The trace that it belongs to, where it was submitted in one: see Traces.'),
});

const inputFile = z.object({
  id,
  bytes: z.int(),
  sha256: z.string(),
  link: z.string().describe('POST here for a link to download it.'),
});

/** A whole task. */
export const wholeTask = listedTask.extend({
  progress: z
    .object({
      fraction: z.number().min(0).max(1),
      step: z.string().optional(),
      message: z.string().optional(),
      updatedAt: instant,
    })
    .optional()
    .describe('How far a running attempt says it is.'),
  estimatedStart: z
    .object({
      position: z.int().min(1).optional().describe('1: the next of its queue. While it is pending.'),
      secondsP50: z.number().min(0).optional().describe('Absent where its queue was not drained lately.'),
      secondsP90: z.number().min(0).optional(),
      atP50: instant.optional().describe('Half of such tasks have started by then.'),
      atP90: instant.optional().describe('Nine of ten have.'),
      from: z.enum(['rates', 'run-at']).describe('How fast its queue was drained in the last minute, or its runAt.'),
    })
    .optional()
    .describe('While it waits: when it may start. Absent where that cannot be told cheaply. An estimate.'),
  estimatedFinish: z
    .object({
      secondsLeft: z.number().min(0),
      at: instant,
      from: z
        .enum(['pace', 'history', 'both'])
        .describe('The pace of this run, how long runs of its type take, or both.'),
    })
    .optional()
    .describe('While it runs: when the attempt may end. Absent where nothing is known of it. An estimate.'),
  cancelRequestedAt: instant.optional(),
  deadLetterId: id.optional().describe('The open dead letter of a dead task.'),
  flow: z
    .object({
      id,
      step: z.string().optional(),
      why: z.string().optional().describe('Why the flow cancelled it.'),
    })
    .optional()
    .describe('The flow that it is a step of.'),
  attempts: z.array(attempt).describe('Attempts that did not succeed, oldest first; the last 200.'),
  input: z
    .record(z.string(), z.unknown())
    .describe(
      'Byte for byte as it was sent; with an `inputFile` an outline of it, in which `$omitted` stands for what is large.',
    ),
  inputFile: inputFile.optional().describe('Where the whole input is, where it is too large to be shown here.'),
  result: z.unknown().optional().describe('What the handler returned.'),
  resultFile: z
    .object({
      id,
      name: z.string(),
      contentType: z.string(),
      bytes: z.int(),
      sha256: z.string(),
      link: z.string().describe('POST here for a link to download it.'),
    })
    .optional()
    .describe('What the handler returned, where it is too large to be shown here.'),
});

/** What is answered to a submission: the task as it was accepted. */
export const acceptedTask = listedTask.extend({ input: wholeTask.shape.input, inputFile: wholeTask.shape.inputFile });

/** What is answered where another task holds the unique key: that task as it is now. */
export const existingTask = listedTask
  .partial()
  .required({ id: true })
  .extend({
    duplicate: z.literal(true).describe('This task was there before; nothing was made.'),
    replaced: z.literal(true).optional().describe('It has become what was submitted.'),
  });

/** Headers of a request that may wait. */
export const preferHeader = z.looseObject({
  prefer: z
    .union([z.string(), z.array(z.string())])
    .optional()
    .describe(
      '`wait=N`: answer when the task has ended, or after N seconds (RFC 7240); 30 at most, unless configured.',
    ),
});

/** Answers are written as text, with bodies in them that no serializer may touch: the schemas are for the document. */
export const documented = (response: Readonly<Record<string, z.ZodType>>): Readonly<Record<string, z.ZodType>> =>
  response;

/** A problem document. */
export const problem = z
  .looseObject({
    type: z.string().describe('The error code.'),
    title: z.string(),
    status: z.int(),
    detail: z.string().optional(),
    instance: z.string().optional(),
    field: z.string().optional().describe('The first field at fault.'),
    reason: z.string().optional(),
    faults: z
      .array(z.object({ code: z.string(), field: z.string(), reason: z.string() }))
      .optional()
      .describe('All that is wrong with a submission.'),
  })
  .describe('RFC 9457.');

/** A batch as it is sent. Each item is checked by itself. */
export const batchBody = batchOutline.extend({ tasks: z.array(submissionBody).min(1).max(MOST_IN_BATCH) });

/** A result per item, in the order of the items. */
export const batchAnswer = z.object({
  accepted: z.int(),
  refused: z.int(),
  results: z.array(
    z.object({
      status: z.int().describe('202, 200 for a task that was there before, or the status of the problem.'),
      task: z.union([listedTask, existingTask]).optional(),
      problem: problem.optional(),
    }),
  ),
});

/** A page of tasks. */
export const taskPage = z.object({
  items: z.array(listedTask),
  nextCursor: z.string().optional().describe('Absent on the last page.'),
  partial: z
    .literal(true)
    .optional()
    .describe('The page is not full because few of the 20 000 tasks looked at fit; nextCursor looks further.'),
});

const INSTANT = 'must be an RFC 3339 instant with an offset, such as 2030-01-31T12:00:00Z';
/** An instant of a query. */
export const queryInstant = z
  .string()
  .refine((text) => parseInstant(text) !== undefined, INSTANT)
  .transform((text) => parseInstant(text) as Date)
  .optional();
/** A name of a query. */
export const queryText = z.string().min(1).max(255).optional();

/** Query of `GET /v1/tasks`. Members that are not here are refused. */
export const listQuery = z.strictObject({
  ...pageQuery.shape,
  state: z
    .union([z.enum(TASK_STATES), z.array(z.enum(TASK_STATES)).max(TASK_STATES.length)])
    .optional()
    .describe('May be given more than once.'),
  type: queryText,
  queue: queryText,
  tag: queryText,
  businessKey: queryText,
  externalId: queryText,
  filter: z
    .string()
    .max(FILTER_LIMITS.length)
    .optional()
    .describe('Terms of the filter language, beside the other members: all must fit.'),
  acceptedAfter: queryInstant.describe('RFC 3339, inclusive.'),
  acceptedBefore: queryInstant.describe('RFC 3339, exclusive.'),
});

/** The task in a path. */
export const taskParams = z.object({ id: z.string().max(100).describe('Id of the task.') });

/** Body of a cancel; may be absent. */
export const cancelBody = z.strictObject({
  reason: z.string().max(500).optional().describe('Kept in the audit.'),
});

/** Answer to a cancel. */
export const cancelAnswer = z.object({
  id,
  state: z.enum(['cancelled', 'running']),
  cancelRequestedAt: instant.optional().describe('While it runs: its worker aborts the attempt.'),
});

/** Task types. */
export const taskTypes = z.object({
  items: z.array(
    z.object({
      name: z.string(),
      queue: z.string(),
      priority: z.int(),
      maxAttempts: z.int(),
      timeoutMs: z.int(),
      isolation: z.enum(['loop', 'thread']).optional(),
      keepLogs: z.boolean().optional().describe('Whether log lines of attempts that succeed are kept too.'),
      retry: z.object({ maxAttempts: z.int(), firstDelayMs: z.int(), maxDelayMs: z.int() }).optional(),
      concurrency: z
        .object({ limit: z.int(), key: z.string().optional() })
        .optional()
        .describe('Tasks of the type that run at once, in the whole fleet; per value of a member of the input.'),
      rate: z
        .object({ limit: z.int(), perMs: z.int(), key: z.string().optional() })
        .optional()
        .describe('Tasks of the type that start within so many milliseconds, in the whole fleet.'),
      inputSchema: z
        .record(z.string(), z.unknown())
        .optional()
        .describe('JSON Schema 2020-12; absent where only workers can check the input.'),
      codeVersion: z.string(),
      announcedAt: instant,
    }),
  ),
});
