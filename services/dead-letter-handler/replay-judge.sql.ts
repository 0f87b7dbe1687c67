/** The statements that find out, and write down, what became of replayed items. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Looks at up to `$3` sent items after number `$2`, and gives those of which there is something to say: the task ended, its first
 * new attempt failed, or it has a newer letter; and every one whose task is not known. `last_n`: the last that was looked at.
 * `is_old`: two days ago; a message of which there is no trace by then leaves none.
 * An attempt that was lost counts only where its letter was one of a lost worker: a deployment is no failure of the fix.
 */
export const findResults = statement<[replayId: string, after: number, limit: number]>()({
  name: 'find_replay_results',
  text: sql`
    with looked as materialized (
      select i.n, i.letter_id, i.task_id, i.attempt, i.sent_at, i.judged_at is not null as is_judged,
             i.sent_at < clock_timestamp() - interval '2 days' as is_old
        from replay_items i
       where i.replay_id = $1::uuid and i.state = 'sent' and i.n > $2::int4
       order by i.n
       limit $3::int4
    ), told as (
      select k.n, k.letter_id, k.task_id, k.sent_at, k.is_old, l.kind, l.type, l.reason, l.group_id, l.error_type as old_type,
             l.error_code as old_code, l.error_message as old_message, l.error_stack as old_stack,
             t.state::text as task_state, f.attempt is not null as has_failed, d.id as new_letter_id,
             case when f.attempt is null then d.error_type else f.error_type end as error_type,
             case when f.attempt is null then d.error_code else f.error_code end as error_code,
             case when f.attempt is null then d.error_message else f.error_message end as error_message,
             case when f.attempt is null then d.error_stack else f.error_stack end as error_stack
        from looked k
        join dead_letters l on l.id = k.letter_id
        left join tasks t on t.id = k.task_id
        left join lateral (
          select a.* from attempts a
           where a.task_id = k.task_id and a.attempt > k.attempt
             and (a.outcome in ('failed', 'timeout') or (a.outcome = 'lost' and l.reason = 'worker_lost'))
           order by a.attempt limit 1
        ) f on true
        left join lateral (
          -- By its attempt: ids are made by the clocks of many machines, and one of them may be behind.
          select d.* from dead_letters d where d.task_id = k.task_id and d.attempt > k.attempt order by d.attempt limit 1
        ) d on true
       where k.task_id is null or t.id is null or d.id is not null or (f.attempt is not null and not k.is_judged)
          or t.state in ('succeeded', 'cancelled', 'expired')
    )
    select m.looked, m.last_n, r.*
      from (select count(*)::int4 as looked, coalesce(max(n), 0) as last_n from looked) m
      left join told r on true`,
  columns: {
    looked: 'int4',
    last_n: 'int4',
    n: 'int4?',
    letter_id: 'uuid?',
    task_id: 'uuid?',
    sent_at: 'timestamptz?',
    is_old: 'bool?',
    kind: 'text?',
    type: 'text?',
    reason: 'text?',
    group_id: 'uuid?',
    old_type: 'text?',
    old_code: 'text?',
    old_message: 'text?',
    old_stack: 'text?',
    task_state: 'text?',
    has_failed: 'bool?',
    new_letter_id: 'uuid?',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
    error_stack: 'text?',
  },
});

/** Writes results. A first attempt that failed is remembered, whatever becomes of the task later. */
export const writeResults = statement<
  [
    replayId: string,
    numbers: readonly number[],
    states: readonly string[],
    fingerprints: readonly (string | null)[],
    isSame: readonly (boolean | null)[],
    errorTypes: readonly (string | null)[],
    errorMessages: readonly (string | null)[],
    newLetterIds: readonly (string | null)[],
  ]
>()({
  name: 'write_replay_results',
  text: sql`
    update replay_items i
       set state = r.state, judged_at = coalesce(i.judged_at, clock_timestamp()),
           fingerprint = coalesce(i.fingerprint, r.fingerprint), is_same = coalesce(i.is_same, r.is_same),
           error_type = coalesce(i.error_type, r.error_type), error_message = coalesce(i.error_message, r.error_message),
           new_letter_id = r.new_letter_id
      from unnest($2::int4[], $3::text[], $4::uuid[], $5::bool[], $6::text[], $7::text[], $8::uuid[])
             as r (n, state, fingerprint, is_same, error_type, error_message, new_letter_id)
     where i.replay_id = $1::uuid and i.n = r.n and i.state = 'sent'
    returning i.n`,
  columns: { n: 'int4' },
});

/**
 * Names the tasks that refused letters have become, by the message id under which they were accepted: the letter's own where
 * the publisher gave none. Indexes: message_ids primary key.
 */
export const nameTasks = statement<[replayId: string, numbers: readonly number[]]>()({
  name: 'name_replayed_tasks',
  text: sql`
    update replay_items i
       set task_id = m.task_id, attempt = 0
      from dead_letters l
      join message_ids m on m.publisher = coalesce(l.properties->>'appId', '') and m.type = l.routing_key
       and m.message_id = coalesce(nullif(l.properties->>'messageId', ''), l.id::text)
     where i.replay_id = $1::uuid and i.n = any($2::int4[]) and i.state = 'sent' and i.task_id is null
       and l.id = i.letter_id and l.kind = 'refused' and l.state = 'replayed'
    returning i.n`,
  columns: { n: 'int4' },
});

/** Letters of what was refused again, by the letter that it was a replay of. `$2`: the least id that they may have. */
export const findRefusedAgain = statement<[types: readonly string[], least: string, letterIds: readonly string[]]>()({
  name: 'find_refused_again',
  text: sql`
    select l.headers->>'x-replay-of' as replay_of, l.id, l.group_id, l.error_code, l.error_message, l.reason, l.type
      from dead_letters l
     where l.type = any($1::text[]) and l.state = 'open' and l.kind = 'refused' and l.id >= $2::uuid
       and l.headers->>'x-replay-of' = any($3::text[])
     order by l.id`,
  columns: {
    replay_of: 'text?',
    id: 'uuid',
    group_id: 'uuid?',
    error_code: 'text?',
    error_message: 'text?',
    reason: 'text',
    type: 'text?',
  },
});

/**
 * How a wave stands: whether an item's first new attempt is still waited for, and the most failures that are one: of one
 * fingerprint, or each of the same as its letter. Failures count that came after somebody last said to go on.
 */
export const judgeWave = statement<[id: string]>()({
  name: 'judge_replay_wave',
  text: sql`
    with failed as (
      select i.fingerprint, count(*) as items, count(*) filter (where i.is_same) as same
        from replays r
        join replay_items i on i.replay_id = r.id and i.wave = r.wave
       where r.id = $1::uuid and i.fingerprint is not null and i.judged_at > r.judged_from
       group by i.fingerprint
    )
    select exists (
             select from replays r
               join replay_items i on i.replay_id = r.id and i.n between r.wave_start and r.wave_end
              where r.id = $1::uuid and i.state = 'sent' and i.judged_at is null
           ) as is_open,
           exists (select from replay_items i where i.replay_id = $1::uuid and i.state = 'sent') as has_running,
           coalesce((select greatest(max(items), sum(same)) from failed), 0)::int4 as failures,
           (select fingerprint from failed order by items desc, fingerprint limit 1) as fingerprint`,
  columns: { is_open: 'bool', has_running: 'bool', failures: 'int4', fingerprint: 'uuid?' },
});

/** How many items of the wave under way were sent. */
export const countWave = statement<[id: string]>()({
  name: 'count_replay_wave',
  text: sql`
    select count(*)::int4 as sent
      from replays r
      join replay_items i on i.replay_id = r.id and i.n between r.wave_start and r.wave_end
     where r.id = $1::uuid and i.state not in ('waiting', 'skipped')`,
  columns: { sent: 'int4' },
});
