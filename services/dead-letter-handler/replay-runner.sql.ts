/**
 * The statements by which a replay goes on. Each is one step that leaves the replay such that whoever comes next can go on:
 * what was sent stands in the items' rows, written by the statement that made the tasks live again.
 */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { countInLedger, reviveSteps, tellAgain, writeOutbox } from '../../shared/tasks/beside.sql.ts';
import { countOpen } from './open-count.sql.ts';

/** Takes a replay that is due for `$1` milliseconds; replicas share the work by SKIP LOCKED. Index: replays_look_at. */
export const takeReplay = statement<[forMs: number]>()({
  name: 'take_replay',
  text: sql`
    update replays r
       set look_at = clock_timestamp() + $1::float8 * interval '1 ms'
      from (
        select id from replays where look_at <= clock_timestamp() order by look_at limit 1 for no key update skip locked
      ) u
     where r.id = u.id
    returning r.id`,
  columns: { id: 'uuid' },
});

/**
 * A replay as it stands. `allowed`: how many items its rate allows now, null without a rate; what was not used of the last
 * quarter of a second may be made up for, or of the time of one item where that is longer.
 */
export const lookAtReplay = statement<[id: string]>()({
  name: 'look_at_replay',
  text: sql`
    select id, version, state, items, waves, stop_after, wave_timeout_ms, rate, patch, queue, priority, wait_for_version, types,
           state_reason, wave, wave_start, wave_end, next_n, awaits,
           coalesce(extract(epoch from clock_timestamp() - wave_sent_at) * 1000, 0)::float8 as waited_ms,
           floor(rate * extract(epoch from clock_timestamp()
                 - greatest(paced_at, clock_timestamp() - greatest(0.25, 1 / rate) * interval '1 s')) + 0.000001)::int4 as allowed
      from replays
     where id = $1::uuid`,
  columns: {
    id: 'uuid',
    version: 'int4',
    state: 'text',
    items: 'int4',
    waves: 'jsonb',
    stop_after: 'int4?',
    wave_timeout_ms: 'int4?',
    rate: 'float8?',
    patch: 'bytea?',
    queue: 'text?',
    priority: 'int2?',
    wait_for_version: 'text?',
    types: 'text[]?',
    state_reason: 'text?',
    wave: 'int4',
    wave_start: 'int4',
    wave_end: 'int4',
    next_n: 'int4',
    awaits: 'bool',
    waited_ms: 'float8',
    allowed: 'int4?',
  },
});

/** Says when to look again, null for never; not where somebody has changed the replay since it was looked at. */
export const putReplayOff = statement<[id: string, version: number, delayMs: number | null]>()({
  name: 'put_replay_off',
  text: sql`
    update replays
       set look_at = clock_timestamp() + $3::float8 * interval '1 ms'
     where id = $1::uuid and version = $2::int4
    returning id`,
  columns: { id: 'uuid' },
});

/** The items from `$2` to `$3` that wait, with what decides about how they go. Inputs only where `$4`. */
export const readBatch = statement<[id: string, from: number, to: number, withInput: boolean]>()({
  name: 'read_replay_batch',
  text: sql`
    select i.n, i.letter_id, l.kind, l.state as letter_state, l.reason, l.exchange, l.routing_key, t.type, t.id as task_id,
           t.input, t.input_file
      from replay_items i
      left join dead_letters l on l.id = i.letter_id
      left join tasks t on $4::bool and t.id = l.task_id and t.state = 'dead'
     where i.replay_id = $1::uuid and i.n between $2::int4 and $3::int4 and i.state = 'waiting'
     order by i.n`,
  columns: {
    n: 'int4',
    letter_id: 'uuid',
    kind: 'text?',
    letter_state: 'text?',
    reason: 'text?',
    exchange: 'text?',
    routing_key: 'text?',
    type: 'text?',
    task_id: 'uuid?',
    input: 'bytea?',
    input_file: 'uuid?',
  },
});

/**
 * Sends a batch: closes the letters that are open, makes their tasks live again with a new budget, invites them, and writes down
 * what became of each item. Items with a code, and those whose letter is not open any more, are skipped. Nothing at all where
 * the replay does not run, or `$2` is not its next item: then somebody else was here.
 *
 * Everything is carried from row to row, so that no two lists are joined. Locks the replay, then letters, groups and tasks,
 * each in id order.
 */
export const sendItems = statement<
  [
    ofReplay: string,
    from: number,
    next: number,
    numbers: readonly number[],
    inputs: readonly (Buffer | null)[],
    inputFiles: readonly (string | null)[],
    concurrencyKeys: readonly (string | null)[],
    rateKeys: readonly (string | null)[],
    codes: readonly (string | null)[],
    whys: readonly (string | null)[],
  ]
>()({
  name: 'send_replay_items',
  text: sql`
    with replay as materialized (
      select id, queue, priority, reason, created_by, wave
        from replays
       where id = $1::uuid and state = 'running' and next_n = $2::int4
         for no key update
    ), asked as materialized (
      select r.id as replay_id, r.queue, r.priority, r.reason, r.created_by, r.wave, a.n, a.mended, a.mended_file,
             a.concurrency_key, a.rate_key, a.code, a.why, i.letter_id
        from replay r
        cross join unnest($4::int4[], $5::bytea[], $6::uuid[], $7::text[], $8::text[], $9::text[], $10::text[])
                     as a (n, mended, mended_file, concurrency_key, rate_key, code, why)
        join replay_items i on i.replay_id = r.id and i.n = a.n
       where i.state = 'waiting'
    ), letter_locked as materialized (
      select l.task_id, a.*
        from asked a
        join dead_letters l on l.id = a.letter_id
       where a.code is null and l.kind = 'task' and l.state = 'open'
       order by l.id
         for no key update of l
    ), task_locked as materialized (
      select k.*, t.input, t.input_file, t.attempt
        from letter_locked k
        join tasks t on t.id = k.task_id
       where t.state = 'dead'
       order by t.id
         for no key update of t
    ), letter as (
      update dead_letters l
         set state = 'replayed', closed_at = clock_timestamp(), closed_by = k.created_by, close_reason = k.reason,
             replay_id = k.replay_id
        from task_locked k
       where l.id = k.letter_id and l.state = 'open'
      returning k.*, l.group_id
    ), grouped as (${countOpen(sql`-1`, sql`letter`)}
    ), kept as (
      insert into mended_inputs (letter_id, replay_id, input, input_file)
      select letter_id, replay_id, input, input_file from letter where mended is not null
    ), task as (
      update tasks t
         set state = 'pending', generation = t.generation + 1, failures = 0, lost_attempts = 0, lost_alone = 0,
             deadline = null, claim_id = null, run_at = null, finished_at = null, result = null, invited_at = clock_timestamp(),
             queue = coalesce(l.queue, t.queue), priority = coalesce(l.priority, t.priority),
             input = coalesce(l.mended, t.input),
             input_file = case when l.mended is null then t.input_file else l.mended_file end,
             concurrency_key = case when l.mended is null then t.concurrency_key else l.concurrency_key end,
             rate_key = case when l.mended is null then t.rate_key else l.rate_key end
        from letter l
       where t.id = l.task_id and t.state = 'dead'
      returning t.id, t.type, t.queue, t.priority, t.generation, t.attempt, t.flow_id, l.n, l.replay_id, l.wave
    ), counted as (${countInLedger(sql`'revived'`, sql`task`)}
    ), told_again as (${tellAgain(sql`task`)}
    ), invited as (${writeOutbox(sql`task`)}
    ), sent as (
      update replay_items i
         set state = 'sent', wave = t.wave, task_id = t.id, attempt = t.attempt, sent_at = clock_timestamp()
        from task t
       where i.replay_id = t.replay_id and i.n = t.n
    ), skipped as (
      update replay_items i
         set state = 'skipped', wave = a.wave, code = coalesce(a.code, 'closed'), why = a.why
        from asked a
       where a.n <> all (array(select n from task)) and i.replay_id = a.replay_id and i.n = a.n
      returning i.n
    ), moved as (
      update replays r
         set next_n = $3::int4, wave_sent_at = clock_timestamp(),
             paced_at = case when r.rate is null then r.paced_at
                        else greatest(r.paced_at, clock_timestamp() - greatest(0.25, 1 / r.rate) * interval '1 s')
                             + ($3::int4 - $2::int4) / r.rate * interval '1 s' end
        from replay k
       where r.id = k.id
      returning r.id
    )
    select (select count(*) from skipped)::int4 as skipped, t.id as task_id, t.type, t.queue, t.priority, t.generation,
           o.id as outbox_id, ${reviveSteps(sql`task`)} as steps_revived
      from moved m
      left join task t on true
      left join invited o on true`,
  columns: {
    skipped: 'int4',
    task_id: 'uuid?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
    steps_revived: 'int4?',
  },
});

/** Takes an item's letter with a message of its own for its way back; see `begin_replay`. Nothing where it is not open or the replay does not run. */
export const beginItem = statement<
  [replayId: string, n: number, auditId: string, exchange: string, routingKey: string]
>()({
  name: 'begin_replay_item',
  text: sql`
    with replay as materialized (
      select r.id, r.wave, r.created_by, r.role, r.reason, i.letter_id, i.n
        from replays r
        join replay_items i on i.replay_id = r.id
       where r.id = $1::uuid and r.state = 'running' and i.n = $2::int4 and i.state = 'waiting'
         for no key update of r
    ), letter as (
      update dead_letters l
         set state = 'replaying', replay_at = clock_timestamp(), replay_exchange = $4::text, replay_routing_key = $5::text,
             closed_by = r.created_by, close_reason = r.reason, replay_id = r.id
        from replay r
       where l.id = r.letter_id and l.kind <> 'task' and l.state = 'open'
      returning l.id, l.kind, l.body, l.properties, l.headers, l.group_id, r.created_by, r.role, r.reason, r.wave, r.n
    ), grouped as (${countOpen(sql`-1`, sql`letter`)}
    ), item as (
      update replay_items i
         set state = 'sent', wave = l.wave, sent_at = clock_timestamp()
        from letter l
       where i.replay_id = $1::uuid and i.n = l.n
    ), audited as (
      insert into audit (id, actor, role, action, target, detail)
      select $3::uuid, l.created_by, l.role, 'dead-letter.replay', l.id::text,
             jsonb_build_object('kind', l.kind, 'exchange', $4::text, 'routingKey', $5::text, 'reason', l.reason,
                                'replayId', $1::uuid)
        from letter l
    )
    select id, kind, body, properties, headers from letter`,
  columns: { id: 'uuid', kind: 'text', body: 'bytea?', properties: 'jsonb?', headers: 'jsonb?' },
});

/** Begins the wave after `$2`, of `$3` items. Nothing where another has begun it. */
export const beginWave = statement<[id: string, wave: number, size: number]>()({
  name: 'begin_replay_wave',
  text: sql`
    update replays
       set wave = wave + 1, wave_start = wave_end + 1, wave_end = least(items, wave_end + $3::int4), awaits = true,
           wave_sent_at = clock_timestamp(), paced_at = greatest(paced_at, clock_timestamp())
     where id = $1::uuid and state = 'running' and wave = $2::int4 and next_n > wave_end and next_n <= items
    returning id`,
  columns: { id: 'uuid' },
});

/** Goes back to the first item that waits, where a replay has gone past one. */
export const rewindReplay = statement<[id: string]>()({
  name: 'rewind_replay',
  text: sql`
    update replays r
       set next_n = w.n
      from (select min(n) as n from replay_items where replay_id = $1::uuid and state = 'waiting') w
     where r.id = $1::uuid and r.state = 'running' and w.n < r.next_n
    returning r.id`,
  columns: { id: 'uuid' },
});

/** Brings a replay into another state without anybody's doing, and says so in the audit but for single presses. Nothing where it was changed meanwhile. */
export const turnReplay = statement<
  [id: string, version: number, state: string, reason: string | null, auditId: string]
>()({
  name: 'turn_replay',
  text: sql`
    with turned as (
      update replays
         set state = $3::text, state_reason = $4::text, version = version + 1,
             finished_at = case when $3::text = 'finished' then clock_timestamp() end,
             wave_sent_at = case when $3::text = 'running' then clock_timestamp() else wave_sent_at end
       where id = $1::uuid and version = $2::int4
      returning id, wave, items, next_n, wave_timeout_ms
    ), audited as (
      insert into audit (id, actor, role, action, target, detail)
      select $5::uuid, 'dead-letter-handler', 'operator', 'replay.' || $3::text, id::text,
             jsonb_build_object('reason', $4::text, 'wave', wave, 'sent', next_n - 1, 'items', items)
        from turned
       where wave_timeout_ms is not null
    )
    select id from turned`,
  columns: { id: 'uuid' },
});

/** Says anew what a waiting replay waits for. */
export const tellReplay = statement<[id: string, version: number, reason: string]>()({
  name: 'tell_replay',
  text: sql`
    update replays set state_reason = $3::text where id = $1::uuid and version = $2::int4 and state = 'waiting'
    returning id`,
  columns: { id: 'uuid' },
});

/** Live workers that take one of these types, by version; for types that no live worker takes, their last announcement. */
export const readVersions = statement<[types: readonly string[], leaseMs: number]>()({
  name: 'read_replay_versions',
  text: sql`
    with live as materialized (
      select worker, host, code_version, task_types
        from leases
       where renewed_at > clock_timestamp() - $2::float8 * interval '1 ms' and task_types && $1::text[]
    )
    select code_version, count(*)::int4 as workers, min(host) as host, true as is_live from live group by code_version
    union all
    select code_version, 0, min(name), false
      from task_types y
     where y.name = any($1::text[]) and not exists (select from live where y.name = any(task_types))
     group by code_version`,
  columns: { code_version: 'text', workers: 'int4', host: 'text', is_live: 'bool' },
});
