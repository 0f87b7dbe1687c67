/** The statements that find dead workers and free what they held. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import {
  cancelWaiting,
  countInLedger,
  endStepsUnheard,
  isAmong,
  ofThisDeath,
  oneById,
  writeOutbox,
} from '../../shared/tasks/beside.sql.ts';

/** How long ago Postgres started, in milliseconds: a lease lapses only over time in which Postgres could be reached. */
export const readUptime = statement<[]>()({
  name: 'read_uptime',
  text: sql`select (extract(epoch from clock_timestamp() - pg_postmaster_start_time()) * 1000)::float8 as uptime_ms`,
  columns: { uptime_ms: 'float8' },
});

/** Takes away leases that were not renewed for `lapseMs`. Locks those rows. */
export const lapseLeases = statement<[lapseMs: number]>()({
  name: 'lapse_leases',
  text: sql`
    delete from leases
     where worker = any(array(
       select worker from leases
        where renewed_at < clock_timestamp() - $1::float8 * interval '1 ms'
        order by worker for update skip locked))
    returning worker, host, pid`,
  columns: { worker: 'uuid', host: 'text', pid: 'int4' },
});

/**
 * Frees the tasks of claims whose worker has no lease: pending again with the attempt kept as lost, `dead` after
 * `maxLost` attempts lost alone (decision 0012), `cancelled` where that was asked for. It joins running rows with leases in every round, so a
 * claim that was committed while its lease was taken away is found by the next one. Locks claims, then tasks in id order. Indexes: claims_worker, tasks primary key.
 */
export const reapOrphans = statement<[limit: number, maxLost: number]>()({
  name: 'reap_orphans',
  text: sql`
    with moment as (
      select clock_timestamp() as at
    ), orphaned as (
      select c.id, c.task_ids, c.alone
        from claims c
       where not exists (select from leases l where l.worker = c.worker)
       order by c.id
       limit $1::int4
         for update skip locked
    ), locked as (
      select t.id, t.attempt, t.worker, t.invited_at, t.started_at, t.id is not distinct from o.alone as is_alone,
             case
               when exists (select from cancel_requests r where r.task_id = t.id) then 'cancelled'
               when t.id = o.alone and t.lost_alone + 1 >= $2::int4 then 'dead'
               else 'pending'
             end::task_state as next_state,
             (select at from moment) as at
        from (
          select o.id, o.alone, u.task_id from orphaned o cross join unnest(o.task_ids) as u (task_id) order by u.task_id
        ) o
        cross join lateral ${oneById(
          sql`id, attempt, worker, invited_at, started_at, lost_alone`,
          sql`o.task_id`,
          sql`
          and state = 'running' and claim_id = o.id for no key update`,
        )} t
    ), freed as (
      -- By the key, and by lookups in place of a join: see oneById and isAmong.
      update tasks t
         set state = case
                       when ${isAmong(sql`t.id`, sql`locked where next_state = 'cancelled'`)} then 'cancelled'
                       when ${isAmong(sql`t.id`, sql`locked where next_state = 'dead'`)} then 'dead'
                       else 'pending'
                     end::task_state,
             lost_attempts = t.lost_attempts + 1,
             lost_alone = t.lost_alone + ${isAmong(sql`t.id`, sql`locked where is_alone`)}::int4,
             invited_at = case when ${isAmong(sql`t.id`, sql`locked where next_state = 'pending'`)} then (select at from moment)
                          else t.invited_at end,
             finished_at = case when ${isAmong(sql`t.id`, sql`locked where next_state <> 'pending'`)} then (select at from moment) end
       where t.id = any(array(select id from locked)) and t.state = 'running'
      returning t.id, t.attempt, t.state, t.type, t.queue, t.priority, t.generation, t.deadline, t.flow_id, t.flow_step
    ), counted as (${countInLedger(sql`state::text`, sql`freed where state in ('dead', 'cancelled')`)}
    ), history as (
      insert into attempts (task_id, attempt, worker, invited_at, started_at, finished_at, outcome, error_type, error_code,
                            error_message)
      select id, attempt, worker, invited_at, started_at, at, 'lost', 'WorkerLost', 'worker-lost',
             case when is_alone then 'The worker died or was cut off while nothing else ran in it; its lease lapsed.'
                  else 'The worker died or was cut off; its lease lapsed.' end
        from locked order by id
      on conflict (task_id, attempt) do nothing -- counted anew by hand: what is on record stays
    ), waiting as (
      insert into due (task_id, at)
      select id, deadline from freed where state = 'pending' and deadline is not null order by id
      on conflict (task_id) do update set at = excluded.at
    ), letters as (
      insert into dead_letters (id, kind, task_id, reason, type, queue, attempt, error_type, error_code, error_message)
      select uuid_v7(), 'task', id, 'worker_lost', type, queue, attempt, 'WorkerLost', 'worker-lost',
             'The worker died or was cut off each time that the task ran alone in it.'
        from freed where state = 'dead'${ofThisDeath}
    ), forgotten as (
      delete from cancel_requests c using freed f where c.task_id = f.id and f.state <> 'pending'
    ), invited as (${writeOutbox(sql`freed where state = 'pending'`)}
    ), gone as (
      delete from claims c using orphaned o where c.id = o.id returning c.id
    )
    select f.id, f.attempt, f.state::text as state, f.type, f.queue, f.priority, f.generation,
           case when f.state = 'pending' then (select id from invited) end as outbox_id,
           ${endStepsUnheard(sql`(select * from freed where state in ('dead', 'cancelled')) over`)} as steps_freed
      from freed f`,
  columns: {
    id: 'uuid',
    attempt: 'int4',
    state: 'text',
    type: 'text',
    queue: 'text',
    priority: 'int2',
    generation: 'int4',
    outbox_id: 'int8?',
    steps_freed: 'int4?',
  },
});

/**
 * Forgets requests to cancel tasks that have ended, and cancels those that wait again: their attempt was settled by a statement
 * that had begun before the request was committed, and saw nothing of it. Locks tasks in id order, skipping what another holds.
 */
export const followCancelRequests = statement<[]>()({
  name: 'follow_cancel_requests',
  text: sql`
    with left_over as (
      select t.id, t.state, t.generation
        from (select task_id from cancel_requests order by task_id) c
        cross join lateral ${oneById(
          sql`id, state, generation`,
          sql`c.task_id`,
          sql`
          and state <> 'running' for no key update skip locked`,
        )} t
    ), cancelled as (${cancelWaiting(sql`left_over`)}
    ), counted as (${countInLedger(sql`'cancelled'`, sql`cancelled`)}
    ), no_longer_due as (
      delete from due d using cancelled c where d.task_id = c.id
    )
    delete from cancel_requests r
     using left_over l
     where r.task_id = l.id
       and (l.state in ('succeeded', 'dead', 'cancelled', 'expired') or l.id in (select id from cancelled))
    returning r.task_id, ${endStepsUnheard(sql`cancelled`)} as steps_freed`,
  columns: { task_id: 'uuid', steps_freed: 'int4?' },
});
