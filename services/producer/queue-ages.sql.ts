/** The statements that find how long tasks wait, and who is there to take them. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** The living workers by queue, with the present instant; always at least one row. A lease a worker, renewed within `lapseMs`. */
export const countWorkers = statement<[lapseMs: number]>()({
  name: 'count_workers',
  text: sql`
    select p.at, w.queue, w.workers
      from (select clock_timestamp() as at) p
      left join (
        select k.queue, count(*)::int4 as workers
          from leases l
         cross join lateral jsonb_object_keys(l.queues) as k (queue)
         where l.renewed_at > clock_timestamp() - $1::float8 * interval '1 ms'
         group by k.queue
      ) w on true`,
  columns: { at: 'timestamptz?', queue: 'text?', workers: 'int4?' },
});

/** The first hour of which the ledger knows tasks that have not ended. A row an hour and type. */
export const firstOpenHour = statement<[]>()({
  name: 'first_open_hour',
  text: sql`select min(hour) as hour from ledger_audits where in_progress > 0`,
  columns: { hour: 'int4?' },
});

/**
 * Walks tasks by id from `after` (exclusive) up to `before` (exclusive), at most `limit` rows, and answers the pending one of `queue`
 * among them that was invited first, with where the walk stood. Always one row. Index: tasks primary key.
 */
export const findOldest = statement<[after: string, before: string, queue: string, limit: number]>()({
  name: 'find_oldest_waiting',
  text: sql`
    with seen as (
      select id, state, queue, invited_at from tasks where id > $1::uuid and id < $2::uuid order by id limit $4::int4
    )
    select (select count(*) from seen)::int4 as rows_seen,
           (select id from seen order by id desc limit 1) as last_id,
           o.id, o.invited_at
      from (select) one
      left join lateral (
        select id, invited_at
          from seen
         where state = 'pending' and queue = $3::text and invited_at is not null
         order by invited_at
         limit 1
      ) o on true`,
  columns: { rows_seen: 'int4?', last_id: 'uuid?', id: 'uuid?', invited_at: 'timestamptz?' },
});
