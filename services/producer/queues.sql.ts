/** The statements about queues as operators see them. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { oneById, turnsWaiting } from '../../shared/tasks/beside.sql.ts';

/** Every queue with its mode, how many of its tasks run, and whether tasks of it are held back. A row per queue, and one per claim. */
export const showQueues = statement<[]>()({
  name: 'show_queues',
  text: sql`
    with running as (
      select t.queue, count(*)::int4 as tasks
        from claims c
        cross join unnest(c.task_ids) as u (id)
        cross join lateral ${oneById(sql`queue`, sql`u.id`, sql`and state = 'running' and claim_id = c.id`)} t
       group by t.queue
    )
    select q.name, q.mode, q.mode_reason, q.mode_by, q.mode_since, coalesce(r.tasks, 0) as running,
           exists (select from held_back h where h.reason in ('paused', 'draining') and h.scope = q.name) as holds_back,
           q.fair_by, q.fair_weights, q.fair_depth, ${turnsWaiting} as turns
      from queues q
      left join running r on r.queue = q.name
     order by q.name`,
  columns: {
    name: 'text',
    mode: 'text',
    mode_reason: 'text?',
    mode_by: 'text?',
    mode_since: 'timestamptz?',
    running: 'int4?',
    holds_back: 'bool',
    fair_by: 'text?',
    fair_weights: 'jsonb',
    fair_depth: 'int4',
    turns: 'int4?',
  },
});

/** Sets the mode of a queue, and writes who did; the same mode again changes its reason. No row: there is no such queue. */
export const setQueueMode = statement<
  [
    name: string,
    mode: string,
    reason: string | null,
    auditId: string,
    actor: string,
    role: string,
    address: string | null,
    action: string,
  ]
>()({
  name: 'set_queue_mode',
  text: sql`
    with target as (
      select name, mode from queues where name = $1::text for no key update
    ), changed as (
      update queues q
         set mode = $2::text, mode_reason = $3::text, mode_by = $5::text, mode_since = clock_timestamp()
        from target g
       where q.name = g.name
      returning q.name
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $4::uuid, $5::text, $6::text, $7::text, $8::text, g.name,
             jsonb_strip_nulls(jsonb_build_object('reason', $3::text, 'was', g.mode))
        from target g
    )
    select g.mode as was from target g join changed c on c.name = g.name`,
  columns: { was: 'text' },
});
