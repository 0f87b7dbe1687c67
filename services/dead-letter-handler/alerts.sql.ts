/**
 * The statements that find what is worth an alert, and keep what was found until it is handed in. What died of delivering an
 * alert is left out everywhere: `warren.alert` is the name of `shared/dead-letters/alert.ts`, as a test holds.
 * Times are compared with `now()`, the start of the statement: for `clock_timestamp()`, which changes within it, no index serves.
 */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** What an alert tells of a group. */
const GROUP = sql`g.id, g.kind, g.type, g.rule, g.error_type, g.error_message, g.state, g.letters, g.open_letters, g.first_at, g.last_at,
           g.queues[1:20] as queues, g.code_versions[1:20] as code_versions`;
const GROUP_COLUMNS = {
  id: 'uuid',
  kind: 'text',
  type: 'text?',
  rule: 'text?',
  error_type: 'text?',
  error_message: 'text?',
  state: 'text',
  letters: 'int8',
  open_letters: 'int8',
  first_at: 'timestamptz',
  last_at: 'timestamptz',
  queues: 'text[]?',
  code_versions: 'text[]?',
} as const;

/**
 * Groups that nobody was told of since they are there, or since their fault came back, largest first. A group that came back within
 * its quiet time is told of after it. Index: failure_groups_last_at; a group that has been silent for a week is no news.
 */
export const findNewGroups = statement<[quietMs: number, limit: number]>()({
  name: 'find_new_groups',
  text: sql`
    select ${GROUP}, clock_timestamp() as now
      from failure_groups g
     where g.last_at > now() - interval '7 days' and g.state = 'open' and g.type is distinct from 'warren.alert'
       and not exists (
             select from alerts a
              where a.kind = 'new_group' and a.group_id = g.id
                and (a.found_at >= coalesce(g.reopened_at, g.first_at)
                     or a.found_at > now() - $1::float8 * interval '1 ms'))
     order by g.letters desc, g.id
     limit $2::int4`,
  columns: { ...GROUP_COLUMNS, now: 'timestamptz?' },
});

/**
 * Groups with more than so many letters within the window, fastest first. Letters are counted by the hour: of the hour in which the
 * window begins its share is taken, as if its letters had come evenly. Index: failure_groups_last_at, failure_group_hours primary key.
 */
export const findGrowingGroups = statement<[windowMs: number, letters: number, quietMs: number, limit: number]>()({
  name: 'find_growing_groups',
  text: sql`
    with beginning as materialized (
      select floor(hour)::int4 as hour, hour - floor(hour) as gone
        from (select extract(epoch from now() - $1::float8 * interval '1 ms')::float8 / 3600 as hour) at
    )
    select ${GROUP}, n.letters::int8 as grown_by, clock_timestamp() as now
      from failure_groups g
      cross join lateral (
        select sum(h.letters * case when h.hour = b.hour then 1 - b.gone else 1 end) as letters
          from beginning b
          join failure_group_hours h on h.group_id = g.id and h.hour >= b.hour
      ) n
     where g.last_at > now() - $1 * interval '1 ms' and g.state = 'open' and g.type is distinct from 'warren.alert'
       and n.letters > $2::float8
       and not exists (
             select from alerts a
              where a.kind = 'growing_group' and a.group_id = g.id
                and a.found_at > now() - $3::float8 * interval '1 ms')
     order by n.letters desc, g.id
     limit $4::int4`,
  columns: { ...GROUP_COLUMNS, grown_by: 'int8?', now: 'timestamptz?' },
});

/**
 * The oldest open letter where it is older than so long, that of groups that are ignored left out; nothing in its quiet time. One
 * look into an index for each group with open letters, and one for what has no group yet. Index: dead_letters_open_by_group.
 */
export const findOldestLetter = statement<[oldestMs: number, quietMs: number]>()({
  name: 'find_oldest_letter',
  text: sql`
    with oldest as (
      select l.id, l.type, l.reason, l.died_at, l.group_id
        from (
          select o.*
            from failure_groups g
            cross join lateral (
              select l.id, l.type, l.reason, l.died_at, l.group_id
                from dead_letters l
               where l.group_id = g.id and l.state = 'open' and l.type is distinct from 'warren.alert'
               order by l.id
               limit 1
            ) o
           where g.state <> 'ignored' and g.open_letters > 0 and g.type is distinct from 'warren.alert'
          union all
          (select l.id, l.type, l.reason, l.died_at, l.group_id
             from dead_letters l
            where l.group_id is null and l.state = 'open' and l.type is distinct from 'warren.alert'
            order by l.id
            limit 1)
        ) l
       where not exists (
               select from alerts a
                where a.kind = 'oldest_letter' and a.found_at > now() - $2::float8 * interval '1 ms')
       order by l.died_at
       limit 1
    )
    select ${GROUP}, o.id as letter_id, o.type as letter_type, o.reason, o.died_at, clock_timestamp() as now,
           (select sum(c.open_letters)::int8 from failure_groups c
             where c.state <> 'ignored' and c.open_letters > 0 and c.type is distinct from 'warren.alert') as open_in_all
      from oldest o
      left join failure_groups g on g.id = o.group_id
     where o.died_at < now() - $1::float8 * interval '1 ms'`,
  columns: {
    id: 'uuid?',
    kind: 'text?',
    type: 'text?',
    rule: 'text?',
    error_type: 'text?',
    error_message: 'text?',
    state: 'text?',
    letters: 'int8?',
    open_letters: 'int8?',
    first_at: 'timestamptz?',
    last_at: 'timestamptz?',
    queues: 'text[]?',
    code_versions: 'text[]?',
    letter_id: 'uuid?',
    letter_type: 'text?',
    reason: 'text?',
    died_at: 'timestamptz?',
    now: 'timestamptz?',
    open_in_all: 'int8?',
  },
});

/**
 * Writes an alert, unless its group was told of within the quiet time or is no longer open. Of replicas that find the same at once
 * one writes: either the other sees its row, or both count to the same number. `groupId`: the nil UUID for no group.
 */
export const addAlert = statement<[id: string, kind: string, groupId: string, alert: string, quietMs: number]>()({
  name: 'add_alert',
  text: sql`
    insert into alerts (id, kind, group_id, number, alert)
    select $1::uuid, $2::text, $3::uuid,
           coalesce((select max(a.number) from alerts a where a.kind = $2 and a.group_id = $3), 0) + 1, $4::text::jsonb
     where not exists (
             select from alerts a
              where a.kind = $2 and a.group_id = $3 and a.found_at > clock_timestamp() - $5::float8 * interval '1 ms')
       and ($2 = 'oldest_letter' or exists (select from failure_groups g where g.id = $3 and g.state = 'open'))
    on conflict (kind, group_id, number) do nothing
    returning id`,
  columns: { id: 'uuid' },
});

/** Alerts found within the last hour. Index: alerts_found_at. */
export const countRecentAlerts = statement<[]>()({
  name: 'count_recent_alerts',
  text: sql`select count(*)::int4 as alerts from alerts where found_at > now() - interval '1 hour'`,
  columns: { alerts: 'int4?' },
});

/**
 * Takes alerts that are to be handed in, by moving their `retry_at`: no other replica takes them meanwhile, and after a crash somebody
 * takes them again. Nothing is published inside a transaction. Index: alerts_waiting.
 */
export const takeAlerts = statement<[againAfterMs: number, limit: number]>()({
  name: 'take_alerts',
  text: sql`
    update alerts a
       set retry_at = clock_timestamp() + $1::float8 * interval '1 ms'
      from (
        select id
          from alerts
         where handed_in_at is null and retry_at <= now()
         order by retry_at
         limit $2::int4
           for no key update skip locked
      ) w
     where a.id = w.id and a.handed_in_at is null
    returning a.id, a.alert`,
  columns: { id: 'uuid', alert: 'jsonb' },
});

/** Marks an alert that RabbitMQ has confirmed for every channel. */
export const markHandedIn = statement<[id: string]>()({
  name: 'mark_handed_in',
  text: sql`update alerts set handed_in_at = clock_timestamp() where id = $1::uuid and handed_in_at is null`,
  columns: {},
});

/**
 * Removes alerts of more than 30 days that were handed in. That a group was told of is kept as long as there is the group: else it
 * would be new again. Index: alerts_found_at.
 */
export const forgetAlerts = statement<[limit: number]>()({
  name: 'forget_alerts',
  text: sql`
    delete from alerts
     where id in (
             select a.id
               from alerts a
              where a.found_at < now() - interval '30 days' and a.handed_in_at is not null
                and (a.kind <> 'new_group' or not exists (select from failure_groups g where g.id = a.group_id))
              order by a.found_at
              limit $1::int4)`,
  columns: {},
});
