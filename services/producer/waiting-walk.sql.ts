/** The statement that walks what waits. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Walks tasks by id from `after` (exclusive) up to `before` (exclusive), at most `limit` rows, and answers the pending ones
 * among them that are in one of `queues` and were invited at least `waitedMs` ago, with where the walk stood: the last row
 * seen, how many, and the first of them that has not ended. Always at least one row. Index: tasks primary key.
 */
export const walkWaiting = statement<
  [after: string, before: string, waitedMs: number, queues: readonly string[], limit: number]
>()({
  name: 'walk_waiting',
  text: sql`
    with seen as (
      select id, state, type, queue, priority, generation, invited_at
        from tasks
       where id > $1::uuid and id < $2::uuid
       order by id
       limit $5::int4
    ), walk as (
      select (select count(*) from seen)::int4 as rows_seen,
             (select id from seen order by id desc limit 1) as last_id,
             (select id from seen where state not in ('succeeded', 'dead', 'cancelled', 'expired') order by id limit 1)
               as first_open_id
    )
    select w.rows_seen, w.last_id, w.first_open_id, s.id, s.type, s.queue, s.priority, s.generation, s.invited_at
      from walk w
      left join seen s
        on s.state = 'pending'
       and s.queue = any($4::text[])
       and s.invited_at < clock_timestamp() - $3::float8 * interval '1 ms'
     order by s.id`,
  columns: {
    rows_seen: 'int4',
    last_id: 'uuid?',
    first_open_id: 'uuid?',
    id: 'uuid?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    invited_at: 'timestamptz?',
  },
});
