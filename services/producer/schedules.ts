/** Schedules as people deal with them: shown, paused, run now. What makes and changes them is `shared/schedules/store.ts`. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { execute, run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { runOf } from '../../shared/schedules/read-schedule.ts';
import type { RunLimits, Schedule } from '../../shared/schedules/read-schedule.ts';
import { audit, findByName, lock, pageByName } from '../../shared/schedules/store.ts';
import type { ScheduleRow } from '../../shared/schedules/store.ts';
import type { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { carryOut, standingsOf } from './occurrences.ts';
import type { Locked, OccurrencesDeps } from './occurrences.ts';
import { decideManual, decideResumed } from './schedule-decision.ts';
import { cancelSuperseded } from './scheduler.ts';
import { countOccurrences, pageOccurrences, pauseSchedule } from './schedules.sql.ts';

/** A row of the history. */
export type OccurrenceRow = RowOf<typeof pageOccurrences.columns>;

/** Who does it, and why. */
export interface ScheduleOrder {
  readonly actor: Actor;
  readonly reason: string | undefined;
}

/** A schedule and how it stands. */
export interface ShownSchedule {
  readonly row: ScheduleRow;
  /** Runs that have not ended, the oldest 200 at most. */
  readonly running: number;
  /** Instants that wait for the end of a run. */
  readonly waiting: number;
}

/** Instants of one schedule that are looked at for a list of the next ones. */
export const MOST_NEXT = 100;
const LAST = new Date(Date.UTC(9999, 11, 31));

/** One by its name. Throws `schedule-not-found`. */
export async function findSchedule(db: Queryable, name: string): Promise<ShownSchedule> {
  const row = await findByName(db, name);
  if (row === undefined) throw new WarrenError('schedule-not-found', { schedule: name });
  const [shown] = await withCounts(db, [row]);
  return shown ?? { row, running: 0, waiting: 0 };
}

/** The next ones after a name, in the order of names; one more than `limit` where there are more. */
export async function listSchedules(db: Queryable, after: string, limit: number): Promise<readonly ShownSchedule[]> {
  return await withCounts(db, await pageByName(db, after, limit + 1));
}

/** What became of the instants before one, the latest first; one more than `limit` where there are more. */
export async function listOccurrences(
  db: Queryable,
  id: string,
  { before = LAST, limit }: { readonly before: Date | undefined; readonly limit: number },
): Promise<readonly OccurrenceRow[]> {
  return await run(db, pageOccurrences, id, before, limit + 1);
}

/** Refuses what a schedule would start where no door would take it. Throws with the first fault and all of them. */
export async function refuseBadRun(
  schedule: Schedule,
  catalog: Pick<TypeCatalog, 'find' | 'hasQueue' | 'refreshAfterMiss'>,
  limits: RunLimits,
): Promise<void> {
  const asked = { flowId: newId<string>(), newId, atMs: 0 };
  let made = runOf(schedule, asked, catalog, limits);
  if (made.kind === 'ok') return;
  if (made.faults.some(({ code }) => code === 'task-type-unknown' || code === 'queue-unknown')) {
    await catalog.refreshAfterMiss();
    made = runOf(schedule, asked, catalog, limits);
    if (made.kind === 'ok') return;
  }
  const { faults } = made;
  const [{ code, field, reason }] = faults;
  throw new WarrenError(code, { field, reason, faults });
}

/** Nothing of it is started until it is resumed. What runs goes on. Throws `schedule-not-found`. */
export async function pause(db: OccurrencesDeps['db'], name: string, { actor, reason }: ScheduleOrder): Promise<void> {
  await inTransaction(db, async (tx) => {
    const { id } = await lock(tx, name);
    await execute(tx, pauseSchedule, id, true, actor.name, reason ?? null);
    await audit(tx, 'schedule.pause', name, actor, { reason });
  });
}

/** It goes on from now: what was due while it was paused is skipped. Throws `schedule-not-found`. */
export async function resume(deps: OccurrencesDeps, name: string, { actor, reason }: ScheduleOrder): Promise<void> {
  const carriedOut = await inTransaction(deps.db, async (tx) => {
    const row = await lock(tx, name);
    if (row.paused_at === null) return undefined;
    await execute(tx, pauseSchedule, row.id, false, actor.name, null);
    await audit(tx, 'schedule.resume', name, actor, { reason });
    const decided = (await standingsOf(tx, [row])).map((locked) => ({
      locked,
      decision: decideResumed(locked.standing),
    }));
    return await carryOut(tx, deps, decided, undefined);
  });
  carriedOut?.after();
}

/** What became of a run that was asked for: the id of what was started, or `undefined` where it waits for the end of another. */
export interface ManualRun {
  readonly runId: string | undefined;
  readonly at: Date;
  readonly starts: Schedule['starts'];
}

/** Starts it now, paused or not. Throws `schedule-not-found`, `schedule-busy`, `schedule-refused` and `unique-conflict`. */
export async function runNow(
  deps: OccurrencesDeps,
  name: string,
  { actor, reason }: ScheduleOrder,
): Promise<ManualRun> {
  const { carriedOut, locked, isCancelling } = await inTransaction(deps.db, async (tx) => {
    const row = await lock(tx, name);
    const [standing] = await standingsOf(tx, [row]);
    const it = standing as Locked;
    const decision = decideManual(it.standing);
    // While it is paused nobody would start what waits.
    if (decision === undefined || (row.paused_at !== null && decision.wait.length > 0)) {
      const [run] = it.runs;
      throw new WarrenError('schedule-busy', { schedule: name, runId: run?.id });
    }
    const done = await carryOut(tx, deps, [{ locked: it, decision }], actor.name);
    const [refusal] = done.refused;
    // Nothing is kept of a run that was asked for and is not: the answer says why.
    if (refusal?.why === 'unique') throw new WarrenError('unique-conflict', { schedule: name, flowId: refusal.detail });
    if (refusal !== undefined) throw new WarrenError('schedule-refused', { schedule: name, reason: refusal.detail });
    await audit(tx, 'schedule.run', name, actor, { reason });
    return { carriedOut: done, locked: it, isCancelling: decision.cancelsRunning };
  });
  carriedOut.after();
  if (isCancelling) await cancelSuperseded(deps, name, locked.runs);
  const runId = carriedOut.started.get(locked.row.id)?.at(-1);
  return { runId, at: new Date(locked.standing.nowMs), starts: locked.standing.schedule.starts };
}

async function withCounts(db: Queryable, rows: readonly ScheduleRow[]): Promise<readonly ShownSchedule[]> {
  const ids = rows.map(({ id }) => id);
  const counts = new Map((await run(db, countOccurrences, ids)).map((each) => [each.schedule_id, each]));
  return rows.map((row) => {
    const { running, waiting } = counts.get(row.id) ?? {};
    return { row, running: running ?? 0, waiting: waiting ?? 0 };
  });
}
