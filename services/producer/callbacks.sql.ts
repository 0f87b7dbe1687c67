/** The statements behind callbacks. What a task without one does, none of them touches. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { oneById, traceOf } from '../../shared/tasks/beside.sql.ts';

/**
 * Walks callbacks that wait, by task id from `after` (exclusive), at most `limit`, and answers those whose task has ended or is
 * gone, with where the walk stood. Always at least one row. Indexes: callbacks_waiting, tasks primary key.
 */
export const walkCallbacks = statement<[after: string, limit: number]>()({
  name: 'walk_callbacks',
  text: sql`
    with seen as (
      select c.task_id
        from callbacks c
       where c.is_waiting and c.task_id > $1::uuid and (c.taken_until is null or c.taken_until < clock_timestamp())
       order by c.task_id
       limit $2::int4
    ), walk as (
      select (select count(*) from seen)::int4 as rows_seen, (select task_id from seen order by task_id desc limit 1) as last_id
    )
    select w.rows_seen, w.last_id, s.task_id
      from walk w
      left join (
        select s.task_id
          from seen s
          left join tasks t on t.id = s.task_id
         where t.id is null or t.state in ('succeeded', 'dead', 'cancelled', 'expired')
      ) s on true
     order by s.task_id`,
  columns: { rows_seen: 'int4?', last_id: 'uuid?', task_id: 'uuid?' },
});

/** Takes callbacks for so many milliseconds, so that of producers that found the same at once one tells. Locks in the order of tasks, skipping what another holds. */
export const takeCallbacks = statement<[taskIds: readonly string[], forMs: number]>()({
  name: 'take_callbacks',
  text: sql`
    update callbacks c
       set taken_until = clock_timestamp() + $2::float8 * interval '1 ms'
     where c.task_id = any(array(
       select task_id from callbacks
        where task_id = any($1::uuid[]) and is_waiting and (taken_until is null or taken_until < clock_timestamp())
        order by task_id
          for update skip locked))
    returning c.task_id, c.callback`,
  columns: { task_id: 'uuid', callback: 'jsonb' },
});

/** How tasks ended. Those that have not, or are gone, are left out. Indexes: tasks primary key, dead_letters_open_task. */
export const readOutcomes = statement<[taskIds: readonly string[]]>()({
  name: 'read_outcomes',
  text: sql`
    select t.id, t.type, t.state::text as state, t.attempt, t.failures, t.accepted_at, t.started_at, t.finished_at,
           t.business_key, t.external_id, t.correlation_id, t.tags, ${traceOf(sql`t`)} as trace, t.result,
           d.id as dead_letter_id, d.reason, d.error_type, d.error_code, d.error_message
      from unnest($1::uuid[]) as wanted (id)
      cross join lateral ${oneById(sql`*`, sql`wanted.id`, sql`and state in ('succeeded', 'dead', 'cancelled', 'expired')`)} t
      left join dead_letters d on d.task_id = t.id and d.state in ('open', 'replaying')`,
  columns: {
    id: 'uuid',
    type: 'text',
    state: 'text',
    attempt: 'int4',
    failures: 'int4',
    accepted_at: 'timestamptz',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    business_key: 'text?',
    external_id: 'text?',
    correlation_id: 'text?',
    tags: 'text[]?',
    trace: 'text?',
    result: 'bytea?',
    dead_letter_id: 'uuid?',
    reason: 'text?',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
  },
});

/**
 * Says that a task's end was told. A dead task keeps its callback for the end after a replay, but only while it is dead still: its
 * row is locked, so that a replay comes wholly before or after. What ended otherwise, or is gone, needs its callback no more.
 */
export const markTold = statement<[taskId: string, state: string | null]>()({
  name: 'mark_told',
  text: sql`
    with dead as (
      select id from tasks where id = $1::uuid and state = 'dead' and $2::text = 'dead' for share
    ), kept as (
      update callbacks c set is_waiting = false, taken_until = null from dead d where c.task_id = d.id returning c.task_id
    ), gone as (
      delete from callbacks
       where task_id = $1::uuid
         and ($2::text is distinct from 'dead' or not exists (select from tasks where id = $1::uuid))
      returning task_id
    ), free as (
      -- It was dead when that was told and runs again: its next end is told too.
      update callbacks c set taken_until = null
       where c.task_id = $1::uuid and $2::text = 'dead' and not exists (select from dead)
         and exists (select from tasks where id = $1::uuid)
      returning c.task_id
    )
    select coalesce((select task_id from kept), (select task_id from gone), (select task_id from free)) as task_id`,
  columns: { task_id: 'uuid?' },
});
