/** The statements that write down and find inputs in the store of files. */
import { sql, statement } from '../postgres/statement.ts';
import { keyOf } from './beside.sql.ts';

/** Announces the input of a task that may be still to come, before its first byte is stored; answers the key to store it under. */
export const beginInput = statement<[id: string, taskId: string, firstLookInMs: number]>()({
  name: 'begin_input_file',
  text: sql`
    insert into files (id, task_id, attempt, kind, name, content_type, key, sweep_at)
    select $1::uuid, $2::uuid, 0, 'input', 'input.json', 'application/json', ${keyOf(sql`$1::uuid`)},
           clock_timestamp() + $3::float8 * interval '1 ms'
      from installation i
    returning key`,
  columns: { key: 'text' },
});

/** Where an input lies, and what it must be. Nothing where it was deleted. Index: files primary key. */
export const findInput = statement<[id: string]>()({
  name: 'find_input_file',
  text: sql`
    select key, bytes, sha256 from files
     where id = $1::uuid and kind = 'input' and stored_at is not null and doomed_at is null`,
  columns: { key: 'text', bytes: 'int8?', sha256: 'bytea?' },
});
