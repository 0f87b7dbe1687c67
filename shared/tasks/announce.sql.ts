/** The statement that announces task types. */
import { sql, statement } from '../postgres/statement.ts';

/**
 * Writes task types and the queues they name; the last announcement stands. In the order of names, so that two workers
 * that start together never deadlock. The foreign key is checked at the end of the statement, so one statement is enough.
 */
export const announceTaskTypes = statement<
  [
    names: readonly string[],
    queues: readonly string[],
    priorities: readonly number[],
    timeoutsMs: readonly number[],
    maxAttempts: readonly number[],
    descriptions: readonly string[],
    inputSchemas: readonly (string | null)[],
    codeVersion: string,
  ]
>()({
  name: 'announce_task_types',
  text: sql`
    with announced as (
      select *
        from unnest($1::text[], $2::text[], $3::int2[], $4::int8[], $5::int4[], $6::text[], $7::text[])
          as a (name, queue, priority, timeout_ms, max_attempts, description, input_schema)
    ), queued as (
      insert into queues (name)
      select distinct queue from announced order by queue
      on conflict do nothing
    )
    insert into task_types (name, queue, priority, timeout_ms, max_attempts, description, input_schema, code_version)
    select name, queue, priority, timeout_ms, max_attempts, description::jsonb, input_schema::jsonb, $8::text
      from announced
     order by name
    on conflict (name) do update
       set queue = excluded.queue, priority = excluded.priority, timeout_ms = excluded.timeout_ms,
           max_attempts = excluded.max_attempts, description = excluded.description,
           input_schema = excluded.input_schema, code_version = excluded.code_version,
           announced_at = clock_timestamp()
    returning name`,
  columns: { name: 'text' },
});

/** Makes queues exist that no task type names. */
export const announceQueueNames = statement<[names: readonly string[]]>()({
  name: 'announce_queue_names',
  text: sql`
    insert into queues (name)
    select distinct name from unnest($1::text[]) as a (name) order by name
    on conflict do nothing
    returning name`,
  columns: { name: 'text' },
});
