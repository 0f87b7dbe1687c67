import { expect, test } from '@jest/globals';
import { z } from 'zod';
import { defineSchedule, isScheduleInCode, scheduled } from '../../../shared/schedules/define-schedule.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';

const task = defineTask({
  name: 'settle',
  input: z.strictObject({ day: z.string(), round: z.int() }),
  run: () => undefined,
});
const input = { day: scheduled.date, round: 1 };

test('a schedule is written down as it would be asked for over HTTP', () => {
  const made = defineSchedule({ name: 'nightly', cron: '0 2 * * *', timeZone: 'Asia/Shanghai', task, input });
  expect(JSON.parse(made.definition)).toEqual({
    name: 'nightly',
    cron: '0 2 * * *',
    timeZone: 'Asia/Shanghai',
    task: { type: 'settle', input: { day: { $schedule: 'date' }, round: 1 } },
  });
  expect(made.schedule).toMatchObject({ overlap: 'skip', catchUp: 'last', jitterMs: 0, starts: 'task' });
  expect([made, { ...made }, {}, undefined].map((each) => isScheduleInCode(each))).toEqual([true, true, false, false]);
});

test('inputs are typed by the task', () => {
  // @ts-expect-error -- a round is a number
  defineSchedule({ name: 'nightly', cron: '0 2 * * *', task, input: { day: scheduled.date, round: 'one' } });
  // @ts-expect-error -- it says when
  expect(() => defineSchedule({ name: 'nightly', task, input })).toThrow(
    expect.objectContaining({ code: 'task-module-invalid' }),
  );
});

test.each([
  [{ cron: '61 * * * *' }, 'cron', /minute: 61/],
  [{ cron: '0 0 30 2 *' }, 'cron', /names a day that no calendar has/],
  [{ cron: '2030-01-01T00:00:00' }, 'cron', /separated by spaces/],
  [{ cron: '* * * * * * *' }, 'cron', /5-or-6-parts/],
  [{ cron: '0 2 * * *', timeZone: 'Mars/Olympus' }, 'timeZone', /IANA time zone/],
  [{ cron: '0 2 * * *', timeZone: '+08:00' }, 'timeZone', /IANA time zone/],
  [{ everyMs: 999 }, 'everyMs', /integer from 1000 to/],
  [{ everyMs: 60_000, from: 'yesterday' }, 'from', /RFC 3339/],
  [{ at: '2030-02-30T00:00:00Z' }, 'at', /RFC 3339/],
  [{ cron: '0 2 * * *', everyMs: 60_000 }, 'cron', /exactly one of/],
  [{ cron: '0 2 * * *', from: '2030-01-01T00:00:00Z' }, 'from', /only for everyMs/],
  [{ cron: '0 2 * * *', jitterMs: -1 }, 'jitterMs', /integer from 0 to/],
  [{ cron: '0 2 * * *', overlap: 'no' }, 'overlap', /must be one of skip, queue, allow, cancelRunning/],
  [{ cron: '0 2 * * *', name: '__proto__' }, 'name', /must be a letter/],
])('%j is refused with its field', (members, field, reason) => {
  const define = (): unknown =>
    defineSchedule({ name: 'a', task, input, ...members } as Parameters<typeof defineSchedule>[0]);
  expect(define).toThrow(expect.objectContaining({ code: 'task-module-invalid' }));
  expect(define).toThrow(new RegExp(`field: ${field}, reason: .*${reason.source}`));
});
