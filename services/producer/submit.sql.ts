/** The statement that accepts tasks. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { countInLedger, holdForQueue, isAmong, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/**
 * Accepts tasks with their outbox row and their entries in the ledger, all in one statement. A row whose unique key is held, or
 * whose message id or idempotency key was accepted before, is left out of the answer; the statements of `repeats.sql.ts` say
 * what it met. The unique key comes first: a message id must never be remembered for a task that there is not, while a key that
 * such a task holds is free to whoever looks. Inserts in key order, so that two batches never deadlock. An array that no row
 * uses is passed as null and costs nothing.
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
    idempotencyKeys: readonly (string | null)[] | null,
    uniqueKeys: readonly (string | null)[] | null,
    holds: readonly (string | null)[] | null,
    windowsMs: readonly (number | null)[] | null,
    concurrencyKeys: readonly (string | null)[] | null,
    rateKeys: readonly (string | null)[] | null,
    holdReasons: readonly (string | null)[] | null,
    callbacks: readonly (string | null)[] | null,
    inputFiles: readonly (string | null)[] | null,
    traces: readonly (string | null)[] | null,
  ]
>()({
  name: 'accept_tasks',
  text: sql`
    with wanted as (
      select *, clock_timestamp() as now
        from unnest($1::uuid[], $2::text[], $3::text[], $4::int2[], $5::int4[], $6::bytea[], $7::timestamptz[],
                    $8::timestamptz[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[],
                    $15::text[], $16::text[], $17::text[], $18::text[], $19::float8[], $20::text[], $21::text[],
                    $22::text[], $23::float8[], $24::text[], $25::text[], $26::text[], $27::text[], $28::uuid[],
                    $29::text[])
          as w (id, type, queue, priority, max_attempts, input, run_at, deadline, business_key, tags, external_id,
                publisher, correlation_id, digest, exchange, routing_key, properties, headers, delay_ms,
                idempotency_key, unique_key, hold, window_ms, concurrency_key, rate_key, hold_reason, callback, input_file,
                trace)
    ), held as (
      insert into unique_keys (type, key, task_id, hold, until)
      select type, unique_key, id, hold, now + window_ms * interval '1 ms'
        from wanted
       where unique_key is not null
       order by type, unique_key
      on conflict do nothing
      returning task_id
    ), fresh as (
      insert into message_ids (publisher, type, message_id, task_id, digest)
      select publisher, type, external_id, id, digest
        from wanted
       where external_id is not null and (unique_key is null or id in (select task_id from held))
       order by publisher, type, external_id
      on conflict do nothing
      returning task_id
    ), keyed as (
      insert into idempotency_keys (actor, key, task_id, digest)
      select publisher, idempotency_key, id, digest
        from wanted
       where idempotency_key is not null and (unique_key is null or id in (select task_id from held))
       order by publisher, idempotency_key
      on conflict do nothing
      returning task_id
    ), filed as (
      -- a file that is about to be swept, because this took so long, is not: a sweeper and this wait for each other
      update files f
         set sweep_at = greatest(f.sweep_at, clock_timestamp() + interval '1 day')
        from wanted w
       where $28::uuid[] is not null and f.id = w.input_file and f.doomed_at is null
      returning f.id
    ), accepted as (
      insert into tasks (id, accepted_at, invited_at, run_at, deadline, state, max_attempts, priority, type, queue,
                         business_key, external_id, publisher, correlation_id, tags, input, concurrency_key, rate_key, input_file,
                         trace)
      select w.id, w.now,
             case when at.run_at is null and w.hold_reason is null then w.now end,
             at.run_at, w.deadline,
             case when at.run_at is null then 'pending' else 'scheduled' end::task_state,
             w.max_attempts, w.priority, w.type, w.queue, w.business_key, w.external_id, w.publisher,
             w.correlation_id, w.tags::text[], w.input, w.concurrency_key, w.rate_key, w.input_file, w.trace
        from wanted w
        cross join lateral (
          select case
                   when w.delay_ms > 0 then w.now + w.delay_ms * interval '1 ms'
                   when w.run_at > w.now then w.run_at
                 end as run_at
        ) at
       where (w.external_id is null or w.id in (select task_id from fresh))
         and (w.idempotency_key is null or w.id in (select task_id from keyed))
         and (w.unique_key is null or w.id in (select task_id from held))
         and (w.input_file is null or w.input_file in (select id from filed))
       order by w.id
      returning id, accepted_at, invited_at, run_at, deadline, state, type, queue, priority, generation
    ), counted as (${countInLedger(sql`'accepted'`, sql`accepted`)}
    ), waiting as (
      insert into due (task_id, at)
      select id, least(run_at, deadline) from accepted where run_at is not null or deadline is not null order by id
    ), remembered as (
      insert into origins (task_id, exchange, routing_key, properties, headers)
      select w.id, w.exchange, w.routing_key, w.properties::jsonb, w.headers::jsonb
        from wanted w
       where $17::text[] is not null and w.properties is not null and ${isAmong(sql`w.id`, sql`accepted`)}
    ), held_up as (
      select w.id, w.queue, w.priority, case when w.hold_reason = 'turn' then coalesce(turn_key(w.queue, w.input), '') end as turn
        from wanted w
       where $26::text[] is not null and w.hold_reason is not null
         and ${isAmong(sql`w.id`, sql`accepted where state = 'pending' and invited_at is null`)}
    ), held_back_now as (${holdForQueue(sql`held_up`)}
    ), called_back as (
      insert into callbacks (task_id, callback)
      select w.id, w.callback::jsonb
        from wanted w
       where $27::text[] is not null and w.callback is not null and ${isAmong(sql`w.id`, sql`accepted`)}
       order by w.id
    ), invited as (${writeOutbox(sql`accepted where invited_at is not null`)}
    )
    select id, accepted_at, run_at, state::text as state, invited_at is not null as is_invited,
           case when invited_at is not null then (select id from invited) end as outbox_id
      from accepted`,
  columns: {
    id: 'uuid',
    accepted_at: 'timestamptz',
    run_at: 'timestamptz?',
    state: 'text',
    is_invited: 'bool?',
    outbox_id: 'int8?',
  },
});
