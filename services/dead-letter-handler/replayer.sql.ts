/** The statements that replay and discard single letters. Each writes its line of the audit in the same transaction. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { countInLedger, reviveSteps, tellAgain, writeOutbox } from '../../shared/tasks/beside.sql.ts';
import { countOpen } from './open-count.sql.ts';

/**
 * The replay of one that a single press is, already sent: `$2` actor, `$3` role, `$4` reason, `$6` id of the replay. `from`: one
 * row with `letter_id`, `task_id`, `attempt`. The runner judges it as any other.
 */
const recordReplayOfOne = (from: Sql): Sql => sql`
      insert into replays (id, state, created_by, role, reason, selection, items, waves, wave, wave_end, next_n, wave_sent_at,
                           look_at)
      select $6::uuid, 'running', $2::text, $3::text, $4::text, jsonb_build_object('ids', 1), 1, '"none"', 1, 1, 2,
             clock_timestamp(), clock_timestamp() + interval '500 ms'
        from ${from}
    ), item as (
      insert into replay_items (replay_id, n, letter_id, state, wave, task_id, attempt, sent_at)
      select $6::uuid, 1, letter_id, 'sent', 1, task_id, attempt, clock_timestamp()
        from ${from}`;

/**
 * Makes a dead task run again: closes its open letter, gives it a new generation and a new budget, and invites it. The
 * attempt number, the history and the letter stay. Nothing where the letter is not open or its task is not dead: of any number
 * of calls, one wins. The claim of the attempt that died goes, so that whatever its worker still says is fenced. Locks the
 * letter, then the task.
 */
export const replayTask = statement<
  [
    letterId: string,
    actor: string,
    role: string,
    reason: string | null,
    auditId: string,
    replayId: string,
    address: string | null,
  ]
>()({
  name: 'replay_task',
  text: sql`
    with letter as (
      update dead_letters l
         set state = 'replayed', closed_at = clock_timestamp(), closed_by = $2::text, close_reason = $4::text,
             replay_id = $6::uuid
       where l.id = $1::uuid and l.kind = 'task' and l.state = 'open'
         and exists (select from tasks t where t.id = l.task_id and t.state = 'dead')
      returning l.id, l.task_id, l.group_id
    ), grouped as (${countOpen(sql`-1`, sql`letter`)}
    ), task as (
      update tasks t
         set state = 'pending', generation = t.generation + 1, failures = 0, lost_attempts = 0, lost_alone = 0,
             deadline = null, claim_id = null, run_at = null, finished_at = null, result = null, invited_at = clock_timestamp()
        from letter l
       where t.id = l.task_id and t.state = 'dead'
      returning t.id, t.type, t.queue, t.priority, t.generation, t.attempt, t.flow_id
    ), counted as (${countInLedger(sql`'revived'`, sql`task`)}
    ), told_again as (${tellAgain(sql`task`)}
    ), invited as (${writeOutbox(sql`task`)}
    ), replayed as (${recordReplayOfOne(sql`(select $1::uuid as letter_id, t.id as task_id, t.attempt from task t) o`)}
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $5::uuid, $2::text, $3::text, $7::text, 'dead-letter.replay', l.id::text,
             jsonb_build_object('kind', 'task', 'taskId', l.task_id, 'generation', t.generation, 'reason', $4::text)
        from letter l
        join task t on t.id = l.task_id
    )
    select t.id as task_id, t.type, t.queue, t.priority, t.generation, i.id as outbox_id, ${reviveSteps(sql`task`)} as steps_revived
      from task t
      cross join invited i`,
  columns: {
    task_id: 'uuid',
    type: 'text',
    queue: 'text',
    priority: 'int2',
    generation: 'int4',
    outbox_id: 'int8',
    steps_revived: 'int4?',
  },
});

/**
 * Takes a letter with a message of its own for its way back: from here on it is published until RabbitMQ confirms. Nothing
 * where it is not open, so that of any number of calls one wins.
 */
export const beginReplay = statement<
  [
    letterId: string,
    actor: string,
    role: string,
    reason: string | null,
    auditId: string,
    replayId: string,
    exchange: string,
    routingKey: string,
    address: string | null,
  ]
>()({
  name: 'begin_replay',
  text: sql`
    with letter as (
      update dead_letters l
         set state = 'replaying', replay_at = clock_timestamp(), replay_exchange = $7::text, replay_routing_key = $8::text,
             closed_by = $2::text, close_reason = $4::text, replay_id = $6::uuid
       where l.id = $1::uuid and l.kind <> 'task' and l.state = 'open'
      returning l.id, l.kind, l.body, l.properties, l.headers, l.group_id
    ), grouped as (${countOpen(sql`-1`, sql`letter`)}
    ), replayed as (${recordReplayOfOne(sql`(select id as letter_id, null::uuid as task_id, null::int4 as attempt from letter) o`)}
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $5::uuid, $2::text, $3::text, $9::text, 'dead-letter.replay', l.id::text,
             jsonb_build_object('kind', l.kind, 'exchange', $7::text, 'routingKey', $8::text, 'reason', $4::text)
        from letter l
    )
    select id, kind, body, properties, headers from letter`,
  columns: { id: 'uuid', kind: 'text', body: 'bytea?', properties: 'jsonb?', headers: 'jsonb?' },
});

/** Closes letters whose messages RabbitMQ has confirmed. What becomes of the message of another service is not known here. */
export const finishReplays = statement<[letterIds: readonly string[]]>()({
  name: 'finish_replays',
  text: sql`
    with letter as (
      update dead_letters
         set state = 'replayed', closed_at = clock_timestamp()
       where id = any($1::uuid[]) and state = 'replaying'
      returning id, kind, replay_id
    ), item as (
      update replay_items i
         set state = 'returned', judged_at = clock_timestamp()
        from letter l
       where i.letter_id = l.id and i.replay_id = l.replay_id and l.kind = 'foreign' and i.state = 'sent'
    )
    select id, kind from letter`,
  columns: { id: 'uuid', kind: 'text' },
});

/**
 * Opens a letter again whose message certainly did not go, and says so in the audit and in the item of its replay: that is
 * skipped, or where `$6` waits again.
 */
export const reopenLetter = statement<
  [
    letterId: string,
    actor: string,
    role: string,
    auditId: string,
    reason: string,
    isToWait: boolean,
    address: string | null,
  ]
>()({
  name: 'reopen_letter',
  text: sql`
    with letter as (
      update dead_letters
         set state = 'open', closed_by = null, close_reason = null
       where id = $1::uuid and state = 'replaying'
      returning id, group_id, replay_id
    ), grouped as (${countOpen(sql`1`, sql`letter`)}
    ), item as (
      update replay_items i
         set state = case when $6::bool then 'waiting' else 'skipped' end,
             code = case when not $6::bool then 'not-sent' end,
             why = case when not $6::bool then left($5::text, 1000) end
        from letter l
       where i.letter_id = l.id and i.replay_id = l.replay_id and i.state = 'sent'
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $4::uuid, $2::text, $3::text, $7::text, 'dead-letter.reopen', l.id::text, jsonb_build_object('reason', $5::text)
        from letter l
    )
    select id from letter`,
  columns: { id: 'uuid' },
});

/**
 * Takes replays that nobody has finished: whoever began them crashed, or RabbitMQ did not confirm. Moves their `replay_at`,
 * so that nothing is published inside a transaction. Index: dead_letters_replaying.
 */
export const takeUnfinished = statement<[afterMs: number, limit: number]>()({
  name: 'take_unfinished',
  text: sql`
    update dead_letters l
       set replay_at = clock_timestamp()
      from (
        select id
          from dead_letters
         where state = 'replaying' and replay_at < clock_timestamp() - $1::float8 * interval '1 ms'
         order by replay_at
         limit $2::int4
           for no key update skip locked
      ) u
     where l.id = u.id and l.state = 'replaying'
    returning l.id, l.kind, l.body, l.properties, l.headers, l.replay_exchange, l.replay_routing_key`,
  columns: {
    id: 'uuid',
    kind: 'text',
    body: 'bytea?',
    properties: 'jsonb?',
    headers: 'jsonb?',
    replay_exchange: 'text?',
    replay_routing_key: 'text?',
  },
});

/** Closes an open letter unrun. Nothing where it is not open. */
export const discardLetter = statement<
  [letterId: string, actor: string, role: string, reason: string, auditId: string, address: string | null]
>()({
  name: 'discard_letter',
  text: sql`
    with letter as (
      update dead_letters
         set state = 'discarded', closed_at = clock_timestamp(), closed_by = $2::text, close_reason = $4::text
       where id = $1::uuid and state = 'open'
      returning id, kind, task_id, group_id
    ), grouped as (${countOpen(sql`-1`, sql`letter`)}
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $5::uuid, $2::text, $3::text, $6::text, 'dead-letter.discard', l.id::text,
             jsonb_build_object('kind', l.kind, 'taskId', l.task_id, 'reason', $4::text)
        from letter l
    )
    select id from letter`,
  columns: { id: 'uuid' },
});

/** What deciding about a letter needs. */
export const readLetterHead = statement<[letterId: string]>()({
  name: 'read_letter_head',
  text: sql`
    select l.id, l.kind, l.state, l.reason, l.task_id, l.exchange, l.routing_key, l.error_code, l.closed_at, l.closed_by,
           l.erased_at, l.replay_at, (select t.state::text from tasks t where t.id = l.task_id) as task_state
      from dead_letters l
     where l.id = $1::uuid`,
  columns: {
    id: 'uuid',
    kind: 'text',
    state: 'text',
    reason: 'text',
    task_id: 'uuid?',
    exchange: 'text?',
    routing_key: 'text?',
    error_code: 'text?',
    closed_at: 'timestamptz?',
    closed_by: 'text?',
    erased_at: 'timestamptz?',
    replay_at: 'timestamptz?',
    task_state: 'text?',
  },
});
