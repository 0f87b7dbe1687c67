/** Keeps schedules: made, changed and taken away, each with a line in the audit. */
import { isWarrenError, WarrenError } from '../errors/warren-error.ts';
import { execute, run } from '../postgres/statement.ts';
import type { Queryable, RowOf } from '../postgres/statement.ts';
import { inTransaction } from '../postgres/transaction.ts';
import type { Transactional } from '../postgres/transaction.ts';
import { newId } from '../tasks/ids.ts';
import { calendarOf } from './calendar.ts';
import { readSchedule as readDefinition } from './read-schedule.ts';
import type { Schedule } from './read-schedule.ts';
import {
  auditSchedule,
  deleteSchedule,
  insertSchedule,
  lockCodeSchedules,
  lockDueSchedules,
  lockSchedule,
  pageSchedules,
  readSchedule,
  updateSchedule,
} from './store.sql.ts';
import type { scheduleColumns } from './store.sql.ts';

/** A row of `schedules`. */
export type ScheduleRow = RowOf<typeof scheduleColumns>;

/** Who does it. */
export interface Editor {
  readonly name: string;
  readonly role: string;
  readonly address?: string;
}

/** What was done, or is to be done, to a schedule; `gone`: no code names it any more, and it stays. */
export type Change = 'created' | 'changed' | 'unchanged' | 'gone' | 'removed';

/** A schedule with its text. */
export interface Defined {
  readonly schedule: Schedule;
  /** As `definitionOf` gives it. */
  readonly definition: string;
}

/** Reads the definition of a stored schedule: it was checked when it was stored. Throws `schedule-unreadable`. */
export function scheduleOf({ name, definition }: Pick<ScheduleRow, 'name' | 'definition'>): Schedule {
  const read = readDefinition(definition);
  if (read.kind === 'ok') return read.value;
  const { field, reason } = read.faults[0];
  throw new WarrenError('schedule-unreadable', { schedule: name, field, reason });
}

/** The instant after `row.now`, by Postgres's clock. */
export function nowOf({ now }: Pick<ScheduleRow, 'now'>): number {
  return now?.getTime() ?? 0;
}

/** Makes a schedule. The same again changes nothing. Throws `schedule-exists`, `field-invalid` for one that never comes, and as `Queryable.query`. */
export async function createSchedule(db: Transactional, defined: Defined, editor: Editor): Promise<Change> {
  return await inTransaction(db, async (tx) => {
    const made = await insert(tx, defined, 'api', editor);
    if (made !== undefined) {
      refuseWhatNeverComes(defined.schedule, nowOf(made));
      return 'created';
    }
    const [row] = await run(tx, lockSchedule, defined.schedule.name);
    if (row?.definition === defined.definition) return 'unchanged';
    throw new WarrenError('schedule-exists', { field: 'name', schedule: defined.schedule.name });
  });
}

/** Changes a schedule that was made over the API. `edit` gives its new text. Throws `schedule-not-found`, `schedule-in-code`, and as `edit` does. */
export async function editSchedule(
  db: Transactional,
  name: string,
  {
    edit,
    editor,
    reason,
  }: { readonly edit: (definition: string) => Defined; readonly editor: Editor; readonly reason: string | undefined },
): Promise<Change> {
  return await inTransaction(db, async (tx) => {
    const row = await lockOwn(tx, name);
    const defined = edit(row.definition);
    if (defined.definition === row.definition) return 'unchanged';
    const nextAt = nextOf(row, defined);
    if (nextAt === null) refuseWhatNeverComes(defined.schedule, nowOf(row));
    await execute(tx, updateSchedule, row.id, defined.definition, 'api', editor.name, nextAt);
    await audit(tx, 'schedule.edit', name, editor, { reason, before: row.definition });
    return 'changed';
  });
}

/** Takes a schedule away that was made over the API. Throws `schedule-not-found`, `schedule-in-code`. */
export async function removeSchedule(
  db: Transactional,
  name: string,
  { editor, reason }: { readonly editor: Editor; readonly reason: string | undefined },
): Promise<void> {
  await inTransaction(db, async (tx) => {
    const row = await lockOwn(tx, name);
    await execute(tx, deleteSchedule, row.id);
    await audit(tx, 'schedule.remove', name, editor, { reason, before: row.definition });
  });
}

/** A change of one schedule of the code. */
export interface CodeChange {
  readonly name: string;
  readonly change: Change;
  readonly before?: string;
  readonly after?: string;
}

/**
 * Makes the schedules that come from code what the code says: new ones are made and others changed; those that it names no more are taken away where
 * `isPruned`, since other code may name them. What is paused stays so. Throws `schedule-exists` where one of the API has the name.
 */
export async function applySchedules(
  db: Transactional,
  schedules: readonly Defined[],
  { editor, isDryRun, isPruned }: { readonly editor: Editor; readonly isDryRun: boolean; readonly isPruned: boolean },
): Promise<readonly CodeChange[]> {
  return await inTransaction(db, async (tx) => {
    const known = new Map((await run(tx, lockCodeSchedules)).map((row) => [row.name, row]));
    const changes: CodeChange[] = [];
    for (const defined of schedules) {
      const { name } = defined.schedule;
      const { definition: after } = defined;
      const row = known.get(name);
      known.delete(name);
      const change = row === undefined ? 'created' : row.definition === after ? 'unchanged' : 'changed';
      changes.push({ name, change, after, ...(row === undefined ? {} : { before: row.definition }) });
      if (isDryRun || change === 'unchanged') continue;
      if (row === undefined) {
        const made = await insert(tx, defined, 'code', editor);
        if (made === undefined) throw new WarrenError('schedule-exists', { field: 'name', schedule: name });
      } else {
        await execute(tx, updateSchedule, row.id, after, 'code', editor.name, nextOf(row, defined));
        await audit(tx, 'schedule.edit', name, editor, { before: row.definition });
      }
    }
    for (const row of known.values()) {
      changes.push({ name: row.name, change: isPruned ? 'removed' : 'gone', before: row.definition });
      if (isDryRun || !isPruned) continue;
      await execute(tx, deleteSchedule, row.id);
      await audit(tx, 'schedule.remove', row.name, editor, { before: row.definition });
    }
    return changes;
  });
}

/** Writes who did what. */
export async function audit(
  tx: Queryable,
  action: string,
  name: string,
  { name: actor, role, address }: Editor,
  detail: Readonly<Record<string, unknown>>,
): Promise<void> {
  await execute(tx, auditSchedule, actor, role, address ?? null, action, name, JSON.stringify(detail));
}

/** Locks those that nobody else decides about, and that are still to be looked at. Throws as `Queryable.query`. */
export async function lockDue(tx: Queryable, ids: readonly string[]): Promise<readonly ScheduleRow[]> {
  return await run(tx, lockDueSchedules, ids);
}

/** One by its name, `undefined` where there is none. Throws as `Queryable.query`. */
export async function findByName(db: Queryable, name: string): Promise<ScheduleRow | undefined> {
  const [row] = await run(db, readSchedule, name);
  return row;
}

/** The next ones after a name, in the order of names. Throws as `Queryable.query`. */
export async function pageByName(db: Queryable, after: string, limit: number): Promise<readonly ScheduleRow[]> {
  return await run(db, pageSchedules, after, limit);
}

/** Locks a schedule. Throws `schedule-not-found`. */
export async function lock(tx: Queryable, name: string): Promise<ScheduleRow> {
  const [row] = await run(tx, lockSchedule, name);
  if (row === undefined) throw new WarrenError('schedule-not-found', { schedule: name });
  return row;
}

async function lockOwn(tx: Queryable, name: string): Promise<ScheduleRow> {
  const row = await lock(tx, name);
  if (row.source === 'code') throw new WarrenError('schedule-in-code', { schedule: name });
  return row;
}

async function insert(
  tx: Queryable,
  { schedule, definition }: Defined,
  source: 'api' | 'code',
  editor: Editor,
): Promise<ScheduleRow | undefined> {
  const { name } = schedule;
  const [made] = await run(tx, insertSchedule, newId<string>(), name, definition, source, editor.name);
  if (made === undefined) return undefined;
  const next = calendarOf(schedule.timing).after(nowOf(made));
  const nextAt = next === undefined ? null : new Date(next);
  await execute(tx, updateSchedule, made.id, definition, source, editor.name, nextAt);
  await audit(tx, 'schedule.create', name, editor, {});
  return made;
}

/** When it is due next: as before where its calendar is the same. */
function nextOf(row: ScheduleRow, { schedule }: Defined): Date | null {
  if (JSON.stringify(timingOf(row)) === JSON.stringify(schedule.timing)) return row.next_at;
  const next = calendarOf(schedule.timing).after(nowOf(row));
  return next === undefined ? null : new Date(next);
}

function timingOf(row: ScheduleRow): Schedule['timing'] | undefined {
  try {
    return scheduleOf(row).timing;
  } catch (thrown) {
    if (!isWarrenError(thrown, 'schedule-unreadable')) throw thrown;
    return undefined; // an edit mends it
  }
}

function refuseWhatNeverComes({ timing }: Schedule, nowMs: number): void {
  if (calendarOf(timing).after(nowMs) !== undefined) return;
  const field = timing.kind === 'once' ? 'at' : timing.kind === 'cron' ? 'cron' : 'everyMs';
  throw new WarrenError('field-invalid', { field, reason: 'must lie in the future' });
}
