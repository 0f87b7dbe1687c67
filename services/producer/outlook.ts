/** When a task may end or start: pure functions over what was measured. What they give is an estimate, and never decides anything. */
import { isTerminal } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';

/** How long runs of a type take, in milliseconds. */
export interface RunTimes {
  readonly p50Ms: number;
  readonly p90Ms: number;
}

/** What is looked at of a task. Instants are of Postgres's clock, `now` too. */
export interface LookedAt {
  readonly state: TaskState;
  readonly now: Date;
  readonly runAt: Date | undefined;
  readonly startedAt: Date | undefined;
  readonly progress: { readonly fraction: number; readonly at: Date } | undefined;
}

/** When a running attempt may end. */
export interface EstimatedFinish {
  readonly secondsLeft: number;
  readonly at: Date;
  /** `pace`: how fast this run came this far. `history`: how long runs of its type take. `both`: the more of the first, the further it is. */
  readonly from: 'pace' | 'history' | 'both';
}

/** When a waiting task may start: half of such tasks have started by `atP50`, nine of ten by `atP90`. */
export interface EstimatedStart {
  /** Tasks that are started before it, and itself: 1 is the next. Absent where it waits for an instant. */
  readonly position?: number;
  /** Absent, as the others below are, where its queue was not drained lately. */
  readonly secondsP50?: number;
  readonly secondsP90?: number;
  readonly atP50?: Date;
  readonly atP90?: Date;
  /** `rates`: how fast its queue was drained lately. `run-at`: it waits for an instant. */
  readonly from: 'rates' | 'run-at';
}

/** What was started out of a queue within a slot of time. */
export interface QueueStart {
  readonly priority: number;
  readonly slot: number;
  readonly attempts: number;
}

/** Attempts a second that are started of tasks of a priority and above. */
export interface DrainRate {
  readonly p50PerSecond: number;
  /** Nine of ten slots were at least as fast. */
  readonly p90PerSecond: number;
}

/** A look back from a task along the ids, which are times. */
export interface AheadCount {
  readonly rowsSeen: number;
  /** Of these, the tasks that go first. */
  readonly ahead: number;
  /** Milliseconds from the first to the last row that was seen. */
  readonly seenMs: number;
  /** Milliseconds from the task back to what was started last. */
  readonly wholeMs: number;
  /** True where the look ended at its bound. */
  readonly isCut: boolean;
}

/** A fraction below this says nothing of the pace yet. */
const LEAST_FRACTION = 0.01;
const LONGEST_RETRY_AFTER_SECONDS = 5;
const SHORTEST_RETRY_AFTER_SECONDS = 2;

/** When a running attempt ends; `undefined` where nothing is known, or where it runs longer than nine of ten do. */
export function estimateFinish(task: LookedAt, runTimes: RunTimes | undefined): EstimatedFinish | undefined {
  const { state, now, startedAt, progress } = task;
  if (state !== 'running' || startedAt === undefined) return undefined;
  const ranMs = Math.max(0, now.getTime() - startedAt.getTime());
  const byHistoryMs = leftByHistoryMs(ranMs, runTimes);
  const byPaceMs = progress === undefined ? undefined : leftByPaceMs(progress, startedAt, now);
  if (byPaceMs === undefined) return byHistoryMs === undefined ? undefined : finish(now, byHistoryMs, 'history');
  if (byHistoryMs === undefined || progress === undefined) return finish(now, byPaceMs, 'pace');
  return finish(now, progress.fraction * byPaceMs + (1 - progress.fraction) * byHistoryMs, 'both');
}

/** How fast tasks of `priority` and above were started, of slots of `slotSeconds` in which any were; `undefined` where none were. */
export function drainRate(starts: readonly QueueStart[], priority: number, slotSeconds: number): DrainRate | undefined {
  const bySlot = new Map<number, number>();
  for (const { priority: of, slot, attempts } of starts) {
    if (of >= priority) bySlot.set(slot, (bySlot.get(slot) ?? 0) + attempts);
  }
  const sorted = [...bySlot.values()].toSorted((a, b) => a - b);
  const at = (share: number): number | undefined => sorted[Math.floor((sorted.length - 1) * share)];
  const [median, low] = [at(0.5), at(0.1)];
  if (median === undefined || low === undefined) return undefined;
  return { p50PerSecond: median / slotSeconds, p90PerSecond: low / slotSeconds };
}

/** The place of a task: counted, or where the look was cut, as if what was not seen were like what was. */
export function positionOf({ ahead, seenMs, wholeMs, isCut, rowsSeen }: AheadCount): number {
  if (!isCut || rowsSeen === 0) return ahead + 1;
  return Math.round(ahead * Math.max(1, wholeMs / Math.max(1, seenMs))) + 1;
}

/** When a task at a place starts. */
export function startByRates(now: Date, position: number, rate: DrainRate | undefined): EstimatedStart {
  if (rate === undefined) return { position, from: 'rates' };
  const ahead = position - 1;
  const p50Ms = (ahead / rate.p50PerSecond) * 1_000;
  return start(now, { p50Ms, p90Ms: Math.max(p50Ms, (ahead / rate.p90PerSecond) * 1_000) }, 'rates', position);
}

/** When a task that waits for an instant starts, provided that a slot is free then. */
export function startAtInstant({ now, runAt }: LookedAt): EstimatedStart | undefined {
  if (runAt === undefined) return undefined;
  const leftMs = Math.max(0, runAt.getTime() - now.getTime());
  return start(now, { p50Ms: leftMs, p90Ms: leftMs }, 'run-at');
}

/** As seconds and instants. */
function start(now: Date, { p50Ms, p90Ms }: RunTimes, from: EstimatedStart['from'], position?: number): EstimatedStart {
  return {
    ...(position === undefined ? {} : { position }),
    secondsP50: seconds(p50Ms),
    secondsP90: seconds(p90Ms),
    atP50: new Date(now.getTime() + Math.round(p50Ms)),
    atP90: new Date(now.getTime() + Math.round(p90Ms)),
    from,
  };
}

/** Seconds after which looking again is worth it: 2 to 5, from the estimate; `undefined` for a task that has ended. */
export function retryAfterSeconds(
  state: TaskState,
  finishes: EstimatedFinish | undefined,
  starts: EstimatedStart | undefined,
): number | undefined {
  if (isTerminal(state)) return undefined;
  const left = finishes?.secondsLeft ?? starts?.secondsP50;
  if (left === undefined) return state === 'running' || state === 'pending' ? SHORTEST_RETRY_AFTER_SECONDS : 5;
  return Math.min(Math.max(Math.ceil(left), SHORTEST_RETRY_AFTER_SECONDS), LONGEST_RETRY_AFTER_SECONDS);
}

function leftByHistoryMs(ranMs: number, runTimes: RunTimes | undefined): number | undefined {
  if (runTimes === undefined) return undefined;
  if (ranMs < runTimes.p50Ms) return runTimes.p50Ms - ranMs;
  return ranMs < runTimes.p90Ms ? runTimes.p90Ms - ranMs : undefined;
}

function leftByPaceMs(
  { fraction, at }: NonNullable<LookedAt['progress']>,
  startedAt: Date,
  now: Date,
): number | undefined {
  if (fraction < LEAST_FRACTION) return undefined;
  const cameThisFarMs = Math.max(0, at.getTime() - startedAt.getTime());
  const leftThenMs = (cameThisFarMs * (1 - fraction)) / fraction;
  return Math.max(0, leftThenMs - (now.getTime() - at.getTime()));
}

const finish = (now: Date, leftMs: number, from: EstimatedFinish['from']): EstimatedFinish => ({
  secondsLeft: seconds(leftMs),
  at: new Date(now.getTime() + Math.round(leftMs)),
  from,
});

const seconds = (ms: number): number => Math.round(ms / 100) / 10;
