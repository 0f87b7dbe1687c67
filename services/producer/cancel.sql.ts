/** The statement that cancels. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Cancels a task that waits, or asks the worker of one that runs; a task that has ended is left alone. Locks the task, then
 * its row of `due`. The row is judged as it is once locked, while the update sees it as it was when the statement began:
 * where the two differ nothing is done, and the caller sends the statement again. Index: tasks primary key.
 */
export const cancelOne = statement<[taskId: string, auditId: string, actor: string, role: string, detail: string]>()({
  name: 'cancel_one',
  text: sql`
    with target as (
      select id, state, claim_id from tasks where id = $1::uuid for no key update
    ), cancelled as (
      update tasks t
         set state = 'cancelled', generation = t.generation + 1, run_at = null, finished_at = clock_timestamp()
        from target g
       where t.id = g.id and t.state = g.state and g.state in ('pending', 'scheduled', 'retrying', 'blocked')
      returning t.id, t.type
    ), counted as (
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select task_hour(id), type, 'cancelled', pg_backend_pid(), count(*)
        from cancelled
       group by 1, 2, 3
       order by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
    ), no_longer_due as (
      delete from due d using cancelled c where d.task_id = c.id
    ), asked as (
      insert into cancel_requests (task_id, requested_by)
      select id, $3::text from target where state = 'running'
      on conflict (task_id) do update set requested_by = cancel_requests.requested_by
      returning task_id, requested_at
    ), audited as (
      insert into audit (id, actor, role, action, target, detail)
      select $2::uuid, $3::text, $4::text, 'task.cancel', g.id::text, $5::text::jsonb || jsonb_build_object('was', g.state)
        from target g
       where g.id in (select id from cancelled) or g.id in (select task_id from asked)
    )
    select g.state::text as was, exists (select from cancelled) as is_cancelled,
           (select requested_at from asked) as requested_at
      from target g`,
  columns: { was: 'text', is_cancelled: 'bool', requested_at: 'timestamptz?' },
});
