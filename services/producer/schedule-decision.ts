/** What becomes of the instants of a schedule: started, put off, or skipped and why. Pure. */
import { jitterOf, latestWithin } from '../../shared/schedules/calendar.ts';
import type { Calendar } from '../../shared/schedules/calendar.ts';
import type { Schedule } from '../../shared/schedules/read-schedule.ts';

/** An instant of a schedule, and why it is one. */
export interface Slot {
  readonly atMs: number;
  /** `due`: its time has come; `catchUp`: it had come while no producer ran; `manual`: somebody asked for it. */
  readonly cause: 'due' | 'catchUp' | 'manual';
}

/**
 * Why nothing was started. `overlap`: the run before had not ended; `full`: another waits for that already; `replaced`: a later one waits in its
 * place; `missed`: no producer ran; `paused`; `refused`: what was to be started is not accepted; `unique`: another flow is about the same thing.
 */
export const SKIP_REASONS = ['overlap', 'full', 'replaced', 'missed', 'paused', 'refused', 'unique'] as const;
/** One of them. */
export type SkipReason = (typeof SKIP_REASONS)[number];

/** An instant at which nothing was started. */
export interface Skip {
  readonly slot: Slot;
  readonly why: SkipReason;
  /** It stands for all instants from this one on. */
  readonly fromMs?: number;
}

/** How a schedule stands. */
export interface Standing {
  readonly id: string;
  readonly schedule: Schedule;
  readonly calendar: Calendar;
  /** The next instant that was not decided about. */
  readonly nextAtMs: number | undefined;
  /** Now, by Postgres. */
  readonly nowMs: number;
  /** Runs that have not ended. */
  readonly running: number;
  /** What waits for the end of a run, in its order. */
  readonly waiting: readonly Slot[];
}

/** What is to be done. */
export interface Decision {
  readonly start: readonly Slot[];
  readonly wait: readonly Slot[];
  readonly skip: readonly Skip[];
  /** True where what runs is to be cancelled, since something waits for its end. */
  readonly cancelsRunning: boolean;
  readonly nextAtMs: number | undefined;
  /** When to look again; `undefined`: never. */
  readonly wakeAtMs: number | undefined;
}

/** Milliseconds after which the runs of a schedule are looked at: where something waits for their end, and else. */
const LOOK_AGAIN_MS = 1_000;
const LOOK_AT_RUNS_MS = 60_000;
/** Due instants of one schedule that one look decides about. */
const MOST_AT_ONCE = 200;

/** Decides about all instants that are due. `lateAfterMs`: how late an instant may be that was not missed. */
export function decide(standing: Standing, lateAfterMs: number): Decision {
  const { schedule, nowMs } = standing;
  const { due, missed, nextAtMs } = dueOf(standing, lateAfterMs);
  const caughtUp = catchUp(schedule, missed, due.length);
  const madeUpFromMs = caughtUp[0]?.atMs ?? (missed.lastMs ?? 0) + 1;
  const skip = passedOver(standing, { fromMs: missed.fromMs, toMs: madeUpFromMs - 1 }, 'missed');
  const places = new Places(standing);
  for (const slot of [...caughtUp, ...due]) places.add(slot);
  const { start, wait, skipped, left } = places;
  const isWaiting = left.length > 0;
  const nextDueMs = nextAtMs === undefined ? undefined : nextAtMs + jitterOf(standing.id, nextAtMs, schedule.jitterMs);
  const isRunning = standing.running + start.length > 0;
  const looks = [
    ...(nextDueMs === undefined ? [] : [nextDueMs]),
    ...(isWaiting ? [nowMs + LOOK_AGAIN_MS] : []),
    ...(isRunning ? [nowMs + LOOK_AT_RUNS_MS] : []),
  ];
  return {
    start,
    wait,
    skip: [...skip, ...skipped],
    cancelsRunning: schedule.overlap === 'cancelRunning' && isWaiting,
    nextAtMs,
    wakeAtMs: looks.length === 0 ? undefined : Math.min(...looks),
  };
}

/** Decides about a run that somebody asks for now; `undefined` where one runs and the schedule skips what overlaps. */
export function decideManual(standing: Standing): Decision | undefined {
  const places = new Places(standing);
  places.add({ atMs: standing.nowMs, cause: 'manual' });
  const { start, wait, skipped, left } = places;
  if (skipped.some(({ slot }) => slot.cause === 'manual')) return undefined;
  const { nextAtMs, nowMs, schedule } = standing;
  return {
    start,
    wait,
    skip: skipped,
    cancelsRunning: schedule.overlap === 'cancelRunning' && left.length > 0,
    nextAtMs,
    // The next round of the scheduler says what comes then.
    wakeAtMs: nowMs,
  };
}

/** What a schedule goes on with that was paused: the instants that passed meanwhile are skipped. */
export function decideResumed(standing: Standing): Decision {
  const { nextAtMs: fromMs, nowMs, calendar } = standing;
  return {
    start: [],
    wait: [],
    skip: passedOver(standing, { fromMs, toMs: nowMs }, 'paused'),
    cancelsRunning: false,
    nextAtMs: fromMs === undefined || fromMs > nowMs ? fromMs : calendar.after(nowMs),
    wakeAtMs: nowMs,
  };
}

/** One row for all instants of a time, where there are any. */
function passedOver(
  { calendar }: Standing,
  { fromMs, toMs }: { readonly fromMs: number | undefined; readonly toMs: number },
  why: SkipReason,
): readonly Skip[] {
  if (fromMs === undefined) return [];
  const [atMs] = latestWithin(calendar, { fromMs, toMs }, 1);
  if (atMs === undefined) return [];
  return [{ slot: { atMs, cause: 'due' }, why, ...(atMs === fromMs ? {} : { fromMs }) }];
}

/** Gives each slot its place, as the schedule says what may run beside what. */
class Places {
  readonly start: Slot[] = [];
  readonly wait: Slot[] = [];
  readonly skipped: Skip[] = [];
  /** What waits once all is done. */
  left: Slot[];
  readonly #overlap: Schedule['overlap'];
  readonly #most: number;
  #isBusy: boolean;

  constructor({ schedule, running, waiting }: Standing) {
    this.#overlap = schedule.overlap;
    this.#most = schedule.catchUpMost;
    this.#isBusy = running > 0;
    this.left = [...waiting];
    while (this.left.length > 0 && this.#isFree()) this.#begin(this.left.shift() as Slot);
  }

  add(slot: Slot): void {
    if (this.#isFree() && this.left.length === 0) this.#begin(slot);
    else if (slot.cause === 'catchUp' && this.#overlap !== 'cancelRunning') {
      if (this.left.length < this.#most) this.#keep(slot);
      else this.skipped.push({ slot, why: 'full' });
    } else if (this.#overlap === 'skip') this.skipped.push({ slot, why: 'overlap' });
    else if (this.#overlap === 'queue') {
      if (this.left.length === 0) this.#keep(slot);
      else this.skipped.push({ slot, why: 'full' });
    } else {
      this.skipped.push(...this.left.map((replaced) => ({ slot: replaced, why: 'replaced' as const })));
      // One that was to wait since a moment ago never did.
      this.wait.length = 0;
      this.left = [];
      this.#keep(slot);
    }
  }

  #isFree(): boolean {
    return this.#overlap === 'allow' || !this.#isBusy;
  }

  #begin(slot: Slot): void {
    this.start.push(slot);
    this.#isBusy = true;
  }

  #keep(slot: Slot): void {
    this.wait.push(slot);
    this.left.push(slot);
  }
}

interface Missed {
  readonly fromMs: number | undefined;
  readonly lastMs: number | undefined;
  /** The last of them, as many as may be caught up. */
  readonly latest: readonly number[];
}

/** Which instants are due, which were missed, and the first that is neither. */
function dueOf(
  { id, schedule, calendar, nextAtMs: firstMs, nowMs }: Standing,
  lateAfterMs: number,
): { readonly due: readonly Slot[]; readonly missed: Missed; readonly nextAtMs: number | undefined } {
  const none: Missed = { fromMs: undefined, lastMs: undefined, latest: [] };
  if (firstMs === undefined) return { due: [], missed: none, nextAtMs: undefined };
  const dueAtMs = (atMs: number): number => atMs + jitterOf(id, atMs, schedule.jitterMs);
  // What is not even late with the longest jitter was not missed.
  const lateMs = nowMs - lateAfterMs - schedule.jitterMs;
  const latest =
    firstMs > lateMs ? [] : latestWithin(calendar, { fromMs: firstMs, toMs: lateMs }, schedule.catchUpMost);
  const lastMs = latest.at(-1);
  const missed = lastMs === undefined ? none : { fromMs: firstMs, lastMs, latest };
  const due: Slot[] = [];
  let nextAtMs = lastMs === undefined ? firstMs : calendar.after(lastMs);
  while (nextAtMs !== undefined && dueAtMs(nextAtMs) <= nowMs && due.length < MOST_AT_ONCE) {
    due.push({ atMs: nextAtMs, cause: 'due' });
    nextAtMs = calendar.after(nextAtMs);
  }
  return { due, missed, nextAtMs };
}

/** What of the missed is made up for. */
function catchUp({ catchUp: rule }: Schedule, { latest }: Missed, due: number): readonly Slot[] {
  const kept = rule === 'all' ? latest : rule === 'last' && due === 0 ? latest.slice(-1) : [];
  return kept.map((atMs) => ({ atMs, cause: 'catchUp' }));
}
