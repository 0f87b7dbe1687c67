/** What a schedule is asked for as, over HTTP and in code: plain JSON. */
import { z } from 'zod';
import { parseInstant } from '../amqp/message.ts';
import { stepName } from '../flows/flow-body.ts';
import { jsonObject } from '../tasks/check-by-schema.ts';
import { isStorableText } from '../text/storable.ts';
import { cronFault, isTimeZone } from './calendar.ts';
import { CATCH_UP_RULES, OVERLAP_RULES } from './schedule-rules.ts';

/** Bounds: an interval and a jitter in milliseconds; instants that are caught up. */
export const SCHEDULE_LIMITS = { leastEveryMs: 1_000, mostEveryMs: 31_622_400_000, jitterMs: 86_400_000, catchUp: 100 };

const INSTANT = 'must be an RFC 3339 instant with an offset, such as 2030-01-31T12:00:00Z';
const instant = z.string(INSTANT).refine((text) => parseInstant(text) !== undefined, INSTANT);
/** Name of a schedule: as those of flows and steps are. */
export const scheduleName = stepName;

const { leastEveryMs, mostEveryMs, jitterMs, catchUp } = SCHEDULE_LIMITS;
/** What `{"$schedule": …}` may say. */
export const SCHEDULE_REFERENCES = ['at', 'date', 'name'] as const;

/** The members of a schedule but for its name: what an edit may change. */
export const scheduleMembers = {
  description: z
    .string()
    .max(500)
    .refine(isStorableText, 'must not hold U+0000 or a lone surrogate')
    .optional()
    .describe('What it is for.'),
  cron: z
    .string()
    .max(200)
    .superRefine((text, ctx) => {
      const message = cronFault(text);
      if (message !== undefined) ctx.addIssue({ code: 'custom', message });
    })
    .optional()
    .describe(
      'Five fields (minute, hour, day of the month, month, weekday), six with seconds in front, or @hourly, @daily, @weekly, @monthly, @yearly. Where both days are given either is enough. One of cron, everyMs and at.',
    ),
  timeZone: z
    .string()
    .refine(isTimeZone, 'must be the name of an IANA time zone, such as Asia/Shanghai')
    .optional()
    .describe('IANA time zone of `cron`, and of `{"$schedule": "date"}`. Default UTC.'),
  everyMs: z
    .int()
    .min(leastEveryMs)
    .max(mostEveryMs)
    .optional()
    .describe('Milliseconds between two instants, whatever clocks on walls do.'),
  from: instant
    .optional()
    .describe(
      'With everyMs: the instant that it is counted from. Default: the start of 1970 in UTC, so that 900000 is every full quarter of an hour.',
    ),
  at: instant.optional().describe('Once, at this instant.'),
  task: jsonObject
    .optional()
    .describe(
      'The task that is started, as in `POST /v1/tasks`, without runAt, delayMs, deadline, unique, debounce and throttle. In its input `{"$schedule": "at"}` stands for the instant that the run is for, `{"$schedule": "date"}` for its date in the time zone, `{"$schedule": "name"}` for the name of the schedule. One of task and flow.',
    ),
  flow: jsonObject
    .optional()
    .describe(
      'The flow that is started, as in `POST /v1/flows`. `{"$schedule": …}` may stand in its inputs and in its businessKey.',
    ),
  overlap: z
    .enum(OVERLAP_RULES)
    .default('skip')
    .describe(
      'At an instant while the run before has not ended: skip it; queue it, one at most; allow both; cancelRunning: cancel the run before, and start once that has ended.',
    ),
  catchUp: z
    .enum(CATCH_UP_RULES)
    .default('last')
    .describe('Of instants that passed while no producer ran: none, the last one, or all up to catchUpMost.'),
  catchUpMost: z
    .int()
    .min(1)
    .max(catchUp)
    .default(10)
    .describe('With catchUp all: the last so many. They run one after another, unless overlap is allow.'),
  jitterMs: z
    .int()
    .min(0)
    .max(jitterMs)
    .default(0)
    .describe(
      'Each start is put off by a part of this, drawn anew for each instant, so that many schedules do not start at once.',
    ),
};

/** Body of a new schedule. */
export const scheduleBody = z
  .strictObject({
    name: scheduleName.describe('Its name, of which there is one.'),
    ...scheduleMembers,
    dryRun: z
      .boolean('must be true or false')
      .default(false)
      .describe('True: only check it, and say when it would run.'),
  })
  .describe('A schedule as it is asked for.');

/** What the schema gives. */
export type ScheduleBody = z.output<typeof scheduleBody>;
