/** The statements that look at tasks that somebody follows. Each look is one statement, however many follow. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { attemptColumns } from '../../shared/tasks/attempt-columns.ts';

/** How tasks stand. Those that there are not are left out. Index: tasks primary key. */
export const followTasks = statement<[ids: readonly string[]]>()({
  name: 'follow_tasks',
  text: sql`
    select t.id, t.type, t.state::text as state, t.attempt, t.failures, t.generation, t.run_at, t.started_at,
           t.finished_at, p.fraction::float8 as progress_fraction, p.step as progress_step,
           p.message as progress_message, p.updated_at as progress_at, clock_timestamp() as now
      from unnest($1::uuid[]) as wanted (id)
      join tasks t on t.id = wanted.id
      left join progress p on p.task_id = t.id and p.attempt = t.attempt and t.state = 'running'`,
  columns: {
    id: 'uuid',
    type: 'text',
    state: 'text',
    attempt: 'int4',
    failures: 'int4',
    generation: 'int4',
    run_at: 'timestamptz?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    progress_fraction: 'float8?',
    progress_step: 'text?',
    progress_message: 'text?',
    progress_at: 'timestamptz?',
    now: 'timestamptz?',
  },
});

/** The last `limit` attempts of each task that left a row and come after the one that is given, oldest first. Index: attempts primary key. */
export const followAttempts = statement<[ids: readonly string[], after: readonly number[], limit: number]>()({
  name: 'follow_attempts',
  text: sql`
    select a.task_id, a.attempt, a.worker, a.started_at, a.finished_at, a.outcome, a.error_type, a.error_code,
           a.error_message, a.error_stack, a.code_version
      from unnest($1::uuid[], $2::int4[]) as wanted (id, told)
      cross join lateral (
        select * from attempts a
         where a.task_id = wanted.id and a.attempt > wanted.told
         order by a.attempt desc
         limit $3::int4
      ) a
     order by a.task_id, a.attempt`,
  columns: {
    task_id: 'uuid',
    ...attemptColumns,
  },
});
