/** The statements that keep schedules. */
import { sql, statement } from '../postgres/statement.ts';

/** What is read of a schedule `s`. */
export const shownSchedule = sql`s.id, s.name, s.definition, s.source, s.created_at, s.created_by, s.updated_at, s.updated_by, s.paused_at, s.paused_by,
           s.pause_reason, s.next_at, clock_timestamp() as now`;

/** Columns of a schedule. */
export const scheduleColumns = {
  id: 'uuid',
  name: 'text',
  definition: 'text',
  source: 'text',
  created_at: 'timestamptz',
  created_by: 'text',
  updated_at: 'timestamptz',
  updated_by: 'text',
  paused_at: 'timestamptz?',
  paused_by: 'text?',
  pause_reason: 'text?',
  next_at: 'timestamptz?',
  now: 'timestamptz?',
} as const;

/** Locks one by its name. */
export const lockSchedule = statement<[name: string]>()({
  name: 'lock_schedule',
  text: sql`select ${shownSchedule} from schedules s where s.name = $1::text for no key update`,
  columns: scheduleColumns,
});

/** One by its name, as it stands. */
export const readSchedule = statement<[name: string]>()({
  name: 'read_schedule',
  text: sql`select ${shownSchedule} from schedules s where s.name = $1::text`,
  columns: scheduleColumns,
});

/** Locks those of some that nobody else decides about, and that are still to be looked at. */
export const lockDueSchedules = statement<[ids: readonly string[]]>()({
  name: 'lock_due_schedules',
  text: sql`
    select ${shownSchedule}
      from schedules s
     where s.id = any($1::uuid[]) and s.wake_at <= clock_timestamp()
     order by s.id
       for no key update skip locked`,
  columns: scheduleColumns,
});

/** The next schedules after a name. */
export const pageSchedules = statement<[after: string, limit: number]>()({
  name: 'page_schedules',
  text: sql`select ${shownSchedule} from schedules s where s.name > $1::text order by s.name limit $2::int4`,
  columns: scheduleColumns,
});

/** Those that come from code, each locked. */
export const lockCodeSchedules = statement<[]>()({
  name: 'lock_code_schedules',
  text: sql`select ${shownSchedule} from schedules s where s.source = 'code' order by s.name for no key update`,
  columns: scheduleColumns,
});

/** Makes one; no row where the name is taken. */
export const insertSchedule = statement<
  [id: string, name: string, definition: string, source: string, actor: string]
>()({
  name: 'insert_schedule',
  text: sql`
    insert into schedules as s (id, name, definition, source, created_by, updated_by)
    values ($1::uuid, $2::text, $3::text, $4::text, $5::text, $5::text)
    on conflict (name) do nothing
    returning ${shownSchedule}`,
  columns: scheduleColumns,
});

/** Changes one. Where it is not paused it is looked at next. */
export const updateSchedule = statement<
  [id: string, definition: string, source: string, actor: string, nextAt: Date | null]
>()({
  name: 'update_schedule',
  text: sql`
    update schedules
       set definition = $2::text, source = $3::text, updated_by = $4::text,
           updated_at = case when definition = $2::text then updated_at else clock_timestamp() end, next_at = $5::timestamptz,
           wake_at = case when paused_at is null then clock_timestamp() end
     where id = $1::uuid`,
  columns: {},
});

/** Takes one away, with what became of its instants; what it started goes on. */
export const deleteSchedule = statement<[id: string]>()({
  name: 'delete_schedule',
  text: sql`
    with gone as (
      delete from occurrences where schedule_id = $1::uuid
    )
    delete from schedules where id = $1::uuid`,
  columns: {},
});

/** Writes who did what to a schedule. */
export const auditSchedule = statement<
  [actor: string, role: string, address: string | null, action: string, name: string, detail: string]
>()({
  name: 'audit_schedule',
  text: sql`
    insert into audit (id, actor, role, address, action, target, detail)
    values (uuid_v7(), $1::text, $2::text, $3::text, $4::text, $5::text, $6::jsonb)`,
  columns: {},
});
