/** The statements of schedules. All but those that show them are sent while the row of the schedule is locked. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { oneById } from '../../shared/tasks/beside.sql.ts';

/** Schedules that are to be looked at. Index: schedules_wake_at. */
export const findDueSchedules = statement<[limit: number]>()({
  name: 'find_due_schedules',
  text: sql`select id from schedules where wake_at <= clock_timestamp() order by wake_at limit $1::int4`,
  columns: { id: 'uuid' },
});

/** The state of the run of an occurrence `o`; null where there is none any more. */
const stateOfRun = sql`
      left join lateral ${oneById(sql`state::text as state`, sql`o.run_id`, sql`and not o.is_flow`)} t on true
      left join lateral (select true as is_cancelled from cancel_requests where task_id = o.run_id offset 0) r on true
      left join lateral (
        select state::text as state, cancelled_by is not null as is_cancelled from flows where id = o.run_id and o.is_flow offset 0
      ) f on true`;

const hasEnded = (state: Sql): Sql =>
  sql`coalesce(${state} in ('succeeded', 'dead', 'expired', 'cancelled', 'failed', 'partial'), true)`;

/** The runs of schedules `$1` that were not seen to have ended, of each the oldest 200, with how they stand. Index: occurrences_open. */
const openRuns = sql`
      select o.schedule_id, o.at, o.is_manual, o.run_id, o.is_flow, coalesce(t.state, f.state) as state,
             coalesce(r.is_cancelled, f.is_cancelled) as is_cancelled
        from unnest($1::uuid[]) as s (id)
        cross join lateral (select * from occurrences where schedule_id = s.id and is_open order by at limit 200) o
        ${stateOfRun}`;

/** Marks runs that have ended, and gives those that have not. */
export const closeEndedRuns = statement<[ids: readonly string[]]>()({
  name: 'close_ended_runs',
  text: sql`
    with open as (${openRuns}
    ), closed as (
      update occurrences c
         set is_open = false, outcome = o.state
        from open o
       where c.schedule_id = o.schedule_id and c.at = o.at and c.is_manual = o.is_manual and ${hasEnded(sql`o.state`)}
      returning 1 as n
    )
    select schedule_id, run_id, is_flow, coalesce(is_cancelled, false) as is_cancelled
      from open
     where not ${hasEnded(sql`state`)} and (select count(*) from closed) >= 0`,
  columns: { schedule_id: 'uuid', run_id: 'uuid?', is_flow: 'bool', is_cancelled: 'bool?' },
});

/** How many runs of schedules have not ended, counted up to 200, and how many instants wait for that. A row for each that has any. */
export const countOccurrences = statement<[ids: readonly string[]]>()({
  name: 'count_occurrences',
  text: sql`
    select schedule_id, sum(running)::int4 as running, sum(waiting)::int4 as waiting
      from (
        select schedule_id, 1 as running, 0 as waiting from (${openRuns}
        ) open where not ${hasEnded(sql`state`)}
        union all
        select schedule_id, 0, 1 from occurrences where schedule_id = any($1::uuid[]) and state = 'waiting'
      ) counted
     group by schedule_id`,
  columns: { schedule_id: 'uuid', running: 'int4?', waiting: 'int4?' },
});

/** What waits for the end of a run, in its order. Index: occurrences_waiting. */
export const readWaiting = statement<[ids: readonly string[]]>()({
  name: 'read_waiting_occurrences',
  text: sql`
    select schedule_id, at, cause
      from occurrences
     where schedule_id = any($1::uuid[]) and state = 'waiting'
     order by schedule_id, at`,
  columns: { schedule_id: 'uuid', at: 'timestamptz', cause: 'text' },
});

/**
 * Writes what was decided. An instant that was decided about before, and did not only wait, stays as it is and is left out of the answer: nothing
 * is started twice, whatever clock went back.
 */
export const writeOccurrences = statement<
  [
    scheduleIds: readonly string[],
    ats: readonly Date[],
    states: readonly string[],
    causes: readonly string[],
    froms: readonly (Date | null)[],
    whys: readonly (string | null)[],
    details: readonly (string | null)[],
    runIds: readonly (string | null)[],
    areFlows: readonly boolean[],
    askedBy: string | null,
  ]
>()({
  name: 'write_occurrences',
  text: sql`
    insert into occurrences as o (schedule_id, at, is_manual, state, cause, from_at, why, detail, run_id, is_flow, is_open, asked_by)
    select w.schedule_id, w.at, w.cause = 'manual', w.state, w.cause, w.from_at, w.why, w.detail, w.run_id, w.is_flow, w.state = 'started',
           case when w.cause = 'manual' then $10::text end
      from unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::text[], $8::uuid[], $9::bool[])
        as w (schedule_id, at, state, cause, from_at, why, detail, run_id, is_flow)
     order by w.schedule_id, w.at
    on conflict (schedule_id, at, is_manual) do update
       set state = excluded.state, why = excluded.why, detail = excluded.detail, run_id = excluded.run_id, is_flow = excluded.is_flow,
           is_open = excluded.is_open, decided_at = clock_timestamp()
     where o.state = 'waiting'
    returning o.schedule_id, o.at, o.is_manual`,
  columns: { schedule_id: 'uuid', at: 'timestamptz', is_manual: 'bool' },
});

/** Says when schedules are due next, and when they are to be looked at. */
export const advanceSchedules = statement<
  [ids: readonly string[], nextAts: readonly (Date | null)[], wakeAts: readonly (Date | null)[]]
>()({
  name: 'advance_schedules',
  text: sql`
    update schedules s
       set next_at = w.next_at, wake_at = case when s.paused_at is null then w.wake_at end
      from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) as w (id, next_at, wake_at)
     where s.id = w.id`,
  columns: {},
});

/** Has schedules that cannot be read looked at later: whoever mends them wakes them. */
export const putOffSchedule = statement<[id: string]>()({
  name: 'put_off_schedule',
  text: sql`update schedules set wake_at = clock_timestamp() + interval '1 minute' where id = $1::uuid and wake_at is not null`,
  columns: {},
});

/** Pauses one, or has it go on. */
export const pauseSchedule = statement<[id: string, isPaused: boolean, actor: string, reason: string | null]>()({
  name: 'pause_schedule',
  text: sql`
    update schedules
       set paused_at = case when $2::bool then clock_timestamp() end, paused_by = case when $2::bool then $3::text end,
           pause_reason = case when $2::bool then $4::text end, wake_at = case when not $2::bool then clock_timestamp() end
     where id = $1::uuid`,
  columns: {},
});

/** What became of the instants of a schedule before one, the latest first, with how their runs stand. Index: primary key. */
export const pageOccurrences = statement<[scheduleId: string, before: Date, limit: number]>()({
  name: 'page_occurrences',
  text: sql`
    select o.at, o.is_manual, o.state, o.cause, o.from_at, o.why, o.detail, o.run_id, o.is_flow, o.asked_by, o.decided_at,
           coalesce(o.outcome, t.state, f.state) as run_state, coalesce(t.started_at, f.started_at) as started_at,
           coalesce(t.finished_at, f.finished_at) as finished_at
      from (
        select * from occurrences where schedule_id = $1::uuid and at < $2::timestamptz order by at desc, is_manual desc limit $3::int4
      ) o
      left join lateral ${oneById(sql`state::text as state, started_at, finished_at`, sql`o.run_id`, sql`and not o.is_flow`)} t on true
      left join lateral (
        select state::text as state, started_at, finished_at from flows where id = o.run_id and o.is_flow offset 0
      ) f on true
     order by o.at desc, o.is_manual desc`,
  columns: {
    at: 'timestamptz',
    is_manual: 'bool',
    state: 'text',
    cause: 'text',
    from_at: 'timestamptz?',
    why: 'text?',
    detail: 'text?',
    run_id: 'uuid?',
    is_flow: 'bool',
    asked_by: 'text?',
    decided_at: 'timestamptz',
    run_state: 'text?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
  },
});
