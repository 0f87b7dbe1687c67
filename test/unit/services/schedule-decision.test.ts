import { expect, test } from '@jest/globals';
import { calendarOf } from '../../../shared/schedules/calendar.ts';
import { readSchedule } from '../../../shared/schedules/read-schedule.ts';
import { decide, decideManual, decideResumed } from '../../../services/producer/schedule-decision.ts';
import type { Decision, Slot, Standing } from '../../../services/producer/schedule-decision.ts';

const MINUTE_MS = 60_000;
const LATE_MS = MINUTE_MS;
const NOON = Date.UTC(2026, 5, 1, 12);

/** A schedule every five minutes, unless told otherwise, that is looked at when an instant has just come. */
function standing(members: Readonly<Record<string, unknown>>, changes: Partial<Standing> = {}): Standing {
  const body = { name: 'a', task: { type: 'a', input: {} }, cron: '*/5 * * * *', ...members };
  const read = readSchedule(JSON.stringify(body));
  if (read.kind !== 'ok') throw new Error(JSON.stringify(read.faults));
  return {
    id: 'id',
    schedule: read.value,
    calendar: calendarOf(read.value.timing),
    nextAtMs: NOON,
    nowMs: NOON + 100,
    running: 0,
    waiting: [],
    ...changes,
  };
}

const time = (ms: number | undefined): string => (ms === undefined ? '-' : new Date(ms).toISOString().slice(11, 19));
const shown = ({ start, wait, skip, nextAtMs }: Decision): unknown => ({
  start: start.map(({ atMs, cause }) => `${cause} ${time(atMs)}`),
  wait: wait.map(({ atMs, cause }) => `${cause} ${time(atMs)}`),
  skip: skip.map(
    ({ slot, why, fromMs }) => `${why} ${fromMs === undefined ? '' : `${time(fromMs)}-`}${time(slot.atMs)}`,
  ),
  next: time(nextAtMs),
});
const waits = (...times: readonly number[]): readonly Slot[] => times.map((atMs) => ({ atMs, cause: 'due' }));

test('an instant that has come is started, and the next one is the one to look at', () => {
  const decision = decide(standing({}), LATE_MS);
  expect(shown(decision)).toEqual({ start: ['due 12:00:00'], wait: [], skip: [], next: '12:05:00' });
  // Its run is looked at meanwhile, so that it is known how it ended.
  expect(time(decision.wakeAtMs)).toBe('12:01:00');
});

test('nothing is due: nothing is done', () => {
  const decision = decide(standing({}, { nextAtMs: NOON + 5 * MINUTE_MS }), LATE_MS);
  expect(shown(decision)).toEqual({ start: [], wait: [], skip: [], next: '12:05:00' });
  expect(time(decision.wakeAtMs)).toBe('12:05:00');
});

test.each([
  ['skip', { start: [], wait: [], skip: ['overlap 12:00:00'] }, false],
  ['queue', { start: [], wait: ['due 12:00:00'], skip: [] }, false],
  ['allow', { start: ['due 12:00:00'], wait: [], skip: [] }, false],
  ['cancelRunning', { start: [], wait: ['due 12:00:00'], skip: [] }, true],
])('while a run has not ended: %s', (overlap, expected, cancels) => {
  const decision = decide(standing({ overlap }, { running: 1 }), LATE_MS);
  expect(shown(decision)).toEqual({ ...expected, next: '12:05:00' });
  expect(decision.cancelsRunning).toBe(cancels);
});

test('one waits at most; the one that cancels what runs takes its place', () => {
  const waiting = waits(NOON - 5 * MINUTE_MS);
  expect(shown(decide(standing({ overlap: 'queue' }, { running: 1, waiting }), LATE_MS))).toMatchObject({
    wait: [],
    skip: ['full 12:00:00'],
  });
  expect(shown(decide(standing({ overlap: 'cancelRunning' }, { running: 1, waiting }), LATE_MS))).toMatchObject({
    wait: ['due 12:00:00'],
    skip: ['replaced 11:55:00'],
  });
  // Once the run has ended, what waits starts before what is due.
  expect(shown(decide(standing({ overlap: 'queue' }, { waiting }), LATE_MS))).toMatchObject({
    start: ['due 11:55:00'],
    wait: ['due 12:00:00'],
  });
});

const DOWN = { nextAtMs: NOON - 180 * MINUTE_MS, nowMs: NOON + 2 * MINUTE_MS };

test.each([
  ['none', 'skip', { start: [], wait: [], skip: ['missed 09:00:00-12:00:00'] }],
  ['last', 'skip', { start: ['catchUp 12:00:00'], wait: [], skip: ['missed 09:00:00-11:55:00'] }],
  [
    'all',
    'skip',
    {
      start: ['catchUp 11:50:00'],
      wait: ['catchUp 11:55:00', 'catchUp 12:00:00'],
      skip: ['missed 09:00:00-11:45:00'],
    },
  ],
  [
    'all',
    'allow',
    {
      start: ['catchUp 11:50:00', 'catchUp 11:55:00', 'catchUp 12:00:00'],
      wait: [],
      skip: ['missed 09:00:00-11:45:00'],
    },
  ],
])(
  'three hours without a producer, catchUp %s, overlap %s: no burst beyond what it says',
  (catchUp, overlap, expected) => {
    const decision = decide(standing({ catchUp, overlap, catchUpMost: 3 }, DOWN), LATE_MS);
    expect(shown(decision)).toEqual({ ...expected, next: '12:05:00' });
  },
);

test('the last of the missed is not made up for where a later one is due anyway', () => {
  const decision = decide(standing({ catchUp: 'last' }, { ...DOWN, nowMs: NOON + 100 }), LATE_MS);
  expect(shown(decision)).toMatchObject({ start: ['due 12:00:00'], skip: ['missed 09:00:00-11:55:00'] });
});

test('what is caught up does not pile up over outages', () => {
  const waiting = waits(NOON - 500 * MINUTE_MS, NOON - 400 * MINUTE_MS);
  const decision = decide(standing({ catchUp: 'all', catchUpMost: 3 }, { ...DOWN, running: 1, waiting }), LATE_MS);
  expect(shown(decision)).toMatchObject({
    start: [],
    wait: ['catchUp 11:50:00'],
    skip: ['missed 09:00:00-11:45:00', 'full 11:55:00', 'full 12:00:00'],
  });
});

test('with jitter an instant starts later, is not taken for missed, and is looked at then', () => {
  const jitterMs = 10 * MINUTE_MS;
  const decision = decide(standing({ jitterMs, cron: '0 * * * *' }, { nowMs: NOON }), LATE_MS);
  expect(decision.start).toEqual([]);
  const wakeAtMs = decision.wakeAtMs ?? 0;
  expect(wakeAtMs).toBeGreaterThan(NOON);
  expect(wakeAtMs).toBeLessThan(NOON + jitterMs);
  const later = decide(standing({ jitterMs, cron: '0 * * * *' }, { nowMs: wakeAtMs }), LATE_MS);
  expect(shown(later)).toMatchObject({ start: ['due 12:00:00'], skip: [], next: '13:00:00' });
});

test('once: at its instant, then never again', () => {
  const once = { cron: undefined, at: '2026-06-01T12:00:00Z' };
  const decision = decide(standing(once), LATE_MS);
  expect(shown(decision)).toEqual({ start: ['due 12:00:00'], wait: [], skip: [], next: '-' });
  const after = decide(standing(once, { nextAtMs: undefined, nowMs: NOON + MINUTE_MS }), LATE_MS);
  expect([shown(after), after.wakeAtMs]).toEqual([{ start: [], wait: [], skip: [], next: '-' }, undefined]);
});

test('resumed: what was due while it was paused is skipped, and it goes on with the next', () => {
  expect(shown(decideResumed(standing({}, DOWN)))).toEqual({
    start: [],
    wait: [],
    skip: ['paused 09:00:00-12:00:00'],
    next: '12:05:00',
  });
  expect(shown(decideResumed(standing({}, { nextAtMs: NOON + 5 * MINUTE_MS })))).toMatchObject({
    skip: [],
    next: '12:05:00',
  });
});

test('run now: as the schedule says what may run beside what', () => {
  const now = time(NOON + 100);
  expect(shown(decideManual(standing({})) as Decision)).toMatchObject({ start: [`manual ${now}`], next: '12:00:00' });
  expect(decideManual(standing({}, { running: 1 }))).toBeUndefined();
  const queued = decideManual(standing({ overlap: 'queue' }, { running: 1 })) as Decision;
  expect(shown(queued)).toMatchObject({ start: [], wait: [`manual ${now}`] });
  const allowed = decideManual(standing({ overlap: 'allow' }, { running: 5 })) as Decision;
  expect(shown(allowed)).toMatchObject({ start: [`manual ${now}`] });
});

test('a schedule of every second that nobody looked at for a while is decided about in parts', () => {
  const second = { cron: '* * * * * *', overlap: 'allow', catchUp: 'none' };
  const decision = decide(standing(second, { nowMs: NOON + 365 * 86_400_000 }), 3_600_000);
  expect(decision.skip).toHaveLength(1);
  expect(decision.start).toHaveLength(200);
  expect(decision.wakeAtMs).toBeLessThan(NOON + 365 * 86_400_000);
});
