/** The statements that compare the tasks with the books. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * The next hour after `$1` of which there are entries, tasks or a comparison; null at the end. `$2` is an id below all that
 * were made after that hour. Indexes: the primary keys.
 */
export const nextHour = statement<[after: number, idsAfter: string]>()({
  name: 'ledger_next_hour',
  text: sql`
    select least(
             (select hour from ledger_entries where hour > $1::int4 order by hour limit 1),
             (select hour from ledger_audits where hour > $1::int4 order by hour limit 1),
             (select task_hour(id) from tasks where id > $2::uuid order by id limit 1)) as hour`,
  columns: { hour: 'int4?' },
});

/**
 * Counts the next `$5` tasks of hour `$1`, with ids after `$2` and before `$3`, and reads the hour's entries in the same
 * snapshot. Names those of the tasks that nothing stands for, provided that nothing happened to them for `$4` milliseconds:
 * they wait for an instant without a row of `due` in time, are pending, invited by nobody and without a row of `held_back`, run without
 * a row of `claims` that names them, or are dead without a dead letter of that death. Always one row. Indexes: primary keys of
 * tasks, due, held_back, claims, ledger_entries; dead_letters_task.
 */
export const walkHour = statement<[hour: number, after: string, before: string, quietMs: number, limit: number]>()({
  name: 'ledger_walk_hour',
  text: sql`
    with seen as materialized (
      select id, type, state, attempt, claim_id, invited_at,
             least(deadline, case when state in ('scheduled', 'retrying') then run_at end) as due_at,
             greatest(accepted_at, invited_at, started_at, finished_at)
               < clock_timestamp() - $4::float8 * interval '1 ms' as is_quiet
        from tasks
       where id > $2::uuid and id < $3::uuid
       order by id
       limit $5::int4
    ), found as (
      select type, state::text as state, count(*) as tasks from seen group by 1, 2
    ), entries as (
      select type, entry, sum(tasks) as tasks from ledger_entries where hour = $1::int4 group by 1, 2
    )
    select (select count(*) from seen)::int4 as rows_seen,
           (select id from seen order by id desc limit 1) as last_id,
           coalesce((select jsonb_agg(found) from found), '[]') as found,
           coalesce((select jsonb_agg(entries) from entries), '[]') as entries,
           array(
             select id from seen s
              where is_quiet and due_at is not null and state in ('pending', 'scheduled', 'retrying', 'blocked')
                and not exists (select from due d where d.task_id = s.id and d.at <= s.due_at)
           ) as not_due,
           array(
             select id from seen s
              where is_quiet and state = 'pending' and invited_at is null
                and not exists (select from held_back h where h.task_id = s.id)
           ) as not_invited,
           array(
             select id from seen s
              where is_quiet and state = 'running'
                and not exists (select from claims c where c.id = s.claim_id and s.id = any(c.task_ids))
           ) as not_claimed,
           array(
             select id from seen s
              where is_quiet and state = 'dead'
                and not exists (
                  select from dead_letters l
                   where l.task_id = s.id
                     and (l.state in ('open', 'replaying') or (l.state = 'discarded' and l.attempt = s.attempt)))
           ) as without_letter`,
  columns: {
    rows_seen: 'int4',
    last_id: 'uuid?',
    found: 'jsonb',
    entries: 'jsonb',
    not_due: 'uuid[]',
    not_invited: 'uuid[]',
    not_claimed: 'uuid[]',
    without_letter: 'uuid[]',
  },
});

/** Keeps what an hour's comparison found, a row a type, and forgets types of which nothing is left. In key order. */
export const recordAudit = statement<
  [
    hour: number,
    types: readonly string[],
    succeeded: readonly number[],
    dead: readonly number[],
    cancelled: readonly number[],
    expired: readonly number[],
    inProgress: readonly number[],
    differences: readonly number[],
  ]
>()({
  name: 'ledger_record_audit',
  text: sql`
    with gone as (
      delete from ledger_audits where hour = $1::int4 and type <> all($2::text[])
    )
    insert into ledger_audits as a (hour, type, succeeded, dead, cancelled, expired, in_progress, difference)
    select $1::int4, c.*
      from unnest($2::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[])
        as c (type, succeeded, dead, cancelled, expired, in_progress, difference)
     order by c.type
    on conflict (hour, type) do update
       set succeeded = excluded.succeeded, dead = excluded.dead, cancelled = excluded.cancelled,
           expired = excluded.expired, in_progress = excluded.in_progress, difference = excluded.difference,
           compared_at = excluded.compared_at
    returning type`,
  columns: { type: 'text' },
});

/** By how many tasks the books differ, over all hours. Index: ledger_audits_differing. */
export const sumDifferences = statement<[]>()({
  name: 'ledger_sum_differences',
  text: sql`select coalesce(sum(difference), 0)::float8 as difference from ledger_audits where difference <> 0`,
  columns: { difference: 'float8' },
});

/**
 * Folds up to `limit` entries of hours before `$1` into one row an hour, type and entry, skipping what a session counts into
 * just now. Locks what it folds, then what it folds into, in key order. Index: ledger_entries_unfolded.
 */
export const foldEntries = statement<[before: number, limit: number]>()({
  name: 'ledger_fold_entries',
  text: sql`
    with folded as (
      delete from ledger_entries
       where ctid = any(array(
         select ctid from ledger_entries
          where hour < $1::int4 and backend <> 0
          order by hour limit $2::int4 for update skip locked))
      returning hour, type, entry, tasks
    ), summed as (
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select hour, type, entry, 0, sum(tasks) from folded group by 1, 2, 3 order by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
    )
    select hour from folded`,
  columns: { hour: 'int4' },
});
