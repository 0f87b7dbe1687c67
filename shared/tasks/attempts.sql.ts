/** The statement that reads the history of a task. */
import { sql, statement } from '../postgres/statement.ts';
import { attemptColumns } from './attempt-columns.ts';

/** The last `limit` attempts of a task that left a row, newest first. Index: attempts primary key. */
export const readAttempts = statement<[id: string, limit: number]>()({
  name: 'read_attempts',
  text: sql`
    select attempt, worker, started_at, finished_at, outcome, error_type, error_code, error_message, error_stack,
           code_version
      from attempts
     where task_id = $1::uuid
     order by attempt desc
     limit $2::int4`,
  columns: {
    ...attemptColumns,
  },
});
