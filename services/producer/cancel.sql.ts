/** The statements that cancel. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import {
  cancelWaiting,
  countInLedger,
  endStepsUnheard,
  isAmong,
  notifyWorkers,
} from '../../shared/tasks/beside.sql.ts';

/**
 * Cancels the tasks of `target`, and asks the workers of those that run, which are notified at the commit. Each
 * that it does something to has its own line in the audit. A row is judged as it is once locked, while the update sees it as it was when the
 * statement began: where the two differ nothing is done, and the caller sends the statement again. `others`: rows that are answered as well.
 */
const cancelling = (target: Sql, others: Sql): Sql => sql`
    with target as (${target}
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
    select a.task_id, 'running', false, a.requested_at, (select count(*) from told)::int4, 0 from asked a${others}
     order by 1`;

const cancelColumns = {
  id: 'uuid',
  was: 'text',
  is_cancelled: 'bool?',
  requested_at: 'timestamptz?',
  workers_told: 'int4?',
  steps_freed: 'int4?',
} as const;

type CancelParams = [ids: readonly string[], actor: string, role: string, detail: string, address: string | null];

/**
 * Cancels those of the tasks that wait, and asks for the cancelling of those that run; tasks that have ended are left alone, and so are blocked
 * steps of flows, answered with an `is_cancelled` of null: those are for `cancelBlockedSteps`. Locks the tasks in id order, then their rows
 * of `due`, then flows. Index: tasks primary key.
 */
export const cancelTasks = statement<CancelParams>()({
  name: 'cancel_tasks',
  text: cancelling(
    sql`
      select id, state, generation, worker
        from tasks
       where id = any($1::uuid[]) and not (state = 'blocked' and flow_id is not null)
       order by id
         for no key update`,
    sql`
    union all
    select id, 'blocked', null, null, null, 0
      from tasks
     where id = any($1::uuid[]) and state = 'blocked' and flow_id is not null`,
  ),
  columns: cancelColumns,
});

/**
 * Cancels those of the tasks that are blocked steps. Locks their flows first (`hold_blocked`): whoever moves a flow on holds it, and wants what it
 * has blocked. Index: tasks primary key.
 */
export const cancelBlockedSteps = statement<CancelParams>()({
  name: 'cancel_blocked_steps',
  text: cancelling(
    sql`
      select id, state, generation, worker
        from tasks
       where id = any((select hold_blocked($1::uuid[]))::uuid[]) and state = 'blocked'
       order by id
         for no key update`,
    sql``,
  ),
  columns: cancelColumns,
});
