/** What a run comes to in numbers: how much was done, how often it was done again and why, how long all stood still. */
import type { Evidence } from './evidence.ts';
import { groupBy } from './grouped.ts';

/** One fault that was injected. Instants are milliseconds of the wall clock. */
export interface Injected {
  readonly name: string;
  readonly target: string;
  readonly beganAtMs: number;
  /** When it was mended; of a fault that needs no mending, when it was done. */
  readonly mendedAtMs: number;
  /** True where it may stop every run: a fault of a server or of all links, not of one process. */
  readonly hitsAll: boolean;
  /** Why it could not be injected, where it could not. */
  readonly failed?: string;
}

/** The figures. */
export interface Figures {
  readonly submitted: number;
  readonly accepted: number;
  /** Submissions without an answer, or with one that promises nothing. */
  readonly unknown: number;
  readonly tasks: number;
  readonly succeeded: number;
  readonly dead: number;
  readonly cancelled: number;
  readonly expired: number;
  /** Messages that the front door refused. */
  readonly refused: number;
  /** Flows by the state in which they ended. */
  readonly flows: Readonly<Record<string, number>>;
  readonly replays: number;
  readonly runs: number;
  /** Runs beyond the first of a task, by what became of the run before. */
  readonly repeated: Readonly<Record<string, number>>;
  readonly faults: Readonly<Record<string, number>>;
  /** Longest time in milliseconds without the start of a run after a fault of this name was mended, and before the next. */
  readonly stalls: Readonly<Record<string, number>>;
  /** Processes started anew. */
  readonly restarts: number;
  /** Refused messages that the broker lost in its crash, which is documented for classic queues. */
  readonly refusedAndLost: number;
}

/** Milliseconds after a fault within which a stall is laid to it. */
const LAID_TO_FAULT_MS = 15_000;

/** Counts. */
export function countFigures(evidence: Evidence, injected: readonly Injected[]): Figures {
  const { submissions, tasks, letters, runs, presses, ends } = evidence;
  const started = runs.filter(({ event }) => event === 'started');
  const done = injected.filter(({ failed }) => failed === undefined);
  const refused = letters.filter(({ kind }) => kind === 'refused');
  const lettered = new Set(refused.map(({ messageId }) => messageId));
  return {
    submitted: submissions.length,
    accepted: submissions.filter(({ answer }) => answer === 'accepted').length,
    unknown: submissions.filter(({ answer }) => answer === 'unknown').length,
    tasks: tasks.length,
    succeeded: tasks.filter(({ state }) => state === 'succeeded').length,
    dead: tasks.filter(({ state }) => state === 'dead').length,
    cancelled: tasks.filter(({ state }) => state === 'cancelled').length,
    expired: tasks.filter(({ state }) => state === 'expired').length,
    refused: refused.length,
    flows: countBy(evidence.flows.rows, ({ state }) => state),
    replays: presses.filter(({ status }) => status === 200).length,
    runs: started.length,
    repeated: countRepeated(evidence),
    faults: countBy(done, ({ name }) => name),
    stalls: longestStalls(
      started.map(({ atMs }) => atMs),
      done,
    ),
    restarts: ends.length,
    refusedAndLost: submissions.filter(
      ({ key, kind, answer }) => kind === 'malformed' && answer === 'accepted' && !lettered.has(key),
    ).length,
  };
}

function countRepeated({ runs, attempts }: Evidence): Readonly<Record<string, number>> {
  const outcomes = new Map(attempts.map(({ taskId, attempt, outcome }) => [`${taskId}/${attempt}`, outcome]));
  const again = runs.filter(({ event, attempt }) => event === 'started' && attempt > 1);
  return countBy(again, ({ taskId, attempt }) => outcomes.get(`${taskId}/${attempt - 1}`) ?? 'unknown');
}

/** The longest gap between two runs from when a fault was mended until the next one that can stop them all began. */
function longestStalls(startsAtMs: readonly number[], faults: readonly Injected[]): Readonly<Record<string, number>> {
  const stalls: Record<string, number> = {};
  const starts = startsAtMs.toSorted((one, other) => one - other);
  for (const { name, mendedAtMs } of faults) {
    const others = faults.filter(({ hitsAll }) => hitsAll);
    // What stands still while something else is broken says nothing about this one.
    if (others.some((each) => each.beganAtMs < mendedAtMs && each.mendedAtMs > mendedAtMs)) continue;
    const next = others.filter(({ beganAtMs }) => beganAtMs >= mendedAtMs);
    const untilMs = Math.min(mendedAtMs + LAID_TO_FAULT_MS, ...next.map(({ beganAtMs }) => beganAtMs));
    const within = starts.filter((atMs) => atMs > mendedAtMs && atMs < untilMs);
    const edges = [mendedAtMs, ...within, ...(starts.some((atMs) => atMs >= untilMs) ? [untilMs] : [])];
    const gaps = edges.slice(1).map((atMs, index) => atMs - (edges[index] ?? atMs));
    stalls[name] = Math.max(stalls[name] ?? 0, ...gaps);
  }
  return stalls;
}

function countBy<T>(items: readonly T[], nameOf: (item: T) => string): Readonly<Record<string, number>> {
  return Object.fromEntries([...groupBy(items, nameOf)].map(([name, group]) => [name, group.length]));
}
