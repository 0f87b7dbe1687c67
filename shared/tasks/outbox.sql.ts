/** The statements of the outbox: invitations that the broker has not confirmed. */
import { sql, statement } from '../postgres/statement.ts';

const row = {
  id: 'int8',
  task_ids: 'uuid[]',
  types: 'text[]',
  queues: 'text[]',
  priorities: 'int2[]',
  generations: 'int4[]',
} as const;

/** Deletes rows whose invitations are all confirmed, by the rows' own ids: a task may have a younger row by now. */
export const deleteOutbox = statement<[ids: readonly string[]]>()({
  name: 'delete_outbox',
  text: sql`delete from outbox where id = any($1::int8[]) returning id`,
  columns: { id: 'int8' },
});

/**
 * Keeps of a row only what the broker did not confirm, by task, and puts its next try off. A row that somebody else has
 * shrunk meanwhile goes where he kept nothing of it: each of its invitations was confirmed to one of both.
 */
export const shrinkOutbox = statement<[id: string, taskIds: readonly string[], retryInMs: number]>()({
  name: 'shrink_outbox',
  text: sql`
    with kept as (
      select array_agg(e.task_id) as task_ids, array_agg(e.type) as types, array_agg(e.queue) as queues,
             array_agg(e.priority) as priorities, array_agg(e.generation) as generations
        from outbox s, unnest(s.task_ids, s.types, s.queues, s.priorities, s.generations)
                       as e (task_id, type, queue, priority, generation)
       where s.id = $1::int8 and e.task_id = any($2::uuid[])
    ), shrunk as (
      update outbox o
         set task_ids = k.task_ids, types = k.types, queues = k.queues, priorities = k.priorities,
             generations = k.generations, retry_at = clock_timestamp() + $3::float8 * interval '1 ms'
        from kept k
       where o.id = $1::int8 and k.task_ids is not null
    )
    delete from outbox o using kept k where o.id = $1::int8 and k.task_ids is null
    returning o.id`,
  columns: { id: 'int8' },
});

/** Makes rows due that could not be sent when they were written. */
export const hastenOutbox = statement<[ids: readonly string[]]>()({
  name: 'hasten_outbox',
  text: sql`
    update outbox set retry_at = clock_timestamp()
     where id = any(array(
       select id from outbox where id = any($1::int8[]) and retry_at > clock_timestamp() order by id for update skip locked))
    returning id`,
  columns: { id: 'int8' },
});

/**
 * Takes the oldest rows whose time has come, by moving their `retry_at`: nothing is published inside a transaction.
 * Replicas share the work by SKIP LOCKED. Walks the primary key.
 */
export const takeOutbox = statement<[limit: number, retryInMs: number]>()({
  name: 'take_outbox',
  text: sql`
    update outbox o
       set retry_at = clock_timestamp() + $2::float8 * interval '1 ms'
      from (
        select id from outbox where retry_at <= clock_timestamp() order by id limit $1::int4 for update skip locked
      ) taken
     where o.id = taken.id
    returning o.id, o.task_ids, o.types, o.queues, o.priorities, o.generations`,
  columns: row,
});

/** Invitations in the outbox, and the age of the oldest whose time has come. */
export const measureOutbox = statement<[]>()({
  name: 'measure_outbox',
  text: sql`
    select coalesce(sum(cardinality(task_ids)), 0)::int8 as invitations, count(*)::int8 as rows from outbox`,
  columns: { invitations: 'int8', rows: 'int8' },
});
