/** The statement that cancels. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import {
  cancelWaiting,
  countInLedger,
  endStepsUnheard,
  isAmong,
  notifyWorkers,
} from '../../shared/tasks/beside.sql.ts';

/**
 * Cancels those of the tasks that wait, and asks the workers of those that run, which are notified at the commit; tasks that have
 * ended are left alone. Each that it does something to has its own line in the audit. Locks the tasks in id order, then their
 * rows of `due`. A row is judged as it is once locked, while the update sees it as it was when the statement began: where the
 * two differ nothing is done, and the caller sends the statement again. Index: tasks primary key.
 */
export const cancelTasks = statement<
  [ids: readonly string[], actor: string, role: string, detail: string, address: string | null]
>()({
  name: 'cancel_tasks',
  text: sql`
    with flows_first as (
      -- who moves a flow on holds it and wants what it has blocked
      select id from flows where id = any(array(select flow_id from tasks where id = any($1::uuid[]))) order by id for no key update
    ), target as (
      select id, state, generation, worker
        from tasks
       where id = any($1::uuid[]) and (select count(*) from flows_first) >= 0
       order by id
         for no key update
    ), cancelled as (${cancelWaiting(sql`target`)}
    ), counted as (${countInLedger(sql`'cancelled'`, sql`cancelled`)}
    ), no_longer_due as (
      delete from due d using cancelled c where d.task_id = c.id
    ), asked as (
      insert into cancel_requests (task_id, requested_by)
      select id, $2::text from target where state = 'running' order by id
      on conflict (task_id) do update set requested_by = cancel_requests.requested_by
      returning task_id, requested_at
    ), told as (${notifyWorkers(sql`target where state = 'running'`)}
    ), audited as (
      insert into audit (id, at, actor, role, address, action, target, detail)
      select uuid_v7(), coalesce((select max(finished_at) from cancelled), clock_timestamp()), $2::text, $3::text, $5::text,
             'task.cancel', g.id::text, $4::text::jsonb || jsonb_build_object('was', g.state)
        from target g
       where g.id in (select id from cancelled) or g.id in (select task_id from asked)
    )
    select g.id, g.state::text as was, ${isAmong(sql`g.id`, sql`cancelled`)} as is_cancelled, null::timestamptz as requested_at,
           (select count(*) from told)::int4 as workers_told, ${endStepsUnheard(sql`cancelled`)} as steps_freed
      from target g
     where g.state <> 'running'
    union all
    select a.task_id, 'running', false, a.requested_at, (select count(*) from told)::int4, 0 from asked a
     order by 1`,
  columns: {
    id: 'uuid',
    was: 'text',
    is_cancelled: 'bool?',
    requested_at: 'timestamptz?',
    workers_told: 'int4?',
    steps_freed: 'int4?',
  },
});
