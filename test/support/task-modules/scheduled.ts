/** A task type with the schedules that start it. */
import { z } from 'zod';
import { defineSchedule, scheduled } from '../../../shared/schedules/define-schedule.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';

export const settle = defineTask({
  name: 'settle.day',
  input: z.strictObject({ day: z.string(), round: z.int() }),
  run: ({ day }) => ({ day }),
});

export const nightly = defineSchedule({
  name: 'nightly',
  cron: '0 2 * * *',
  timeZone: 'Asia/Shanghai',
  task: settle,
  input: { day: scheduled.date, round: 1 },
  tags: ['nightly'],
});

export const weekly = defineSchedule({
  name: 'weekly',
  everyMs: 604_800_000,
  overlap: 'queue',
  flow: { name: 'week', steps: { settle: { type: 'settle.day', input: { day: { $schedule: 'date' }, round: 2 } } } },
});
