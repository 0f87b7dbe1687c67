/** The statements that show files of tasks and write down links. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';

const columns = {
  id: 'uuid',
  kind: 'text',
  name: 'text',
  content_type: 'text',
  key: 'text',
  bytes: 'int8?',
  sha256: 'bytea?',
  created_at: 'timestamptz',
  link_expires_at: 'timestamptz?',
} as const;

/** Whether the file `f` of the task `t` can be had in these states: its input can be always, and the others with their attempt. */
const canBeHad = (states: Sql): Sql => sql`f.stored_at is not null and f.doomed_at is null
       and (case when f.kind = 'input' then f.id = t.input_file else f.attempt = t.attempt and ${states} end)`;

/**
 * The input, and whole files of the attempt that succeeded, or that runs. Files of other attempts are nobody's. Indexes: tasks
 * primary key, files_task.
 */
export const listFiles = statement<[taskId: string]>()({
  name: 'list_files',
  text: sql`
    select f.id, f.kind, f.name, f.content_type, f.key, f.bytes, f.sha256, f.created_at, f.link_expires_at
      from tasks t
      join files f on f.task_id = t.id
     where t.id = $1::uuid and ${canBeHad(sql`t.state in ('running', 'succeeded')`)}
     order by f.id`,
  columns,
});

/** A file that a link leads to. Indexes: primary keys. */
export const readFile = statement<[id: string]>()({
  name: 'read_file',
  text: sql`
    select f.id, f.kind, f.name, f.content_type, f.key, f.bytes, f.sha256, f.created_at, f.link_expires_at
      from files f
      join tasks t on t.id = f.task_id
     where f.id = $1::uuid and ${canBeHad(sql`t.state = 'succeeded'`)}`,
  columns,
});

/**
 * Writes down that there is a link to an input, or to a file of a task that succeeded, so that the file outlives it; answers when it expires, in whole
 * seconds. The time counts from now, by the clock of Postgres.
 */
export const markLink = statement<[taskId: string, fileId: string, seconds: number]>()({
  name: 'mark_link',
  text: sql`
    with link as (
      select date_trunc('second', clock_timestamp()) + $3::int4 * interval '1 s' as expires_at
    )
    update files f
       set link_expires_at = greatest(f.link_expires_at, l.expires_at)
      from tasks t
      cross join link l
     where f.id = $2::uuid and f.task_id = $1::uuid and t.id = f.task_id and ${canBeHad(sql`t.state = 'succeeded'`)}
    returning l.expires_at`,
  columns: { expires_at: 'timestamptz' },
});

/** Whether there is such a task, and how it stands. */
export const readTaskState = statement<[id: string]>()({
  name: 'read_task_state',
  text: sql`select state::text as state from tasks where id = $1::uuid`,
  columns: { state: 'text' },
});
