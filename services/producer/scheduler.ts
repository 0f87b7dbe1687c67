/**
 * Starts what schedules say when its time has come. Any number of producers share the work without a leader: who decides about a schedule holds its row,
 * and of each instant there is one row of what became of it. The time is Postgres's, so that clocks of machines do not matter.
 */
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import { toError } from '../../shared/errors/to-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import { execute, run } from '../../shared/postgres/statement.ts';
import { runSplitting } from '../../shared/postgres/split.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { lockDue, scheduleOf } from '../../shared/schedules/store.ts';
import type { ScheduleRow } from '../../shared/schedules/store.ts';
import { cancelEach } from './cancel.ts';
import { endFlow } from './flows.ts';
import { carryOut, standingsOf } from './occurrences.ts';
import type { OccurrencesDeps, RunUnderWay } from './occurrences.ts';
import { decide } from './schedule-decision.ts';
import { findDueSchedules, putOffSchedule } from './schedules.sql.ts';

/** How the scheduler runs. */
export interface SchedulerOptions {
  /** Milliseconds between rounds while nothing is due: what a start may be late by. */
  readonly intervalMs: number;
  /** Milliseconds after which an instant was missed, and is caught up as its schedule says. */
  readonly lateAfterMs: number;
}

/** Schedules that one transaction decides about. */
const MOST_TOGETHER = 50;

/** Makes the loop. */
export function createScheduler(
  deps: OccurrencesDeps & Omit<LoopDeps, 'round'>,
  { intervalMs, lateAfterMs }: SchedulerOptions,
): Loop {
  const { db, log } = deps;

  /** Says of each whether it was decided about here. */
  const decideAbout = async (ids: readonly string[]): Promise<readonly boolean[]> => {
    const { carriedOut, decided } = await inTransaction(db, async (tx) => {
      const rows = await lockDue(tx, ids);
      const readable = rows.filter((row) => isReadable(row));
      for (const row of rows) if (!readable.includes(row)) await execute(tx, putOffSchedule, row.id);
      const decisions = (await standingsOf(tx, readable)).map((locked) => ({
        locked,
        decision: decide(locked.standing, lateAfterMs),
      }));
      return { carriedOut: await carryOut(tx, deps, decisions, undefined), decided: decisions };
    });
    carriedOut.after();
    for (const { locked, decision } of decided) {
      if (decision.cancelsRunning) await cancelSuperseded(deps, locked.row.name, locked.runs);
    }
    return ids.map((id) => decided.some(({ locked }) => locked.row.id === id));
  };

  const isReadable = (row: ScheduleRow): boolean => {
    try {
      scheduleOf(row);
      return true;
    } catch (thrown) {
      log.error('schedule cannot be read', { schedule: row.name, err: toError(thrown) });
      return false;
    }
  };

  const round = async (): Promise<boolean> => {
    const ids = (await run(db, findDueSchedules, MOST_TOGETHER)).map(({ id }) => id);
    if (ids.length === 0) return false;
    const moved = await runSplitting(db, ids, decideAbout, async (id, thrown) => {
      log.error('schedule cannot be decided about', { scheduleId: id, err: toError(thrown) });
      await execute(db, putOffSchedule, id);
      return false;
    });
    return moved.length === MOST_TOGETHER && moved.includes(true);
  };
  return new Loop({ ...deps, round }, { name: 'scheduler', intervalMs });
}

/** Cancels runs in whose place another waits. */
export async function cancelSuperseded(
  deps: OccurrencesDeps,
  name: string,
  runs: readonly RunUnderWay[],
): Promise<void> {
  const actor: Actor = { name: `schedule:${name}`, role: 'operator' };
  const order = { actor, reason: 'the next run of the schedule is due' };
  const left = runs.filter(({ isCancelled }) => !isCancelled);
  await cancelEach(
    deps.db,
    left.filter(({ isFlow }) => !isFlow).map(({ id }) => id),
    order,
  );
  for (const { id } of left.filter(({ isFlow }) => isFlow)) {
    try {
      await endFlow(deps, id, order);
    } catch (thrown) {
      if (!isWarrenError(thrown, 'flow-finished') && !isWarrenError(thrown, 'flow-not-found')) throw thrown;
    }
  }
}
