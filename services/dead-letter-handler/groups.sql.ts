/** The statements that show and change failure groups. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';

/** What is shown of a group `g`, with its letters of the last 24 hours by the hour, the oldest first. Index: failure_group_hours primary key. */
const shownColumns: Sql = sql`g.id, g.kind, g.type, g.error_type, g.error_message, g.frame, g.rule, g.state, g.note, g.assignee, g.version,
           g.changed_at, g.changed_by, g.letters, g.open_letters, g.first_at, g.last_at, g.reopened_at, g.queues,
           g.code_versions,
           array(select coalesce(h.letters, 0)::int4
                   from generate_series(0, 23) as back (hours)
                   left join failure_group_hours h
                     on h.group_id = g.id and h.hour = floor(extract(epoch from now()) / 3600)::int4 - 23 + back.hours
                  order by back.hours) as last_hours`;

/**
 * Groups in the wanted states, those with the most open letters first. Sorted in memory: there are as many groups as
 * there are kinds of failures. The cursor is the last row's count and id.
 */
export const listGroups = statement<
  [states: readonly string[], minOpen: number, belowOpen: string | null, belowId: string | null, limit: number]
>()({
  name: 'list_groups',
  text: sql`
    select ${shownColumns}
      from (
        select *
          from failure_groups
         where state = any($1::text[]) and open_letters >= $2::int4
           and ($3::int8 is null or (open_letters, id) < ($3::int8, $4::uuid))
         order by open_letters desc, id desc
         limit $5::int4
      ) g
     order by g.open_letters desc, g.id desc`,
  columns: {
    id: 'uuid',
    kind: 'text',
    type: 'text?',
    error_type: 'text?',
    error_message: 'text?',
    frame: 'text?',
    rule: 'text?',
    state: 'text',
    note: 'text?',
    assignee: 'text?',
    version: 'int4',
    changed_at: 'timestamptz?',
    changed_by: 'text?',
    letters: 'int8',
    open_letters: 'int8',
    first_at: 'timestamptz',
    last_at: 'timestamptz',
    reopened_at: 'timestamptz?',
    queues: 'text[]',
    code_versions: 'text[]',
    last_hours: 'int4[]?',
  },
});

/** One group as `list_groups` shows it. */
export const readGroup = statement<[id: string]>()({
  name: 'read_group',
  text: sql`
    select ${shownColumns}
      from failure_groups g
     where g.id = $1::uuid`,
  columns: listGroups.columns,
});

/** The youngest open letters of a group. Index: dead_letters_open_by_group. */
export const readGroupLetters = statement<[groupId: string, limit: number]>()({
  name: 'read_group_letters',
  text: sql`
    select id, reason, type, queue, died_at, error_message
      from dead_letters
     where group_id = $1::uuid and state = 'open'
     order by id desc
     limit $2::int4`,
  columns: {
    id: 'uuid',
    reason: 'text',
    type: 'text?',
    queue: 'text?',
    died_at: 'timestamptz',
    error_message: 'text?',
  },
});

/**
 * Changes what people say about a group; a null leaves a member as it is, an empty text takes note or assignee away. Nothing
 * where the group is at another version than the one that was looked at. Writes its line of the audit.
 */
export const changeGroup = statement<
  [
    id: string,
    version: number | null,
    state: string | null,
    note: string | null,
    assignee: string | null,
    actor: string,
    role: string,
    auditId: string,
    address: string | null,
  ]
>()({
  name: 'change_group',
  text: sql`
    with changed as (
      update failure_groups g
         set state = coalesce($3::text, g.state), note = nullif(coalesce($4::text, g.note), ''),
             assignee = nullif(coalesce($5::text, g.assignee), ''), version = g.version + 1, changed_at = clock_timestamp(),
             changed_by = $6::text
       where g.id = $1::uuid and ($2::int4 is null or g.version = $2::int4)
      returning g.id, g.version
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $8::uuid, $6::text, $7::text, $9::text, 'failure-group.change', id::text,
             jsonb_strip_nulls(jsonb_build_object('state', $3::text, 'note', $4::text, 'assignee', $5::text))
        from changed
    )
    select version from changed`,
  columns: { version: 'int4' },
});
