/** What `scheduled.ts` became: another time, one schedule gone. */
import { defineSchedule, scheduled } from '../../../shared/schedules/define-schedule.ts';
import { settle } from './scheduled.ts';

export { settle } from './scheduled.ts';

export const nightly = defineSchedule({
  name: 'nightly',
  cron: '30 2 * * *',
  timeZone: 'Asia/Shanghai',
  task: settle,
  input: { day: scheduled.date, round: 1 },
  tags: ['nightly'],
});
