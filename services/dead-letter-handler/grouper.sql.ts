/** The statements that take letters into their failure groups. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Letters that are recorded and in no group yet, oldest first, with what they are grouped and found by. Locks them for the transaction,
 * skipping what another replica has. Of inputs longer than `$2` bytes nothing is given. Index: dead_letters_ungrouped.
 */
export const takeUngrouped = statement<[limit: number, inputBytes: number]>()({
  name: 'take_ungrouped',
  text: sql`
    with taken as materialized (
      select l.id, l.kind, l.task_id, l.state, l.reason, l.type, l.queue, l.attempt, l.error_type, l.error_code,
             l.error_message, l.error_stack
        from dead_letters l
       where l.group_id is null and (l.recorded_at is not null or l.reason = 'worker_lost')
       order by l.id
       limit $1::int4
         for no key update skip locked
    )
    select n.id, n.kind, n.state, n.reason, n.type, n.queue, n.error_type, n.error_code, n.error_message, n.error_stack,
           t.tags, case when octet_length(t.input) <= $2::int4 then t.input end as input, a.code_version
      from taken n
      left join tasks t on t.id = n.task_id
      left join attempts a on a.task_id = n.task_id and a.attempt = n.attempt
     order by n.id`,
  columns: {
    id: 'uuid',
    kind: 'text',
    state: 'text',
    reason: 'text',
    type: 'text?',
    queue: 'text?',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
    error_stack: 'text?',
    tags: 'text[]?',
    input: 'bytea?',
    code_version: 'text?',
  },
});

/**
 * Writes what letters are found by. `inputs` are JSON texts; null where jsonb cannot hold one.
 */
export const writeFacts = statement<
  [
    letterIds: readonly string[],
    tags: readonly (string | null)[],
    errorTexts: readonly (string | null)[],
    inputs: readonly (string | null)[],
  ]
>()({
  name: 'write_facts',
  text: sql`
    insert into letter_facts (letter_id, tags, error_text, input)
    select n.letter_id, n.tags::text[], n.error_text, n.input::jsonb
      from unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) as n (letter_id, tags, error_text, input)
     order by n.letter_id
    on conflict (letter_id) do update set tags = excluded.tags, error_text = excluded.error_text, input = excluded.input
    returning letter_id`,
  columns: { letter_id: 'uuid' },
});

/**
 * Takes letters into their groups, makes the groups that are new, and counts. A resolved group that gets a letter which died
 * after it was resolved is open again. The letters are locked by `take_ungrouped`; locks groups in id order.
 */
export const joinGroups = statement<
  [
    letterIds: readonly string[],
    groupIds: readonly string[],
    errorTypes: readonly string[],
    messages: readonly (string | null)[],
    frames: readonly (string | null)[],
    rules: readonly (string | null)[],
    codeVersions: readonly (string | null)[],
  ]
>()({
  name: 'join_groups',
  text: sql`
    with named as (
      select *
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
          as n (letter_id, group_id, error_type, error_message, frame, rule, code_version)
    ), joined as (
      update dead_letters l
         set group_id = n.group_id, code_version = n.code_version
        from named n
       where l.id = n.letter_id and l.group_id is null
      returning l.id, l.kind, l.type, l.queue, l.state, l.died_at, n.group_id, n.error_type, n.error_message, n.frame, n.rule,
                n.code_version
    ), hours as (
      insert into failure_group_hours as h (group_id, hour, letters)
      select group_id, floor(extract(epoch from died_at) / 3600)::int4, count(*) from joined group by 1, 2 order by 1, 2
      on conflict (group_id, hour) do update set letters = h.letters + excluded.letters
    ), summed as (
      select group_id, min(kind) as kind, min(type) as type, min(error_type) as error_type,
             min(error_message) as error_message, min(frame) as frame, min(rule) as rule, count(*) as letters,
             count(*) filter (where state = 'open') as open_letters, min(died_at) as first_at, max(died_at) as last_at,
             coalesce(array_agg(distinct queue) filter (where queue is not null), '{}') as queues,
             coalesce(array_agg(distinct code_version) filter (where code_version is not null), '{}') as code_versions
        from joined group by group_id
    )
    insert into failure_groups as g (id, kind, type, error_type, error_message, frame, rule, letters, open_letters, first_at,
                                     last_at, queues, code_versions)
    select group_id, kind, case when rule is null then type end, error_type, error_message, frame, rule, letters,
           open_letters, first_at, last_at, queues, code_versions
      from summed order by group_id
    on conflict (id) do update
       set letters = g.letters + excluded.letters, open_letters = g.open_letters + excluded.open_letters,
           first_at = least(g.first_at, excluded.first_at), last_at = greatest(g.last_at, excluded.last_at),
           queues = case when g.queues @> excluded.queues then g.queues
                    else array(select distinct q from unnest(g.queues || excluded.queues) q order by q limit 20) end,
           code_versions = case when g.code_versions @> excluded.code_versions then g.code_versions
                           else array(select distinct v from unnest(excluded.code_versions || g.code_versions) v
                                       order by v desc limit 20) end,
           state = case when g.state = 'resolved' and excluded.last_at > g.changed_at then 'open' else g.state end,
           reopened_at = case when g.state = 'resolved' and excluded.last_at > g.changed_at then excluded.last_at
                         else g.reopened_at end,
           version = g.version + (g.state = 'resolved' and excluded.last_at > g.changed_at)::int4
    returning g.id, g.letters, (xmax = 0) as is_new`,
  columns: { id: 'uuid', letters: 'int8', is_new: 'bool?' },
});
