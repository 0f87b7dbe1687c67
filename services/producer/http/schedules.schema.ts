/** What the API of schedules takes and answers, as the OpenAPI document shows it. */
import { z } from 'zod';
import { pageQuery } from '../../../shared/http/paging.ts';
import { scheduleBody, scheduleMembers, scheduleName } from '../../../shared/schedules/schedule-body.ts';
import { CATCH_UP_RULES, OVERLAP_RULES } from '../../../shared/schedules/schedule-rules.ts';
import { MOST_NEXT } from '../schedules.ts';
import { SKIP_REASONS } from '../schedule-decision.ts';
import { reasonText } from './many.schema.ts';

const instant = z.iso.datetime({ offset: true });
const reason = reasonText.optional().describe('Why, for the record.');

/** A schedule in a list. */
export const listedSchedule = z.object({
  name: z.string(),
  description: z.string().optional(),
  state: z
    .enum(['active', 'paused', 'finished', 'unreadable'])
    .describe(
      'finished: no instant comes any more, as after the one of `at`. unreadable: its definition is none, so that nothing is started; an edit of all its members mends it.',
    ),
  cron: z.string().optional(),
  timeZone: z.string().optional(),
  everyMs: z.int().optional(),
  from: instant.optional(),
  at: instant.optional(),
  starts: z
    .object({
      kind: z.enum(['task', 'flow']),
      name: z.string().describe('The type of the task, or the name of the flow.'),
    })
    .optional(),
  overlap: z.enum(OVERLAP_RULES).optional(),
  catchUp: z.enum(CATCH_UP_RULES).optional(),
  catchUpMost: z.int().optional(),
  jitterMs: z.int().optional(),
  nextAt: instant.optional().describe('The next instant, without jitter.'),
  running: z.int().min(0).describe('Runs that have not ended, counted up to 200.'),
  waiting: z.int().min(0).describe('Instants that wait for the end of a run.'),
  pausedAt: instant.optional(),
  pausedBy: z.string().optional(),
  pauseReason: z.string().optional(),
  source: z.enum(['api', 'code']).describe('code: defined beside task types, and changed there.'),
  createdAt: instant,
  createdBy: z.string(),
  updatedAt: instant,
  updatedBy: z.string(),
});

/** A whole schedule. */
export const wholeSchedule = listedSchedule.extend({
  task: z.record(z.string(), z.unknown()).optional().describe('The task that it starts, as it was given.'),
  flow: z.record(z.string(), z.unknown()).optional().describe('The flow that it starts, as it was given.'),
  next: z.array(instant).describe('The next ten instants, without jitter. Of a paused one: when it would run.'),
});

/** What became of an instant. */
export const occurrence = z.object({
  at: instant.describe('The instant that it is for.'),
  from: instant.optional().describe('It stands for all instants from this one on.'),
  cause: z
    .enum(['due', 'catchUp', 'manual'])
    .describe('due: its time had come; catchUp: it was made up for later; manual: somebody asked for it.'),
  state: z.enum(['waiting', 'started', 'skipped']).describe('waiting: for the end of the run before.'),
  why: z
    .enum(SKIP_REASONS)
    .optional()
    .describe(
      'Why it was skipped. overlap: the run before had not ended; full: another waited for that already; replaced: a later one waited in its place; missed: no producer ran; paused; refused: what is started is not accepted, see detail; unique: the flow in detail is about the same thing.',
    ),
  detail: z.string().optional(),
  taskId: z.uuid().optional(),
  flowId: z.uuid().optional(),
  runState: z.string().optional().describe('The state of the task, or of the flow.'),
  startedAt: instant.optional().describe('When the run began.'),
  finishedAt: instant.optional(),
  decidedAt: instant,
  askedBy: z.string().optional(),
});

/** What a dry run answers. */
export const schedulePlan = z.object({ dryRun: z.literal(true), name: z.string(), next: z.array(instant) });

/** Pages. */
export const schedulePage = z.object({ items: z.array(listedSchedule), nextCursor: z.string().optional() });
export const occurrencePage = z.object({ items: z.array(occurrence), nextCursor: z.string().optional() });
export const scheduleListQuery = pageQuery;

/** The name in the path. */
export const scheduleParams = z.object({ name: z.string().describe('Name of the schedule.') });

/** Query of the next instants. */
export const nextQuery = z.strictObject({
  count: z.coerce.number().int().min(1).max(MOST_NEXT).default(10).describe(`1 to ${MOST_NEXT}.`),
});
/** Its answer. */
export const nextAnswer = z.object({ name: z.string(), timeZone: z.string(), next: z.array(instant) });

const editable = Object.fromEntries(
  Object.entries(scheduleMembers).map(([name, member]) => [
    name,
    // What is left out stays as it is: a default would change it.
    (member instanceof z.ZodDefault ? (member.unwrap() as z.ZodType) : member).nullish(),
  ]),
);

/** Body of an edit: a member that is given takes the place of what was, `null` takes it away. */
export const editScheduleBody = z
  .strictObject({ ...editable, reason })
  .describe('Members as of a new schedule; null takes one away.');

/** Body of what is done to one. */
export const scheduleOrderBody = z.strictObject({ reason });

/** Answer to a removal. */
export const removedAnswer = z.object({ name: z.string(), removed: z.literal(true) });

/** Answer to a run. */
export const runAnswer = z.object({
  name: z.string(),
  at: instant,
  taskId: z.uuid().optional(),
  flowId: z.uuid().optional(),
  waiting: z.literal(true).optional().describe('It starts once the run before has ended.'),
});

export { scheduleBody, scheduleName };
