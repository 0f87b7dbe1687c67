import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { calendarOf, jitterOf, latestWithin } from '../../shared/schedules/calendar.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const FROM_MS = Date.UTC(2020, 0, 1);
const YEARS = 10;

/** Forty zones, with shifts of half an hour, at midnight, in Ramadan, southern and none at all. */
const ZONES =
  `Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Johannesburg Africa/Lagos America/Adak America/Anchorage America/Argentina/Buenos_Aires
  America/Asuncion America/Bogota America/Caracas America/Chicago America/Denver America/Godthab America/Halifax America/Havana America/Los_Angeles
  America/Mexico_City America/New_York America/Santiago America/Sao_Paulo America/St_Johns Asia/Amman Asia/Beirut Asia/Dhaka Asia/Gaza Asia/Jerusalem
  Asia/Kathmandu Asia/Kolkata Asia/Shanghai Asia/Tehran Atlantic/Azores Australia/Lord_Howe Australia/Sydney Europe/Berlin Europe/Dublin Europe/London
  Europe/Paris Pacific/Auckland Pacific/Chatham`.split(/\s+/);

/** The time on the wall of a zone, as if the wall hung in UTC. Knows nothing of what the calendar is made with. */
function wallOf(timeZone: string): (atMs: number) => number {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
  });
  return (atMs) => {
    const [month = 0, day = 0, year = 0, hour = 0, minute = 0] = (format.format(atMs).match(/\d+/g) ?? []).map(Number);
    return Date.UTC(year, month - 1, day, hour, minute);
  };
}

/** Instants at which the clocks of a zone are set, to the minute. */
function shiftsOf(timeZone: string): readonly number[] {
  const wall = wallOf(timeZone);
  const offset = (atMs: number): number => wall(atMs) - atMs;
  const shifts: number[] = [];
  for (let day = FROM_MS; day < FROM_MS + YEARS * 365.25 * DAY_MS; day += DAY_MS) {
    if (offset(day) === offset(day + DAY_MS)) continue;
    let [before, after] = [day, day + DAY_MS];
    while (after - before > MINUTE_MS) {
      const middle = before + Math.floor((after - before) / 2 / MINUTE_MS) * MINUTE_MS;
      if (offset(middle) === offset(before)) before = middle;
      else after = middle;
    }
    shifts.push(after);
  }
  return shifts;
}

const STEP_MS = 5 * MINUTE_MS;
const minutes = fc.uniqueArray(fc.integer({ min: 0, max: 11 }), { minLength: 1, maxLength: 12 });
const hours = fc.oneof(fc.constant(undefined), fc.uniqueArray(fc.integer({ min: 0, max: 4 }), { minLength: 1 }));

/** What the rule says, found by looking at the wall every five minutes. */
function byLooking(
  timeZone: string,
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
  isMeant: (wallMs: number) => boolean,
): readonly number[] {
  const wall = wallOf(timeZone);
  const seen = new Set<number>();
  const found: number[] = [];
  let last = wall(fromMs - STEP_MS);
  // An hour that comes a second time has been seen where looking begins before it.
  for (let atMs = fromMs; atMs <= toMs; atMs += STEP_MS) {
    const now = wall(atMs);
    // Times that are jumped over are those of the first instant after the gap.
    let comes = false;
    for (let missing = last + STEP_MS; missing < now; missing += STEP_MS) comes ||= isMeant(missing);
    if (comes || (isMeant(now) && !seen.has(now))) found.push(atMs);
    seen.add(now);
    last = now;
  }
  return found;
}

test.each(ZONES)(
  '%s: around each shift of ten years a time that is jumped over comes once after the gap, one that comes twice the first time',
  (timeZone) => {
    const shifts = shiftsOf(timeZone);
    fc.assert(
      fc.property(minutes, hours, (some, at) => {
        const cron = `${some.map((each) => each * 5).join(',')} ${at?.join(',') ?? '*'} * * *`;
        const calendar = calendarOf({ kind: 'cron', cron, timeZone });
        const isMeant = (wallMs: number): boolean => {
          const wall = new Date(wallMs);
          return some.includes(wall.getUTCMinutes() / 5) && (at?.includes(wall.getUTCHours()) ?? true);
        };
        for (const shift of shifts) {
          const [fromMs, toMs] = [shift - 3 * HOUR_MS, shift + 3 * HOUR_MS];
          const expected = byLooking(timeZone, { fromMs, toMs }, isMeant).map((ms) => new Date(ms).toISOString());
          const found: string[] = [];
          for (let ms = calendar.after(fromMs - 1); ms !== undefined && ms <= toMs; ms = calendar.after(ms)) {
            found.push(new Date(ms).toISOString());
          }
          expect([cron, found]).toEqual([cron, expected]);
        }
      }),
      { numRuns: 3 },
    );
  },
);

test('a daily time comes once on each day of ten years, whatever clocks do', () => {
  for (const timeZone of ['America/New_York', 'Europe/Paris', 'Australia/Lord_Howe', 'Asia/Shanghai']) {
    const calendar = calendarOf({ kind: 'cron', cron: '30 2 * * *', timeZone });
    const wall = wallOf(timeZone);
    const days = new Set<number>();
    let count = 0;
    for (
      let ms = calendar.after(FROM_MS);
      ms !== undefined && ms < FROM_MS + YEARS * 365 * DAY_MS;
      ms = calendar.after(ms)
    ) {
      days.add(Math.floor(wall(ms) / DAY_MS));
      count += 1;
    }
    expect([timeZone, count, days.size]).toEqual([timeZone, YEARS * 365, YEARS * 365]);
  }
});

test('an interval takes no notice of clocks on walls', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1_000, max: DAY_MS }), fc.integer({ min: 0, max: FROM_MS }), (everyMs, fromMs) => {
      const calendar = calendarOf({ kind: 'interval', everyMs, fromMs });
      expect(calendar.after(fromMs - 1)).toBe(fromMs);
      const next = calendar.after(FROM_MS + 12_345) ?? 0;
      expect((next - fromMs) % everyMs).toBe(0);
      expect(next).toBeGreaterThan(FROM_MS + 12_345);
      expect(next - everyMs).toBeLessThanOrEqual(FROM_MS + 12_345);
    }),
  );
});

test('the last instants of a time are found without walking all of it', () => {
  const yearly = calendarOf({ kind: 'cron', cron: '* * * 1 1 *', timeZone: 'UTC' });
  const found = latestWithin(yearly, { fromMs: Date.UTC(2000, 0, 1), toMs: Date.UTC(2026, 5, 1) }, 2);
  expect(found).toEqual([Date.UTC(2026, 0, 1, 23, 59, 58), Date.UTC(2026, 0, 1, 23, 59, 59)]);
  fc.assert(
    fc.property(
      fc.integer({ min: 1_000, max: HOUR_MS }),
      fc.integer({ min: 0, max: 5 * HOUR_MS }),
      fc.integer({ min: 1, max: 20 }),
      (everyMs, spanMs, most) => {
        const calendar = calendarOf({ kind: 'interval', everyMs, fromMs: 7 });
        const toMs = FROM_MS + spanMs;
        const all: number[] = [];
        for (let ms = calendar.after(FROM_MS - 1); ms !== undefined && ms <= toMs; ms = calendar.after(ms))
          all.push(ms);
        expect(latestWithin(calendar, { fromMs: FROM_MS, toMs }, most)).toEqual(all.slice(-most));
      },
    ),
  );
  expect(latestWithin(yearly, { fromMs: Date.UTC(2026, 1, 1), toMs: Date.UTC(2026, 5, 1) }, 2)).toEqual([]);
});

test('jitter is the same for whoever asks, below its bound, and spread', () => {
  const drawn = Array.from({ length: 1_000 }, (_, index) => jitterOf('a schedule', index * MINUTE_MS, 10_000));
  expect(jitterOf('a schedule', 0, 10_000)).toBe(drawn[0]);
  expect(Math.min(...drawn)).toBeGreaterThanOrEqual(0);
  expect(Math.max(...drawn)).toBeLessThan(10_000);
  for (let part = 0; part < 10; part += 1) {
    const within = drawn.filter((ms) => Math.floor(ms / 1_000) === part).length;
    expect(within).toBeGreaterThan(60);
  }
  expect(jitterOf('a schedule', 0, 0)).toBe(0);
});
