/** The statements that write down files of running attempts. */
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
           i.store_id::text || '/' || right($1::uuid::text, 2) || '/' || $1::uuid::text,
           clock_timestamp() + $7::float8 * interval '1 ms'
      from tasks t
      cross join installation i
     where t.id = $2::uuid and t.attempt = $3::int4 and t.state = 'running'
    returning key`,
  columns: { key: 'text' },
});

/** Writes down that all bytes of a file are stored. Nothing where it is being deleted already. */
export const finishFile = statement<[id: string, bytes: string, sha256: Buffer]>()({
  name: 'finish_file',
  text: sql`
    update files
       set bytes = $2::int8, sha256 = $3::bytea, stored_at = clock_timestamp()
     where id = $1::uuid and stored_at is null and doomed_at is null
    returning id`,
  columns: { id: 'uuid' },
});

/** Forgets a file of which nothing was stored. */
export const forgetFile = statement<[id: string]>()({
  name: 'forget_file',
  text: sql`delete from files where id = $1::uuid and stored_at is null and doomed_at is null returning id`,
  columns: { id: 'uuid' },
});
