/** The statements that show the history of a task. Each is bounded, and reads along the primary key or an index of the task. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** What the task's own row and what stands beside it say of its history. Indexes: primary keys. */
export const readHistoryTask = statement<[id: string]>()({
  name: 'read_history_task',
  text: sql`
    select t.id, t.state::text as state, t.attempt, t.worker, t.accepted_at, t.invited_at, t.started_at, t.finished_at,
           t.run_at,
           t.flow_id, case when s.task_id = t.id then s.why end as step_why,
           t.publisher, t.external_id is not null or o.task_id is not null as is_from_amqp,
           exists (select from attempts a where a.task_id = t.id and a.attempt = t.attempt) as has_row,
           exists (select from attempt_logs l where l.task_id = t.id and l.attempt = t.attempt) as has_logs,
           p.fraction::float8 as progress_fraction, p.step as progress_step, p.updated_at as progress_at
      from tasks t
      left join origins o on o.task_id = t.id
      left join progress p on p.task_id = t.id and p.attempt = t.attempt and t.state = 'running'
      left join flow_steps s on s.flow_id = t.flow_id and s.step = t.flow_step
     where t.id = $1::uuid`,
  columns: {
    id: 'uuid',
    state: 'text',
    attempt: 'int4',
    worker: 'uuid?',
    accepted_at: 'timestamptz',
    invited_at: 'timestamptz?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    run_at: 'timestamptz?',
    flow_id: 'uuid?',
    step_why: 'text?',
    publisher: 'text?',
    is_from_amqp: 'bool',
    has_row: 'bool',
    has_logs: 'bool',
    progress_fraction: 'float8?',
    progress_step: 'text?',
    progress_at: 'timestamptz?',
  },
});

/** Attempts that left a row, oldest first, from number `from` on. Index: attempts primary key. */
export const readHistoryAttempts = statement<[id: string, from: number, limit: number]>()({
  name: 'read_history_attempts',
  text: sql`
    select a.attempt, a.worker, a.invited_at, a.started_at, a.finished_at, a.outcome, a.error_type, a.error_code, a.error_message,
           a.code_version,
           exists (select from dead_letters d where d.task_id = a.task_id and d.attempt = a.attempt) as is_death,
           exists (select from attempt_logs l where l.task_id = a.task_id and l.attempt = a.attempt) as has_logs
      from attempts a
     where a.task_id = $1::uuid and a.attempt >= $2::int4
     order by a.attempt
     limit $3::int4`,
  columns: {
    attempt: 'int4',
    worker: 'uuid',
    invited_at: 'timestamptz?',
    started_at: 'timestamptz',
    finished_at: 'timestamptz',
    outcome: 'text',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
    code_version: 'text?',
    is_death: 'bool',
    has_logs: 'bool',
  },
});

/** The deaths of a task from an instant on, and who closed their letters. Index: dead_letters_task. */
export const readHistoryLetters = statement<[id: string, from: Date, limit: number]>()({
  name: 'read_history_letters',
  text: sql`
    select id, attempt, reason, died_at, state, closed_at, closed_by, close_reason, replay_id
      from dead_letters
     where task_id = $1::uuid and (died_at >= $2::timestamptz or closed_at >= $2::timestamptz)
     order by died_at, id
     limit $3::int4`,
  columns: {
    id: 'uuid',
    attempt: 'int4?',
    reason: 'text',
    died_at: 'timestamptz',
    state: 'text',
    closed_at: 'timestamptz?',
    closed_by: 'text?',
    close_reason: 'text?',
    replay_id: 'uuid?',
  },
});

/**
 * What people and services did with a task and with its dead letters, from an instant on. Index: audit_target;
 * the offset keeps the planner from walking all there is by its time instead.
 */
export const readHistoryAudit = statement<[id: string, from: Date, limit: number]>()({
  name: 'read_history_audit',
  text: sql`
    select id, at, actor, role, address, action, target, detail
      from (select * from audit
             where action not in ('dead-letter.replay', 'dead-letter.discard') -- the letters themselves say that
               and target = any(array(
                     select $1::uuid::text
                     union all
                     select id::text from dead_letters where task_id = $1::uuid))
            offset 0) a
     where at >= $2::timestamptz
     order by at, id
     limit $3::int4`,
  columns: {
    id: 'uuid',
    at: 'timestamptz',
    actor: 'text',
    role: 'text',
    address: 'text?',
    action: 'text',
    target: 'text',
    detail: 'jsonb',
  },
});
