/** The statements that make a database sound which was restored from a backup. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { isAmong, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/** Workers that have renewed their lease within `lapseMs`: how many, and the hosts of the first ten. One row. */
export const findLiving = statement<[lapseMs: number]>()({
  name: 'find_living_workers',
  text: sql`
    select count(*)::int4 as workers, coalesce((array_agg(host order by host))[:10], '{}') as hosts
      from leases
     where renewed_at >= clock_timestamp() - $1::float8 * interval '1 ms'`,
  columns: { workers: 'int4', hosts: 'text[]' },
});

/**
 * Lifts the attempt of tasks that have not ended and do not run by `$2`, with a row among their attempts that says why, and invites
 * once more those that are invited already. Locks tasks in id order. Index: tasks primary key.
 */
export const liftAttempts = statement<[ids: readonly string[], by: number, errorMessage: string]>()({
  name: 'lift_attempts',
  text: sql`
    with locked as (
      select id
        from tasks
       where id = any($1::uuid[]) and state in ('pending', 'scheduled', 'retrying', 'blocked')
       order by id
         for no key update
    ), lifted as (
      update tasks t
         set attempt = t.attempt + $2::int4
       where t.id = any(array(select id from locked)) and t.state in ('pending', 'scheduled', 'retrying', 'blocked')
      returning t.id, t.state, t.attempt, t.type, t.queue, t.priority, t.generation, t.invited_at
    ), history as (
      insert into attempts (task_id, attempt, worker, started_at, finished_at, outcome, error_type, error_code, error_message)
      select id, attempt, '00000000-0000-0000-0000-000000000000', clock_timestamp(), clock_timestamp(), 'interrupted',
             'Restored', 'restored', $3::text
        from lifted order by id
    ), invited as (${writeOutbox(sql`(select * from lifted where state = 'pending' and invited_at is not null) waiting`, sql`interval '0'`)}
    )
    select l.id, ${isAmong(sql`l.id`, sql`(select id from lifted where state = 'pending' and invited_at is not null) i`)} as is_invited
      from lifted l`,
  columns: { id: 'uuid', is_invited: 'bool' },
});
