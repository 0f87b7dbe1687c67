/** What retention does next: which partitions to make, which to retire, and where to look at single tasks. No database here. */
import type { RetentionRules } from './retention-rules.ts';

/** A partition of tasks. Instants in milliseconds since 1970; ids as Postgres keeps them. */
export interface Partition {
  readonly name: string;
  readonly lowerMs: number;
  readonly upperMs: number;
  /** Rows as Postgres last counted them. */
  readonly rows: number;
  readonly bytes: number;
  /** True while more tasks stay in it than are worth moving. */
  readonly isHeld: boolean;
}

/** A range of time, from and to before. */
export interface Range {
  readonly lowerMs: number;
  readonly upperMs: number;
}

/** Partitions to retire together. */
export interface Retirement extends Range {
  readonly sources: readonly string[];
  /** What takes their place. */
  readonly target: string;
}

/** The plan of a round. */
export interface RetentionPlan {
  readonly make: readonly (Range & { readonly name: string })[];
  readonly retire: Retirement | undefined;
  /** Where tasks are removed one by one. */
  readonly walk: readonly Range[];
  /** Milliseconds since the first partition that is still here could have been retired; 0 where none could. */
  readonly behindMs: number;
}

/** Names of partitions that hold what stayed of others. */
export const REST_PREFIX = 'tasks_rest_';
/** A new range begins at least so far ahead, or a fifth of a span: what is accepted meanwhile has its place already. */
const LONGEST_LEAD_MS = 3_600_000;
const SPANS_AHEAD = 2;
const MOST_SOURCES = 6;
/** Beyond this, what stayed of earlier partitions is not moved once more. */
const MOST_REST_ROWS = 200_000;
const END_OF_TIME_MS = 2 ** 48 - 1;

/** Plans a round at an instant of Postgres's clock. `partitions` in the order of time, without the default one. */
export function planRound(rules: RetentionRules, partitions: readonly Partition[], nowMs: number): RetentionPlan {
  const ripe = partitions.filter((each) => isRipe(each, rules, nowMs));
  return {
    make: planPartitions(rules, partitions, nowMs),
    retire: planRetirement(ripe, partitions),
    walk: planWalk(rules, partitions, nowMs),
    behindMs: ripe.length === 0 ? 0 : Math.max(...ripe.map(({ upperMs }) => nowMs - rules.ripeMs - upperMs)),
  };
}

/** True for one that holds what stayed of others. */
export function isRest({ name }: Pick<Partition, 'name'>): boolean {
  return name.startsWith(REST_PREFIX);
}

function isRipe(partition: Partition, { ripeMs }: RetentionRules, nowMs: number): boolean {
  return !isRest(partition) && !partition.isHeld && partition.upperMs <= nowMs - ripeMs;
}

/** Covers the time ahead, on a grid of spans; what has passed without a partition is left to the default one. */
function planPartitions(
  { spanMs }: RetentionRules,
  partitions: readonly Partition[],
  nowMs: number,
): RetentionPlan['make'] {
  const made: (Range & { name: string })[] = [];
  let at = Math.ceil(nowMs + Math.min(LONGEST_LEAD_MS, spanMs / 5));
  const horizon = at + SPANS_AHEAD * spanMs;
  while (at < horizon) {
    const start = at;
    const there = partitions.find(({ lowerMs, upperMs }) => lowerMs <= start && start < upperMs);
    if (there !== undefined) {
      at = there.upperMs;
      continue;
    }
    const next = partitions.find(({ lowerMs }) => lowerMs > start)?.lowerMs ?? END_OF_TIME_MS;
    const onGrid = (Math.floor((start + spanMs / 4) / spanMs) + 1) * spanMs; // no sliver before the grid
    const upperMs = Math.min(onGrid, next);
    made.push({ name: partitionName(start), lowerMs: start, upperMs });
    at = upperMs;
  }
  return made;
}

/** The oldest that are ripe, as far as they lie side by side, with what stayed of those before them. */
function planRetirement(ripe: readonly Partition[], all: readonly Partition[]): Retirement | undefined {
  const [first] = ripe;
  if (first === undefined) return undefined;
  const sources = [first];
  for (const next of ripe.slice(1, MOST_SOURCES)) {
    if (next.lowerMs !== sources.at(-1)?.upperMs) break;
    sources.push(next);
  }
  const before = all.find((each) => isRest(each) && each.upperMs === first.lowerMs && each.rows <= MOST_REST_ROWS);
  if (before !== undefined) sources.unshift(before);
  const lowerMs = sources[0]?.lowerMs ?? first.lowerMs;
  const upperMs = sources.at(-1)?.upperMs ?? first.upperMs;
  return {
    sources: sources.map(({ name }) => name),
    target: `${REST_PREFIX}${stamp(upperMs)}`,
    lowerMs,
    upperMs,
  };
}

/**
 * Where single tasks may be over: the default partition, what stayed of others, what is held; all of them where some are kept for
 * less than it takes a partition to be retired.
 */
function planWalk(
  { shortestMs, ripeMs }: RetentionRules,
  partitions: readonly Partition[],
  nowMs: number,
): readonly Range[] {
  const end = Math.max(0, nowMs - shortestMs);
  if (shortestMs < ripeMs) return [{ lowerMs: 0, upperMs: end }];
  const ranges: Range[] = [];
  let at = 0;
  for (const { name, isHeld, lowerMs, upperMs } of partitions) {
    if (at < lowerMs) ranges.push({ lowerMs: at, upperMs: lowerMs });
    if (isHeld || isRest({ name })) ranges.push({ lowerMs, upperMs });
    at = upperMs;
  }
  ranges.push({ lowerMs: at, upperMs: END_OF_TIME_MS });
  return ranges
    .map(({ lowerMs, upperMs }) => ({ lowerMs, upperMs: Math.min(upperMs, end) }))
    .filter(({ lowerMs, upperMs }) => lowerMs < upperMs);
}

/** Name of a partition that begins at an instant. */
export function partitionName(lowerMs: number): string {
  return `tasks_from_${stamp(lowerMs)}`;
}

/** `20300131_180000_000`, in UTC. */
function stamp(ms: number): string {
  const iso = new Date(ms).toISOString();
  return iso.replaceAll(/[-:]/g, '').replace('T', '_').replace('.', '_').replace('Z', '');
}
