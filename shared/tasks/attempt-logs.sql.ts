/** The statement that reads what an attempt logged. */
import { sql, statement } from '../postgres/statement.ts';

/** What an attempt of a task logged, and how it stands; one row where there is such a task. Indexes: primary keys. */
export const readAttemptLogs = statement<[taskId: string, attempt: number]>()({
  name: 'read_attempt_logs',
  text: sql`
    select t.state::text as state, t.attempt as last_attempt, a.outcome, l.lines, l.dropped
      from tasks t
      left join attempts a on a.task_id = t.id and a.attempt = $2::int4
      left join attempt_logs l on l.task_id = t.id and l.attempt = $2::int4
     where t.id = $1::uuid`,
  columns: { state: 'text', last_attempt: 'int4', outcome: 'text?', lines: 'text?', dropped: 'int4?' },
});
