/**
 * The statements about what comes again: message ids, idempotency keys and unique keys that were taken before. Each looks with a
 * snapshot of its own, after an insert met the row: what that insert waited for is visible now.
 */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** What earlier submissions under these message ids were. Index: message_ids primary key. */
export const findMessageIds = statement<
  [publishers: readonly string[], types: readonly string[], messageIds: readonly string[]]
>()({
  name: 'find_message_ids',
  text: sql`
    select m.publisher, m.type, m.message_id, m.task_id, m.digest, m.accepted_at,
           m.accepted_at < now() - interval '7 days' as is_past
      from unnest($1::text[], $2::text[], $3::text[]) as w (publisher, type, message_id)
      join message_ids m on m.publisher = w.publisher and m.type = w.type and m.message_id = w.message_id`,
  columns: {
    publisher: 'text',
    type: 'text',
    message_id: 'text',
    task_id: 'uuid',
    digest: 'bytea',
    accepted_at: 'timestamptz',
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

/** What earlier requests under these idempotency keys were, and when their tasks were accepted. Index: idempotency_keys primary key. */
export const findIdempotencyKeys = statement<[actors: readonly string[], keys: readonly string[]]>()({
  name: 'find_idempotency_keys',
  text: sql`
    select k.actor, k.key, k.task_id, k.digest, k.became, coalesce(t.accepted_at, k.accepted_at) as accepted_at,
           k.accepted_at < now() - interval '7 days' as is_past
      from unnest($1::text[], $2::text[]) as w (actor, key)
      join idempotency_keys k on k.actor = w.actor and k.key = w.key
      left join tasks t on t.id = k.task_id`,
  columns: {
    actor: 'text',
    key: 'text',
    task_id: 'uuid',
    digest: 'bytea',
    became: 'text',
    accepted_at: 'timestamptz?',
    is_past: 'bool',
  },
});

/** Takes an idempotency key for a request as a whole, which became `taskId`, a task or a flow; nothing where it is taken. */
export const takeIdempotencyKey = statement<
  [actor: string, key: string, digest: Buffer, taskId: string, became: string]
>()({
  name: 'take_idempotency_key',
  text: sql`
    insert into idempotency_keys (actor, key, task_id, digest, became)
    values ($1::text, $2::text, $4::uuid, $3::bytea, $5::text)
    on conflict do nothing
    returning key`,
  columns: { key: 'text' },
});

/** Says of an idempotency key that its request was answered with what was there before it. */
export const moveIdempotencyKey = statement<[actor: string, key: string, taskId: string]>()({
  name: 'move_idempotency_key',
  text: sql`
    update idempotency_keys set task_id = $3::uuid, became = 'existing' where actor = $1::text and key = $2::text
    returning task_id`,
  columns: { task_id: 'uuid' },
});

/** Forgets one idempotency key whose seven days are over, so that it may be used again. */
export const forgetIdempotencyKey = statement<[actor: string, key: string]>()({
  name: 'forget_idempotency_key',
  text: sql`
    delete from idempotency_keys
     where actor = $1::text and key = $2::text and accepted_at < now() - interval '7 days'
    returning task_id`,
  columns: { task_id: 'uuid' },
});

/** Forgets idempotency keys older than seven days, at most 5 000 a call. */
export const forgetIdempotencyKeys = statement<[]>()({
  name: 'forget_idempotency_keys',
  text: sql`
    delete from idempotency_keys
     where ctid = any(array(
       select ctid from idempotency_keys where accepted_at < now() - interval '7 days' order by accepted_at limit 5000))
    returning task_id`,
  columns: { task_id: 'uuid' },
});

/**
 * Remembers under which ids and keys a submission was answered with a task that was there before it, so that it is answered the
 * same when it comes again. What was taken meanwhile stays.
 */
export const rememberRepeats = statement<
  [
    publishers: readonly string[],
    types: readonly string[],
    messageIds: readonly (string | null)[],
    keys: readonly (string | null)[],
    digests: readonly Buffer[],
    taskIds: readonly string[],
    became: readonly string[],
  ]
>()({
  name: 'remember_repeats',
  text: sql`
    with asked as (
      select *
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::uuid[], $7::text[])
          as a (publisher, type, message_id, key, digest, task_id, became)
    ), messages as (
      insert into message_ids (publisher, type, message_id, task_id, digest)
      select publisher, type, message_id, task_id, digest from asked where message_id is not null
       order by publisher, type, message_id
      on conflict do nothing
    )
    insert into idempotency_keys (actor, key, task_id, digest, became)
    select publisher, key, task_id, digest, became from asked where key is not null
     order by publisher, key
    on conflict do nothing
    returning task_id`,
  columns: { task_id: 'uuid' },
});
