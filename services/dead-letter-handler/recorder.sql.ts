/** The statements that record what died. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { writeOutbox } from '../../shared/tasks/beside.sql.ts';

/**
 * Judges invitations that died, by their tasks' rows. `$1` numbers them from 1.
 *
 * `evidence`: the task is dead and its open letter got the broker's evidence. `known`: it had that already, or it was
 * closed meanwhile. `invited`: the task still waits for just this invitation and gets another, at once where `outbox_id`
 * is set, by the sweeper where the last one is younger than `$10`, so that a queue which kills all at once does not make a hot
 * loop. `over`: the task went on without it. `unknown`: there is no such task.
 *
 * The evidence key of such a letter says only that its evidence has come. A row for each number, and a second one with what was
 * done where anything was: joined here, they would be compared each with each. Locks letters, then tasks, each in id order. Indexes: dead_letters_open_task, tasks primary key.
 */
export const recordInvitations = statement<
  [
    numbers: readonly number[],
    taskIds: readonly string[],
    generations: readonly number[],
    exchanges: readonly string[],
    routingKeys: readonly string[],
    properties: readonly string[],
    headers: readonly string[],
    xDeaths: readonly (string | null)[],
    retryInMs: number,
    youngMs: number,
  ]
>()({
  name: 'record_invitations',
  text: sql`
    with died as (
      select *
        from unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[], $5::text[], $6::jsonb[], $7::jsonb[], $8::jsonb[])
          as d (n, task_id, generation, exchange, routing_key, properties, headers, x_death)
    ), found as (
      select d.*, t.state::text as task_state, t.generation as task_generation
        from died d
        left join tasks t on t.id = d.task_id
    ), letters as (
      select distinct on (l.id) l.id, l.recorded_at is null as is_first, f.n, f.exchange, f.routing_key, f.properties, f.headers,
             f.x_death
        from found f
        join dead_letters l on l.task_id = f.task_id and l.state in ('open', 'replaying')
       where f.task_state = 'dead' and f.task_generation = f.generation and l.evidence_key is null
       order by l.id, f.n
    ), letters_locked as (
      select x.* from letters x join dead_letters l on l.id = x.id order by l.id for no key update of l
    ), evidence as (
      update dead_letters l
         set recorded_at = coalesce(l.recorded_at, clock_timestamp()), exchange = x.exchange, routing_key = x.routing_key,
             properties = x.properties, headers = x.headers, x_death = x.x_death, evidence_key = uuid_send(l.id)
        from letters_locked x
       where l.id = x.id and l.state = 'open' and l.evidence_key is null
      returning x.n, x.is_first, l.reason, l.id
    ), waiting as (
      select t.id, d.n, t.invited_at > clock_timestamp() - $10::float8 * interval '1 ms' as is_young
        from (select distinct on (task_id) task_id, generation, n from died order by task_id, generation desc, n) d
        join tasks t on t.id = d.task_id
       where t.state = 'pending' and t.generation = d.generation and t.invited_at is not null
       order by t.id
         for no key update of t
    ), again as (
      update tasks t
         set invited_at = clock_timestamp()
        from waiting w
       where t.id = w.id and t.state = 'pending'
      returning t.id, w.n, w.is_young, t.type, t.queue, t.priority, t.generation
    ), at_once as (${writeOutbox(sql`again where not is_young`)}
    ), later as (${writeOutbox(sql`again where is_young`, sql`$9::float8 * interval '1 ms'`)}
    )
    select f.n, case when f.task_state is null then 'unknown' when f.task_state = 'dead' then 'known' else 'over' end as became,
           f.task_id, null::uuid as letter_id, null::text as reason, false as is_first, null::text as type,
           null::text as queue, null::int2 as priority, null::int4 as generation, null::int8 as outbox_id
      from found f
    union all
    select e.n, 'evidence', null, e.id, e.reason, e.is_first, null, null, null, null, null from evidence e
    union all
    select a.n, 'invited', a.id, null, null, false, a.type, a.queue, a.priority, a.generation,
           case when not a.is_young then (select id from at_once) end
      from again a`,
  columns: {
    n: 'int4?',
    became: 'text?',
    task_id: 'uuid?',
    letter_id: 'uuid?',
    reason: 'text?',
    is_first: 'bool?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
  },
});

/**
 * Inserts letters that never were tasks. One that was recorded before, under its evidence key, is left as it is and not
 * returned. Inserts in the order of the key, so that replicas cannot deadlock.
 */
export const recordLetters = statement<
  [
    ids: readonly string[],
    kinds: readonly string[],
    reasons: readonly string[],
    types: readonly (string | null)[],
    queues: readonly (string | null)[],
    errorCodes: readonly (string | null)[],
    errorMessages: readonly (string | null)[],
    exchanges: readonly (string | null)[],
    routingKeys: readonly (string | null)[],
    bodies: readonly Buffer[],
    properties: readonly (string | null)[],
    headers: readonly (string | null)[],
    xDeaths: readonly (string | null)[],
    keys: readonly Buffer[],
  ]
>()({
  name: 'record_letters',
  text: sql`
    insert into dead_letters (id, kind, reason, type, queue, recorded_at, error_code, error_message, exchange,
                              routing_key, body, properties, headers, x_death, evidence_key)
    select d.id, d.kind, d.reason, d.type, d.queue, clock_timestamp(), d.error_code, d.error_message, d.exchange,
           d.routing_key, d.body, d.properties, d.headers, d.x_death, d.evidence_key
      from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                  $9::text[], $10::bytea[], $11::jsonb[], $12::jsonb[], $13::jsonb[], $14::bytea[])
        as d (id, kind, reason, type, queue, error_code, error_message, exchange, routing_key, body, properties, headers,
              x_death, evidence_key)
     order by d.evidence_key
    on conflict (evidence_key) where evidence_key is not null do nothing
    returning id, kind, reason`,
  columns: { id: 'uuid', kind: 'text', reason: 'text' },
});

/**
 * Takes the evidence key from letters that were closed and are older than the front door remembers message ids for: whatever
 * comes under it now is another message. Index: dead_letters_evidence.
 */
export const releaseKeys = statement<[keys: readonly Buffer[]]>()({
  name: 'release_evidence_keys',
  text: sql`
    update dead_letters
       set evidence_key = null
     where evidence_key = any($1::bytea[]) and state in ('replayed', 'discarded') and kind <> 'task'
       and died_at < now() - interval '7 days'
    returning id`,
  columns: { id: 'uuid' },
});

/** Which of these message ids, by publisher and task type, belong to an accepted message with other content. Index: message_ids primary key. */
export const findConflicts = statement<
  [publishers: readonly string[], types: readonly string[], messageIds: readonly string[], digests: readonly Buffer[]]
>()({
  name: 'find_conflicts',
  text: sql`
    select a.n::int4 as n, m.task_id
      from unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) with ordinality
        as a (publisher, type, message_id, digest, n)
      join message_ids m on m.publisher = a.publisher and m.type = a.type and m.message_id = a.message_id
     where m.digest <> a.digest and m.accepted_at > now() - interval '7 days'`,
  columns: { n: 'int4', task_id: 'uuid' },
});

/**
 * Takes note of letters whose evidence did not come within `$1` milliseconds: the task died with its worker, or the
 * message was purged. Index: dead_letters_unrecorded.
 */
export const recordUnseen = statement<[afterMs: number, limit: number]>()({
  name: 'record_unseen',
  text: sql`
    update dead_letters l
       set recorded_at = clock_timestamp()
      from (
        select id
          from dead_letters
         where kind = 'task' and recorded_at is null and died_at < clock_timestamp() - $1::float8 * interval '1 ms'
         order by died_at
         limit $2::int4
           for no key update skip locked
      ) u
     where l.id = u.id
    returning l.id, l.reason`,
  columns: { id: 'uuid', reason: 'text' },
});

/** How many letters are open, and when the oldest of them died. Index: dead_letters_open. */
export const measureOpen = statement<[]>()({
  name: 'measure_open',
  text: sql`
    select count(*)::int8 as open, coalesce(extract(epoch from clock_timestamp() - min(died_at)), 0)::float8 as oldest_seconds
      from dead_letters
     where state = 'open'`,
  columns: { open: 'int8', oldest_seconds: 'float8' },
});
