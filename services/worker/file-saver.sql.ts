/** The statement that writes down files of running attempts. */
import { keyOf } from '../../shared/tasks/beside.sql.ts';
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Announces a file before its first byte is stored, provided that the attempt runs; answers the key to store it under. Nothing
 * where the attempt is over. Index: tasks primary key.
 */
export const beginFile = statement<
  [id: string, taskId: string, attempt: number, kind: string, name: string, contentType: string, firstLookInMs: number]
>()({
  name: 'begin_file',
  text: sql`
    insert into files (id, task_id, attempt, kind, name, content_type, key, sweep_at)
    select $1::uuid, t.id, t.attempt, $4::text, $5::text, $6::text,
           ${keyOf(sql`$1::uuid`)},
           clock_timestamp() + $7::float8 * interval '1 ms'
      from tasks t
      cross join installation i
     where t.id = $2::uuid and t.attempt = $3::int4 and t.state = 'running'
    returning key`,
  columns: { key: 'text' },
});
