/** The statements that make, show and steer replays. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';

/** What the selection of a replay is made of: the letters `l` with their facts `f`, where `condition` holds. */
const chosen = (condition: Sql, tail: Sql): Sql => sql`
      select l.id, l.kind, l.state, l.reason, l.type, l.task_id
        from dead_letters l
        left join letter_facts f on f.letter_id = l.id
       where ${condition}
       order by l.id
       ${tail}`;

/**
 * Text that makes a replay: freezes the selection, one item per letter, oldest first, and writes its line of the audit. Makes
 * nothing where the selection is empty or larger than `$15`. Sent unprepared, since each condition has its own plan.
 *
 * `$1` id, `$2` state, `$3` actor, `$4` role, `$5` reason, `$6` selection, `$7` waves, `$8` stopAfter, `$9` waveTimeoutMs,
 * `$10` rate, `$11` queue, `$12` priority, `$13` patch, `$14` waitForVersion, `$15` most items, `$16` id in the audit, `$17` address.
 */
export const createReplayText = (condition: Sql): Sql => sql`
    with chosen as materialized (${chosen(condition, sql`limit $15::int4 + 1`)}
    ), counted as materialized (
      select count(*)::int4 as items, array_agg(distinct type) filter (where kind = 'task' and type is not null) as types
        from chosen
    ), items as (
      insert into replay_items (replay_id, n, letter_id)
      select $1::uuid, row_number() over (order by id), id from chosen where (select items from counted) <= $15::int4
    ), made as (
      insert into replays (id, state, created_by, role, reason, selection, items, waves, stop_after, wave_timeout_ms, rate, queue,
                           priority, patch, wait_for_version, types)
      select $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text::jsonb, c.items, $7::text::jsonb, $8::int4, $9::int4,
             $10::float8, $11::text, $12::int2, $13::bytea, $14::text, c.types
        from counted c
       where c.items between 1 and $15::int4
      returning id, items
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $16::uuid, $3::text, $4::text, $17::text, 'replay.create', m.id::text,
             jsonb_build_object('selection', $6::text::jsonb, 'items', m.items, 'reason', $5::text, 'waves', $7::text::jsonb,
                                'rate', $10::float8, 'queue', $11::text, 'priority', $12::int2,
                                'isMending', $13::bytea is not null, 'waitForVersion', $14::text)
        from made m
    )
    select items from counted`;

/** Text that reads the next letters of a selection, after `$1`, up to `$2`; inputs only where `$3`. For a dry run. */
export const readSelectionText = (condition: Sql): Sql => sql`
    with chosen as materialized (${chosen(sql`l.id > $1::uuid and (${condition})`, sql`limit $2::int4`)}
    )
    select c.id, c.kind, c.state, c.reason, c.task_id, l.exchange, l.routing_key, coalesce(t.type, c.type) as type,
           t.state::text as task_state, case when $3::bool then t.input end as input, t.input_file
      from chosen c
      join dead_letters l on l.id = c.id
      left join tasks t on t.id = c.task_id
     order by c.id`;

/** Which of these letters there are. */
export const findExisting = statement<[ids: readonly string[]]>()({
  name: 'find_existing_letters',
  text: sql`select id from dead_letters where id = any($1::uuid[])`,
  columns: { id: 'uuid' },
});

const shown = sql`
      id, version, state, state_reason, created_at, created_by, reason, finished_at, selection, items, waves, stop_after,
      wave_timeout_ms, rate, queue, priority, convert_from(patch, 'UTF8') as patch, wait_for_version, wave, next_n`;
const shownColumns = {
  id: 'uuid',
  version: 'int4',
  state: 'text',
  state_reason: 'text?',
  created_at: 'timestamptz',
  created_by: 'text',
  reason: 'text?',
  finished_at: 'timestamptz?',
  selection: 'jsonb',
  items: 'int4',
  waves: 'jsonb',
  stop_after: 'int4?',
  wave_timeout_ms: 'int4?',
  rate: 'float8?',
  queue: 'text?',
  priority: 'int2?',
  patch: 'text?',
  wait_for_version: 'text?',
  wave: 'int4',
  next_n: 'int4',
} as const;

/** A page of replays, newest first; null lets all states pass, and single presses only where `$2`. */
export const listReplays = statement<
  [states: readonly string[] | null, withSingle: boolean, before: string | null, limit: number]
>()({
  name: 'list_replays',
  text: sql`
    select ${shown}
      from replays
     where ($1::text[] is null or state = any($1))
       and ($2::bool or wave_timeout_ms is not null)
       and ($3::uuid is null or id < $3)
     order by id desc
     limit $4::int4`,
  columns: shownColumns,
});

/** One replay. */
export const readReplay = statement<[id: string]>()({
  name: 'read_replay',
  text: sql`select ${shown} from replays where id = $1::uuid`,
  columns: shownColumns,
});

/** How many items of a replay stand how, by wave; those that it has not come to have none. */
export const countItems = statement<[id: string]>()({
  name: 'count_replay_items',
  text: sql`
    select i.wave, i.state, i.code, count(*)::int4 as items, count(i.fingerprint)::int4 as failed_first,
           count(*) filter (where i.is_same)::int4 as same
      from replay_items i
     where i.replay_id = $1::uuid
     group by i.wave, i.state, i.code
     order by i.wave nulls last, i.state, i.code`,
  columns: { wave: 'int4?', state: 'text', code: 'text?', items: 'int4', failed_first: 'int4', same: 'int4' },
});

const itemColumns = {
  replay_id: 'uuid',
  n: 'int4',
  letter_id: 'uuid',
  state: 'text',
  wave: 'int4?',
  task_id: 'uuid?',
  sent_at: 'timestamptz?',
  judged_at: 'timestamptz?',
  fingerprint: 'uuid?',
  is_same: 'bool?',
  error_type: 'text?',
  error_message: 'text?',
  new_letter_id: 'uuid?',
  code: 'text?',
  why: 'text?',
} as const;
const itemShown = sql`
      i.replay_id, i.n, i.letter_id, i.state, i.wave, i.task_id, i.sent_at, i.judged_at, i.fingerprint, i.is_same, i.error_type,
      i.error_message, i.new_letter_id, i.code, i.why`;

/** Items of a replay in their order, after number `$4`; null lets all pass. Index: replay_items primary key. */
export const listItems = statement<
  [replayId: string, states: readonly string[] | null, wave: number | null, after: number, limit: number]
>()({
  name: 'list_replay_items',
  text: sql`
    select ${itemShown}
      from replay_items i
     where i.replay_id = $1::uuid and i.n > $4::int4 and ($2::text[] is null or i.state = any($2))
       and ($3::int4 is null or i.wave = $3)
     order by i.n
     limit $5::int4`,
  columns: itemColumns,
});

/** Every item of a letter, oldest first. Index: replay_items_letter. */
export const listItemsOfLetter = statement<[letterId: string, limit: number]>()({
  name: 'list_replay_items_of_letter',
  text: sql`
    select ${itemShown}
      from replay_items i
     where i.letter_id = $1::uuid
     order by i.replay_id
     limit $2::int4`,
  columns: itemColumns,
});

/** The input of a letter's task before it was mended. */
export const readMended = statement<[letterId: string]>()({
  name: 'read_mended_input',
  text: sql`select replay_id, input, mended_at from mended_inputs where letter_id = $1::uuid`,
  columns: { replay_id: 'uuid', input: 'bytea', mended_at: 'timestamptz' },
});

/**
 * Pauses, resumes or cancels. `$2`: states that it may be in; `$3`: the state that it comes into, where `running` becomes
 * `waiting` if it waits for a version. Nothing where it is in another state, or in another version than `$4`. What was sent is
 * followed to its end in any case. Resumed after it paused or stopped by itself, it goes on without what it waited for.
 */
export const steerReplay = statement<
  [
    id: string,
    states: readonly string[],
    to: string,
    version: number | null,
    actor: string,
    role: string,
    reason: string | null,
    auditId: string,
    address: string | null,
  ]
>()({
  name: 'steer_replay',
  text: sql`
    with before as materialized (
      select id, state from replays where id = $1::uuid for no key update
    ), steered as (
      update replays r
         set state = case when $3::text = 'running' and r.wait_for_version is not null then 'waiting' else $3::text end,
             state_reason = case when $3::text = 'paused' then 'paused by ' || $5::text
                            when $3::text = 'cancelled' then 'cancelled by ' || $5::text end,
             version = r.version + 1,
             finished_at = case when $3::text = 'cancelled' then clock_timestamp() end,
             awaits = r.awaits and not ($3::text = 'running' and r.state_reason like 'wave %'),
             judged_from = case when $3::text = 'running' and r.state = 'stopped' then clock_timestamp() else r.judged_from end,
             wave_sent_at = case when $3::text = 'running' then clock_timestamp() else r.wave_sent_at end,
             look_at = clock_timestamp()
        from before b
       where r.id = b.id and r.state = any($2::text[]) and ($4::int4 is null or r.version = $4)
      returning r.id, b.state as was, r.next_n, r.items
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $8::uuid, $5::text, $6::text, $9::text,
             'replay.' || case $3::text when 'paused' then 'pause' when 'running' then 'resume' else 'cancel' end, s.id::text,
             jsonb_build_object('was', s.was, 'sent', s.next_n - 1, 'items', s.items, 'reason', $7::text)
        from steered s
    )
    select id from steered`,
  columns: { id: 'uuid' },
});

/** Replays that have not ended, by each state that they can have. Index: replays_open. */
export const countOpenReplays = statement<[]>()({
  name: 'count_open_replays',
  text: sql`
    select s.state, (select count(*) from replays r where r.state = s.state and r.finished_at is null)::int4 as replays
      from (values ('waiting'), ('running'), ('paused'), ('stopped')) s (state)`,
  columns: { state: 'text?', replays: 'int4?' },
});
