/**
 * When a schedule is due. Pure: the same instants come out on every machine, whatever its clock says.
 *
 * A cron pattern names times on the wall of a zone. Croner lists them as if the wall never changed (in UTC); Temporal says which instant each is.
 * Where clocks go forward, a time that does not exist is the first instant after the gap; where they go back, a time that exists twice is the
 * first of both. So each time of the pattern comes once, and two that fall on one instant are one.
 */
import { createHash } from 'node:crypto';
import { Cron } from 'croner';
import { Temporal } from 'temporal-polyfill';

/** When a schedule is due. */
export type Timing =
  | {
      readonly kind: 'cron';
      /** Five fields, or six with seconds in front, or a nickname such as `@daily`. */
      readonly cron: string;
      /** IANA name. */
      readonly timeZone: string;
    }
  /** `everyMs` milliseconds, counted from the instant `fromMs`, whatever clocks on walls do. */
  | { readonly kind: 'interval'; readonly everyMs: number; readonly fromMs: number }
  | { readonly kind: 'once'; readonly atMs: number };

/** The instants of a schedule, in milliseconds since 1970. */
export interface Calendar {
  /** The first instant after this one; `undefined` where none comes any more. */
  after(instantMs: number): number | undefined;
}

/** 9999-12-31, where RFC 3339 ends. */
const LAST_MS = Date.UTC(9999, 11, 31);
/** Instants that one search looks at before it takes a shorter time. */
const MOST_WALKED = 500;

/** Makes the calendar of a timing. Throws an Error whose message says what is wrong with a pattern. */
export function calendarOf(timing: Timing): Calendar {
  if (timing.kind === 'once') return { after: (ms) => (ms < timing.atMs ? timing.atMs : undefined) };
  if (timing.kind === 'cron') return wallCalendar(timing.cron, timing.timeZone);
  const { everyMs, fromMs } = timing;
  return {
    after: (ms) => {
      const next = ms < fromMs ? fromMs : fromMs + (Math.floor((ms - fromMs) / everyMs) + 1) * everyMs;
      return next > LAST_MS ? undefined : next;
    },
  };
}

/** What is wrong with a cron pattern; `undefined` where it is right. */
export function cronFault(pattern: string): string | undefined {
  try {
    const first = readPattern(pattern).nextRun(new Date(0));
    return first === null ? 'names a day that no calendar has' : undefined;
  } catch (thrown) {
    const said = (thrown as Error).message.replace(/^Cron(Pattern)?: /, '');
    return `is not a cron pattern of five fields (minute, hour, day, month, weekday), or six with seconds in front: ${said}`;
  }
}

/** True for the name of an IANA time zone that this machine knows. */
export function isTimeZone(name: string): boolean {
  if (!/^[A-Za-z]/.test(name)) return false; // offsets: they know nothing of summer
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false; // that is how Intl says it
  }
}

/**
 * The last instants of a calendar within a time, both ends included, at most `most` of them, in their order. Does not walk the whole time: that
 * may be a year of seconds.
 */
export function latestWithin(
  calendar: Calendar,
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
  most: number,
): readonly number[] {
  const walk = (afterMs: number): readonly number[] | 'many' => {
    const found: number[] = [];
    for (let at = calendar.after(afterMs); at !== undefined && at <= toMs; at = calendar.after(at)) {
      if (found.push(at) > MOST_WALKED + most) return 'many';
    }
    return found;
  };
  const wholeMs = toMs - fromMs + 1;
  if (wholeMs <= 0) return [];
  // Spans before `toMs`: in `few` there are fewer than asked for, in `many` more than are to be walked.
  let few = 0;
  let many: number | undefined;
  for (let span = Math.min(1_000, wholeMs); ;) {
    const found = walk(toMs - span);
    if (found === 'many') many = span;
    else if (found.length >= most || span === wholeMs) return found.slice(-most);
    else few = span;
    span = many === undefined ? Math.min(few * 4, wholeMs) : Math.floor((few + many) / 2);
    // Instants are milliseconds apart at least, so that a span of `many` shrinks to one that is not.
    if (span === few) return [];
  }
}

/** How much later than its instant an occurrence starts, in milliseconds: the same whoever asks, spread evenly below `jitterMs`. */
export function jitterOf(scheduleId: string, atMs: number, jitterMs: number): number {
  if (jitterMs === 0) return 0;
  const hash = createHash('sha256').update(`${scheduleId}/${atMs}`).digest().readUInt32BE();
  return Math.floor((hash / 2 ** 32) * jitterMs);
}

/** The date on the wall of a zone at an instant: `2026-01-31`. */
export function localDateOf(instantMs: number, timeZone: string): string {
  return Temporal.Instant.fromEpochMilliseconds(instantMs).toZonedDateTimeISO(timeZone).toPlainDate().toString();
}

function readPattern(pattern: string): Cron {
  // With whitespace or a nickname it is no date, which croner would take as well.
  if (!/^(@[a-z]+|\S+(\s+\S+)+)$/i.test(pattern)) throw new Error('fields are separated by spaces');
  return new Cron(pattern, { timezone: 'UTC', paused: true, mode: '5-or-6-parts' });
}

function wallCalendar(pattern: string, timeZone: string): Calendar {
  const cron = readPattern(pattern);
  return {
    after: (instantMs) => {
      const now = Temporal.Instant.fromEpochMilliseconds(instantMs).toZonedDateTimeISO(timeZone).toPlainDateTime();
      let wall: Date | null = new Date(now.toZonedDateTime('UTC').epochMilliseconds);
      for (;;) {
        wall = cron.nextRun(wall);
        if (wall === null || wall.getTime() > LAST_MS) return undefined;
        const atMs = instantOf(wall.getTime(), timeZone);
        // In an hour that comes twice, its times have been before.
        if (atMs > instantMs) return atMs;
      }
    },
  };
}

/** The instant of a time on the wall, given as if the wall hung in UTC. */
function instantOf(wallMs: number, timeZone: string): number {
  const wall = Temporal.Instant.fromEpochMilliseconds(wallMs).toZonedDateTimeISO('UTC').toPlainDateTime();
  const at = wall.toZonedDateTime(timeZone, { disambiguation: 'earlier' });
  if (at.toPlainDateTime().equals(wall)) return at.epochMilliseconds;
  // It does not exist, and what Temporal gives lies before the gap by as much.
  return at.getTimeZoneTransition('next')?.epochMilliseconds ?? at.epochMilliseconds;
}
