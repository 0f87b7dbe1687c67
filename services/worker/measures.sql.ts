/** The statements that store what a worker measured. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Adds durations to those of each type, after what is there has lost weight with time. Locks in the order of types. */
export const weighRunTimes = statement<[types: readonly string[], weights: readonly string[]]>()({
  name: 'weigh_run_times',
  text: sql`
    insert into run_times as r (type, weights)
    select m.type, m.weights::float8[] from unnest($1::text[], $2::text[]) as m (type, weights) order by m.type
    on conflict (type) do update
       set weights = array(
             select coalesce(w.old, 0)
                    * power(0.5, least(extract(epoch from clock_timestamp() - r.weighed_at) / 3600, 1000))
                    + coalesce(w.new, 0)
               from unnest(r.weights, excluded.weights) with ordinality as w (old, new, place)
              order by w.place),
           weighed_at = clock_timestamp()
    returning r.type`,
  columns: { type: 'text' },
});

/**
 * Counts attempts that were started out of queues at a priority in these five seconds, and forgets those of ten minutes ago. Locks
 * in the order of queues and priorities.
 */
export const countStarts = statement<
  [queues: readonly string[], priorities: readonly number[], attempts: readonly number[], newest: readonly string[]]
>()({
  name: 'count_starts',
  text: sql`
    with forgotten as (
      delete from queue_starts
       where (queue, priority, slot) in (
         select queue, priority, slot from queue_starts
          where slot < floor(extract(epoch from clock_timestamp()) / 5)::int8 - 120
          order by queue, priority, slot
            for update skip locked)
    )
    insert into queue_starts as s (queue, priority, slot, attempts, newest)
    select queue, priority, floor(extract(epoch from clock_timestamp()) / 5)::int8, attempts, newest
      from unnest($1::text[], $2::int2[], $3::int4[], $4::uuid[]) as m (queue, priority, attempts, newest)
     order by queue, priority
    on conflict (queue, priority, slot) do update
       set attempts = s.attempts + excluded.attempts, newest = greatest(s.newest, excluded.newest)
    returning s.queue`,
  columns: { queue: 'text' },
});
