/** The statement that keeps what attempts logged. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Keeps the lines of attempts; of one that has lines already nothing changes. In the order of the key. */
export const storeAttemptLogs = statement<
  [ids: readonly string[], attempts: readonly number[], lines: readonly string[], dropped: readonly number[]]
>()({
  name: 'store_attempt_logs',
  text: sql`
    insert into attempt_logs (task_id, attempt, lines, dropped)
    select * from unnest($1::uuid[], $2::int4[], $3::text[], $4::int4[]) as l (task_id, attempt, lines, dropped)
     order by task_id, attempt
    on conflict (task_id, attempt) do nothing
    returning task_id`,
  columns: { task_id: 'uuid' },
});
