/** The statements that show and forget side effects of a task. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** The side effects of a task, in the order in which they began; one row of nulls where it has none. Indexes: primary keys. */
export const listOnce = statement<[taskId: string]>()({
  name: 'list_once',
  text: sql`
    select o.key, o.attempt, o.started_at, o.finished_at, o.result
      from tasks t
      left join once_runs o on o.task_id = t.id
     where t.id = $1::uuid
     order by o.started_at, o.key
     limit 1000`,
  columns: {
    key: 'text?',
    attempt: 'int4?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    result: 'bytea?',
  },
});

/**
 * Forgets a side effect of a task that does not run, so that its next attempt does it. Holds the task's row, so that no attempt
 * begins meanwhile. No row: there is no such task.
 */
export const forgetOnce = statement<
  [taskId: string, key: string, auditId: string, actor: string, role: string, detail: string, address: string | null]
>()({
  name: 'forget_once',
  text: sql`
    with target as (
      select id, state from tasks where id = $1::uuid for no key update
    ), forgotten as (
      delete from once_runs o
       using target t
       where o.task_id = t.id and o.key = $2::text and t.state <> 'running'
      returning o.key
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $3::uuid, $4::text, $5::text, $7::text, 'task.forget-once', $1::uuid::text,
             $6::text::jsonb || jsonb_build_object('key', f.key)
        from forgotten f
    )
    select t.state::text as state, exists (select from forgotten) as is_forgotten from target t`,
  columns: { state: 'text', is_forgotten: 'bool' },
});
