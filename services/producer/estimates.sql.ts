/** The statements that read what workers measured. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** How long runs take, of every type: one row each. */
export const readRunTimes = statement<[]>()({
  name: 'read_run_times',
  text: sql`select type, weights from run_times order by type`,
  columns: { type: 'text', weights: 'float8[]' },
});

/** What was started in the last twelve whole slots of five seconds, and the newest of it in ten minutes. A few rows a queue. */
export const readStarts = statement<[]>()({
  name: 'read_starts',
  text: sql`
    with present as (
      select floor(extract(epoch from clock_timestamp()) / 5)::int8 as slot
    )
    select s.queue, s.priority, s.slot, s.attempts, s.newest,
           (s.slot < p.slot and s.slot >= p.slot - 12) as is_recent
      from queue_starts s
      cross join present p
     order by s.queue, s.priority, s.slot`,
  columns: { queue: 'text', priority: 'int2', slot: 'int8', attempts: 'int8', newest: 'uuid', is_recent: 'bool?' },
});

/**
 * Looks back from a task along the ids, at most `limit` rows and not beyond `started`, and counts the pending ones of its queue at
 * its priority and above. Index: tasks primary key.
 */
export const countAhead = statement<
  [taskId: string, started: string, queue: string, priority: number, limit: number]
>()({
  name: 'count_ahead',
  text: sql`
    select count(*)::int4 as rows_seen,
           (count(*) filter (where s.state = 'pending' and s.queue = $3::text and s.priority >= $4::int2))::int4 as ahead,
           min(s.id::text) as oldest_id
      from (
        select id, state, queue, priority
          from tasks
         where id < $1::uuid and id > $2::uuid
         order by id desc
         limit $5::int4
      ) s`,
  columns: { rows_seen: 'int4?', ahead: 'int4?', oldest_id: 'text?' },
});
