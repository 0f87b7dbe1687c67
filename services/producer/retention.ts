/**
 * Retention: makes partitions of tasks ahead of time, retires those whose time is over, and removes by age what else grows.
 * Replicas share the work: each step is done by whoever has the lock just then, and stands in the tables when it is done.
 */
import { toError } from '../../shared/errors/to-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { classifyFailure, isBadData } from '../../shared/postgres/failure.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import {
  beginToRetire,
  dropGuard,
  dropPartition,
  finishToRetire,
  giveUpRetirement,
  isPutOff,
  makePartition,
  readState,
  retireStep,
  walkStep,
} from './partitions.ts';
import { planRound } from './retention-plan.ts';
import type { Range, RetentionPlan } from './retention-plan.ts';
import type { RetentionRules } from './retention-rules.ts';
import { sweepFlows, sweepGroupHours, sweepLetters, sweepOccurrences, sweepReplays } from './retention-sweeps.sql.ts';

/** What retention needs. */
export interface RetentionDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<
    Metrics,
    | 'retired'
    | 'retiredPartitions'
    | 'retentionSwept'
    | 'retentionPostponed'
    | 'retentionBehindSeconds'
    | 'tasksOldestSeconds'
    | 'taskPartitions'
  >;
}

/** How retention runs. */
export interface RetentionOptions {
  /** Milliseconds between rounds. */
  readonly intervalMs: number;
  /** Tasks that are moved out of partitions at once at most; where more stay, the partitions do. Default 200 000. */
  readonly mostKept?: number;
}

const MOST_KEPT = 200_000;
/** Milliseconds that one part of a round may go on for, and the share of that time in which it works. */
const PART_MS = 5_000;
const WORKING_SHARE = 0.3;
const SWEEPS_PER_ROUND = 20;
const ROWS_PER_SWEEP = 500;
const SMALLEST_ID = '00000000-0000-0000-0000-000000000000';

/** Makes the loop. */
export function createRetention(
  deps: RetentionDeps,
  rules: RetentionRules,
  { intervalMs, mostKept = MOST_KEPT }: RetentionOptions,
): Loop {
  const { db, clock, log, metrics } = deps;
  const holdMs = rules.spanMs;
  let walkedTo = SMALLEST_ID;

  /** Does steps until one says that it was the last, with pauses. True where the time was over before. */
  const inSteps = async (signal: AbortSignal, step: () => Promise<boolean>): Promise<boolean> => {
    const untilMs = clock.monotonicMs() + PART_MS;
    for (;;) {
      const beganMs = clock.monotonicMs();
      if (!(await step())) return false;
      const nowMs = clock.monotonicMs();
      if (nowMs >= untilMs || signal.aborted) return true;
      await clock.sleep((nowMs - beganMs) * (1 / WORKING_SHARE - 1), signal);
    }
  };

  /** Does what may find a lock taken; that is no failure, the next round tries again. */
  const orLater = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await work();
    } catch (thrown) {
      if (!isPutOff(thrown)) throw thrown;
      metrics.retentionPostponed.add(1);
      log.debug('retention step put off', { err: toError(thrown) });
      return undefined;
    }
  };

  const retire = async (plan: RetentionPlan, isUnderWay: boolean, signal: AbortSignal): Promise<boolean> => {
    const next = plan.retire;
    if (!isUnderWay) {
      if (next === undefined) return false;
      if ((await orLater(async () => await beginToRetire(db, next))) !== true) return false;
    }
    try {
      return await goOnRetiring(signal);
    } catch (thrown) {
      if (isPutOff(thrown) || !isFault(thrown)) throw thrown;
      // A table that was changed meanwhile, say: the partitions are as they were, and it begins anew.
      log.warn('retirement given up', { err: toError(thrown) });
      await giveUpRetirement(db, holdMs);
      return false;
    }
  };

  const goOnRetiring = async (signal: AbortSignal): Promise<boolean> => {
    let isWalked = false;
    const isUnfinished = await inSteps(signal, async () => {
      const step = await orLater(async () => await retireStep(db, rules, { mostKept, holdMs }));
      if (step?.kind === 'held' || step?.kind === 'broken') {
        log.warn('partitions not retired', { why: step.kind, sources: step.sources.join(', '), kept: step.kept });
      }
      isWalked = step?.kind === 'walked';
      return step?.kind === 'more';
    });
    if (!isWalked) return isUnfinished;
    const { standing } = await readState(db);
    if ((await orLater(async () => await finishToRetire(db))) !== true) return false;
    metrics.retired.add(standing.retired ?? 0, 'partition');
    log.info('partitions retired', {
      sources: standing.sources?.join(', ') ?? '',
      retired: standing.retired ?? 0,
      kept: standing.kept ?? 0,
    });
    return true;
  };

  /** True where there may be more to remove; a long way without anything to remove goes on with the next round. */
  const walk = async (ranges: readonly Range[], signal: AbortSignal): Promise<boolean> => {
    let removed = 0;
    const isUnfinished = await inSteps(signal, async () => {
      const range = ranges.find(({ upperMs }) => idAtLeast(new Date(upperMs)) > walkedTo);
      if (range === undefined) {
        walkedTo = SMALLEST_ID;
        return false;
      }
      const step = await orLater(async () => await walkStep(db, rules, range, walkedTo));
      if (step === undefined) return false;
      metrics.retired.add(step.removed, 'row');
      removed += step.removed;
      walkedTo = step.isEnd ? idAtLeast(new Date(range.upperMs)) : (step.lastId ?? walkedTo);
      return true;
    });
    return isUnfinished && removed > 0;
  };

  const round = async (signal: AbortSignal): Promise<boolean> => {
    const { partitions, standing, nowMs } = await readState(db);
    const plan = planRound(rules, partitions, nowMs);
    metrics.retentionBehindSeconds.set(plan.behindMs / 1_000);
    metrics.tasksOldestSeconds.set(standing.oldest_at === null ? 0 : (nowMs - standing.oldest_at.getTime()) / 1_000);
    metrics.taskPartitions.set(partitions.length + 1);
    await orLater(async () => await dropGuard(db));
    for (const range of plan.make) {
      const isMade = await orLater(async () => await makePartition(db, range, standing.default_bytes ?? 0));
      if (isMade === true) log.info('partition made', { partition: range.name });
    }
    for (const name of standing.to_drop ?? []) {
      if ((await orLater(async () => await dropPartition(db, name))) === true) metrics.retiredPartitions.add(1);
    }
    const hasMoreToRetire = await retire(plan, standing.target !== null, signal);
    const hasMoreToWalk = await walk(plan.walk, signal);
    const hasMoreToSweep = await sweep(deps, rules);
    return hasMoreToRetire || hasMoreToWalk || hasMoreToSweep;
  };
  for (const how of ['partition', 'row'] as const) metrics.retired.add(0, how);
  return new Loop({ ...deps, round }, { name: 'retention', intervalMs });
}

/** Removes by age what is not a task. True where more of it is left. */
async function sweep(
  { db, metrics }: RetentionDeps,
  { flowsMs, lettersMs, occurrencesMs, replaysMs }: RetentionRules,
): Promise<boolean> {
  const sweeps = [
    ['dead_letters', async () => (await run(db, sweepLetters, lettersMs)).length],
    ['replays', async () => (await run(db, sweepReplays, replaysMs)).length],
    ['flows', async () => (await run(db, sweepFlows, flowsMs)).length],
    ['occurrences', async () => (await run(db, sweepOccurrences, occurrencesMs)).length],
    ['failure_group_hours', async () => (await run(db, sweepGroupHours, lettersMs)).length],
  ] as const;
  let hasMore = false;
  for (const [table, once] of sweeps) {
    let rows = ROWS_PER_SWEEP;
    for (let times = 0; times < SWEEPS_PER_ROUND && rows >= ROWS_PER_SWEEP; times += 1) {
      rows = await retryConflicts(db, once);
      metrics.retentionSwept.add(rows, table);
    }
    hasMore ||= rows >= ROWS_PER_SWEEP;
  }
  return hasMore;
}

/** True where trying the same again would fail again. */
function isFault(thrown: unknown): boolean {
  return classifyFailure(thrown) === 'other' || isBadData(thrown);
}
