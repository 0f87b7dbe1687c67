/** Schedules as the API shows them. */
import { calendarOf } from '../../../shared/schedules/calendar.ts';
import type { Schedule } from '../../../shared/schedules/read-schedule.ts';
import { isWarrenError } from '../../../shared/errors/warren-error.ts';
import { nowOf, scheduleOf } from '../../../shared/schedules/store.ts';
import { readTree, renderTree } from '../../../shared/tasks/json-tree.ts';
import type { JsonNode } from '../../../shared/tasks/json-tree.ts';
import type { OccurrenceRow, ShownSchedule } from '../schedules.ts';
import { withoutNull } from '../without-null.ts';

const NEXT = 10;

/** A schedule in a list; of one that cannot be read what is known beside its definition. */
export function listedScheduleOf(shown: ShownSchedule): Record<string, unknown> {
  try {
    return readableOf(shown, scheduleOf(shown.row));
  } catch (thrown) {
    if (!isWarrenError(thrown, 'schedule-unreadable')) throw thrown;
    return withoutNull({ name: shown.row.name, state: 'unreadable', ...standingOf(shown) });
  }
}

function readableOf(shown: ShownSchedule, schedule: Schedule): Record<string, unknown> {
  const { row } = shown;
  const { description, timing, timeZone, overlap, catchUp, catchUpMost, jitterMs } = schedule;
  return withoutNull({
    name: row.name,
    description,
    state: row.paused_at !== null ? 'paused' : row.next_at === null ? 'finished' : 'active',
    ...timingOf(timing),
    timeZone,
    starts: { kind: schedule.starts, name: startedName(schedule) },
    overlap,
    catchUp,
    catchUpMost,
    jitterMs,
    nextAt: row.paused_at === null ? row.next_at?.toISOString() : null,
    ...standingOf(shown),
  });
}

function standingOf({ row, running, waiting }: ShownSchedule): Record<string, unknown> {
  return {
    running,
    waiting,
    pausedAt: row.paused_at?.toISOString(),
    pausedBy: row.paused_by,
    pauseReason: row.pause_reason,
    source: row.source,
    createdAt: row.created_at.toISOString(),
    createdBy: row.created_by,
    updatedAt: row.updated_at.toISOString(),
    updatedBy: row.updated_by,
  };
}

/** A whole schedule as JSON text: what it starts is written as it was given. */
export function renderSchedule(shown: ShownSchedule): string {
  const schedule = scheduleOf(shown.row);
  const about = readTree(
    JSON.stringify({ ...listedScheduleOf(shown), next: nextInstants(schedule, nowOf(shown.row), NEXT) }),
  );
  const members = new Map<string, JsonNode>(about.kind === 'object' ? about.members : []);
  members.set(schedule.starts, schedule.template);
  return renderTree({ kind: 'object', members }, { maxLength: Infinity, maxDepth: Infinity });
}

/** The next instants after one. */
export function nextInstants({ timing }: Schedule, afterMs: number, count: number): readonly string[] {
  const calendar = calendarOf(timing);
  const next: string[] = [];
  for (let at = calendar.after(afterMs); at !== undefined && next.length < count; at = calendar.after(at)) {
    next.push(new Date(at).toISOString());
  }
  return next;
}

/** What became of an instant. */
export function occurrenceOf(row: OccurrenceRow): Record<string, unknown> {
  return withoutNull({
    at: row.at.toISOString(),
    from: row.from_at?.toISOString(),
    cause: row.cause,
    state: row.state,
    why: row.why,
    detail: row.detail,
    [row.is_flow ? 'flowId' : 'taskId']: row.run_id,
    runState: row.run_state,
    startedAt: row.started_at?.toISOString(),
    finishedAt: row.finished_at?.toISOString(),
    decidedAt: row.decided_at.toISOString(),
    askedBy: row.asked_by,
  });
}

function timingOf(timing: Schedule['timing']): Record<string, unknown> {
  if (timing.kind === 'cron') return { cron: timing.cron };
  if (timing.kind === 'once') return { at: new Date(timing.atMs).toISOString() };
  return { everyMs: timing.everyMs, from: new Date(timing.fromMs).toISOString() };
}

function startedName({ template, starts }: Schedule): string {
  const name = template.kind === 'object' ? template.members.get(starts === 'task' ? 'type' : 'name') : undefined;
  return name?.kind === 'scalar' ? String(JSON.parse(name.text)) : '';
}
