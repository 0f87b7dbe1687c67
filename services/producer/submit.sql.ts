/** The statements that accept tasks. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Accepts tasks with their outbox row and their entries in the ledger, all in one statement. A row whose (publisher, type, message id) was accepted
 * before is left out of the answer; `findMessageIds` says what it met. Inserts in key order, so that two batches never
 * deadlock. An array that no row uses is passed as null and costs nothing.
 */
export const acceptTasks = statement<
  [
    ids: readonly string[],
    types: readonly string[],
    queues: readonly string[],
    priorities: readonly number[],
    maxAttempts: readonly number[],
    inputs: readonly Buffer[],
    runAts: readonly (Date | null)[] | null,
    deadlines: readonly (Date | null)[] | null,
    businessKeys: readonly (string | null)[] | null,
    tags: readonly (string | null)[] | null,
    externalIds: readonly (string | null)[] | null,
    publishers: readonly (string | null)[] | null,
    correlationIds: readonly (string | null)[] | null,
    digests: readonly (Buffer | null)[] | null,
    exchanges: readonly (string | null)[] | null,
    routingKeys: readonly (string | null)[] | null,
    properties: readonly (string | null)[] | null,
    headers: readonly (string | null)[] | null,
    delaysMs: readonly (number | null)[] | null,
  ]
>()({
  name: 'accept_tasks',
  text: sql`
    with wanted as (
      select *, clock_timestamp() as now
        from unnest($1::uuid[], $2::text[], $3::text[], $4::int2[], $5::int4[], $6::bytea[], $7::timestamptz[],
                    $8::timestamptz[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[],
                    $15::text[], $16::text[], $17::text[], $18::text[], $19::float8[])
          as w (id, type, queue, priority, max_attempts, input, run_at, deadline, business_key, tags, external_id,
                publisher, correlation_id, digest, exchange, routing_key, properties, headers, delay_ms)
    ), fresh as (
      insert into message_ids (publisher, type, message_id, task_id, digest)
      select publisher, type, external_id, id, digest
        from wanted
       where external_id is not null
       order by publisher, type, external_id
      on conflict do nothing
      returning task_id
    ), accepted as (
      insert into tasks (id, accepted_at, invited_at, run_at, deadline, state, max_attempts, priority, type, queue,
                         business_key, external_id, publisher, correlation_id, tags, input)
      select w.id, w.now,
             case when at.run_at is null then w.now end,
             at.run_at, w.deadline,
             case when at.run_at is null then 'pending' else 'scheduled' end::task_state,
             w.max_attempts, w.priority, w.type, w.queue, w.business_key, w.external_id, w.publisher,
             w.correlation_id, w.tags::text[], w.input
        from wanted w
        cross join lateral (
          select case
                   when w.delay_ms > 0 then w.now + w.delay_ms * interval '1 ms'
                   when w.run_at > w.now then w.run_at
                 end as run_at
        ) at
       where w.external_id is null or w.id in (select task_id from fresh)
       order by w.id
      returning id, accepted_at, run_at, deadline, state, type, queue, priority
    ), counted as (
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select task_hour(id), type, 'accepted', pg_backend_pid(), count(*)
        from accepted
       group by 1, 2, 3
       order by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
    ), waiting as (
      insert into due (task_id, at)
      select id, least(run_at, deadline) from accepted where run_at is not null or deadline is not null order by id
    ), remembered as (
      insert into origins (task_id, exchange, routing_key, properties, headers)
      select a.id, w.exchange, w.routing_key, w.properties::jsonb, w.headers::jsonb
        from wanted w
        join accepted a on a.id = w.id
       where w.properties is not null
    ), invited as (
      insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
      select clock_timestamp() + interval '10 s', array_agg(id), array_agg(type), array_agg(queue),
             array_agg(priority), array_agg(1)
        from accepted where state = 'pending' having count(*) > 0
      returning id
    )
    select id, accepted_at, run_at, state::text as state,
           case when state = 'pending' then (select id from invited) end as outbox_id
      from accepted`,
  columns: { id: 'uuid', accepted_at: 'timestamptz', run_at: 'timestamptz?', state: 'text', outbox_id: 'int8?' },
});

/** What earlier submissions under these message ids were. Index: message_ids primary key. */
export const findMessageIds = statement<
  [publishers: readonly string[], types: readonly string[], messageIds: readonly string[]]
>()({
  name: 'find_message_ids',
  text: sql`
    select m.publisher, m.type, m.message_id, m.task_id, m.digest,
           m.accepted_at < now() - interval '7 days' as is_past
      from unnest($1::text[], $2::text[], $3::text[]) as w (publisher, type, message_id)
      join message_ids m on m.publisher = w.publisher and m.type = w.type and m.message_id = w.message_id`,
  columns: {
    publisher: 'text',
    type: 'text',
    message_id: 'text',
    task_id: 'uuid',
    digest: 'bytea',
    is_past: 'bool',
  },
});

/** Forgets message ids older than seven days, at most 5 000 a call, so that they may be used again. */
export const forgetMessageIds = statement<[]>()({
  name: 'forget_message_ids',
  text: sql`
    delete from message_ids
     where ctid = any(array(
       select ctid from message_ids where accepted_at < now() - interval '7 days' order by accepted_at limit 5000))
    returning task_id`,
  columns: { task_id: 'uuid' },
});

/** Forgets one message id, so that it may be used again. */
export const forgetMessageId = statement<[publisher: string, type: string, messageId: string]>()({
  name: 'forget_message_id',
  text: sql`
    delete from message_ids
     where publisher = $1::text and type = $2::text and message_id = $3::text
       and accepted_at < now() - interval '7 days'
    returning task_id`,
  columns: { task_id: 'uuid' },
});
