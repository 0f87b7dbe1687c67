/** A schedule whose task would refuse what it starts. */
import { defineSchedule } from '../../../shared/schedules/define-schedule.ts';

export { settle } from './scheduled.ts';

export const wrong = defineSchedule({
  name: 'wrong',
  everyMs: 60_000,
  flow: { name: 'week', steps: { settle: { type: 'settle.day', input: { day: 7 } } } },
});
