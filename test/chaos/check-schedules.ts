/** Schedules: each instant has one row, what it started is there once, and runs that may not overlap never did. */
import type { Invariant, Violation } from './checker.ts';
import type { Evidence, TaskRow } from './evidence.ts';
import { groupBy } from './grouped.ts';
import type { OccurrenceRow } from './schedule-evidence.ts';
import { ALONE, PACE_MS } from './schedule-load.ts';

/** Compares the instants with the tasks that they started. */
export function checkSchedules({ schedules, tasks, letters }: Evidence): readonly Violation[] {
  const { occurrences, taskIds } = schedules;
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const started = occurrences.filter(({ runId }) => runId !== undefined);
  const startedIds = groupBy(started, ({ runId }) => runId);
  const died = new Set(letters.map(({ taskId }) => taskId));
  return [
    ...[...groupBy(occurrences, ({ schedule }) => schedule)].flatMap(([name, rows]) => [
      ...checkCover(name, rows),
      ...(name === ALONE ? checkAlone(rows, byId, died) : []),
    ]),
    ...started
      .filter(({ state, runId = '' }) => state !== 'started' || !byId.has(runId))
      .map((row) => broken(1, 'what an instant started is not there', describe(row))),
    ...[...startedIds]
      .filter(([, rows]) => rows.length > 1)
      .map(([runId, rows]) =>
        broken(6, 'one run stands for several instants', `${runId}: ${rows.map(describe).join(', ')}`),
      ),
    ...taskIds
      .filter((id) => !startedIds.has(id))
      .map((id) => broken(6, 'a task of a schedule that no instant started', id)),
  ];
}

/** From the first instant to the last, each is in one row. */
function checkCover(name: string, rows: readonly OccurrenceRow[]): readonly Violation[] {
  const own = rows.filter(({ isManual }) => !isManual).toSorted((one, other) => one.fromMs - other.fromMs);
  return own.slice(1).flatMap((row, index) => {
    const before = own[index]?.atMs ?? 0;
    if (row.fromMs === before + PACE_MS) return [];
    const what = row.fromMs <= before ? 'an instant was decided about twice' : 'an instant was left out';
    return [
      broken(row.fromMs <= before ? 6 : 1, what, `${name}: ${describe(row)} after ${new Date(before).toISOString()}`),
    ];
  });
}

/** A run begins after the end of the one before; one that died may have been replayed since. */
function checkAlone(
  rows: readonly OccurrenceRow[],
  byId: ReadonlyMap<string, TaskRow>,
  died: ReadonlySet<string | undefined>,
): readonly Violation[] {
  const runs = rows
    .flatMap(({ runId = '' }) => byId.get(runId) ?? [])
    .toSorted((one, other) => one.acceptedAt.getTime() - other.acceptedAt.getTime());
  return runs.slice(1).flatMap((task, index) => {
    const before = runs[index];
    if (before?.finishedAt === undefined || died.has(before.id) || task.acceptedAt >= before.finishedAt) return [];
    return [broken(2, 'two runs of a schedule overlapped that must not', `${before.id} and ${task.id}`)];
  });
}

function describe({ schedule, atMs, state, why }: OccurrenceRow): string {
  return `${schedule} at ${new Date(atMs).toISOString()} (${why ?? state})`;
}

function broken(invariant: Invariant, what: string, about: string): Violation {
  return { invariant, what, about };
}
