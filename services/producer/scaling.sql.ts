/** The statements that read what a queue is scaled by. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { turnsWaiting } from '../../shared/tasks/beside.sql.ts';

/**
 * How a queue stands, and what the workers of it say: those that stay, with their slots, what they run and hold unstarted; those on their way
 * out, with what they still run. A row per lease is read, and those that wait for their turn are counted up to 100 000. No row: there is no
 * such queue. Index: held_back_in_turn.
 */
export const readQueueLoad = statement<[queue: string]>()({
  name: 'read_queue_load',
  text: sql`
    select q.mode, ${turnsWaiting} as turns, l.workers, l.slots, l.running, l.held, l.draining, l.ending
      from queues q
      cross join (
        select count(*) filter (where not is_draining)::int4 as workers,
               coalesce(sum(slots) filter (where not is_draining), 0)::int4 as slots,
               coalesce(sum(running) filter (where not is_draining), 0)::int4 as running,
               coalesce(sum(waiting) filter (where not is_draining), 0)::int4 as held,
               count(*) filter (where is_draining)::int4 as draining,
               coalesce(sum(running) filter (where is_draining), 0)::int4 as ending
          from (
            select is_draining, (queues ->> $1::text)::int4 as slots,
                   coalesce((loads -> $1::text ->> 'running')::int4, 0) as running,
                   coalesce((loads -> $1::text ->> 'waiting')::int4, 0) as waiting
              from leases
             where queues ? $1::text
          ) w
      ) l
     where q.name = $1::text`,
  columns: {
    mode: 'text',
    turns: 'int4?',
    workers: 'int4',
    slots: 'int4',
    running: 'int4',
    held: 'int4',
    draining: 'int4',
    ending: 'int4',
  },
});

/**
 * What was accepted within each of some spans of time, by queue and type, without what waits for an instant or for other steps. Of each
 * span, from one id to before the next, the first `limit` rows: `seen` of them up to `last_id`, which is null where there were no more.
 * Index: tasks primary key.
 */
export const sampleArrivals = statement<[from: readonly string[], before: readonly string[], limit: number]>()({
  name: 'sample_arrivals',
  text: sql`
    select w.span::int4 as span, t.queue, t.type,
           (count(*) filter (where t.state not in ('scheduled', 'blocked')))::int4 as tasks,
           (max(t.last_id::text) filter (where t.is_cut)) as last_id
      from unnest($1::uuid[], $2::uuid[]) with ordinality as w (lower_id, upper_id, span)
      cross join lateral (
        select s.queue, s.type, s.state, max(s.id::text) over () as last_id, count(*) over () = $3::int4 as is_cut
          from (
            select id, queue, type, state from tasks where id >= w.lower_id and id < w.upper_id order by id limit $3::int4
          ) s
      ) t
     group by w.span, t.queue, t.type
     order by w.span, t.queue, t.type`,
  columns: { span: 'int4', queue: 'text', type: 'text', tasks: 'int4', last_id: 'text?' },
});
