/** The statements that start attempts of tasks whose types have limits, and hold back what may not start. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { beginFlows, claimable, claimedColumns, keepBatch, living, shown, start } from './claims.sql.ts';
import { isAmong, specialQueues } from '../../shared/tasks/beside.sql.ts';

/** Makes the rows on which claims of these tasks meet. In key order, so that two workers never deadlock. */
export const makeGroups = statement<[ids: readonly string[]]>()({
  name: 'make_limit_groups',
  text: sql`
    with wanted as (
      select type, concurrency_key, rate_key from tasks where id = any($1::uuid[])
    ), concurrency as (
      insert into concurrency_groups (type, key)
      select distinct type, concurrency_key from wanted where concurrency_key is not null order by 1, 2
      on conflict do nothing
    )
    insert into rate_groups (type, key)
    select distinct type, rate_key from wanted where rate_key is not null order by 1, 2
    on conflict do nothing
    returning type`,
  columns: { type: 'text' },
});

/**
 * Starts an attempt of each task as `claimTasks` does, provided that the limits of its type leave room, the more urgent and then
 * the older ones first. What finds none becomes uninvited and is held back. Limits are those that were announced last; a task
 * whose type has lost its limit since is free of it. Nothing of a paused queue is started.
 *
 * The row of a group is locked by its update, and what is counted stands in that row alone: a claim that waited for it counts
 * what the other one added. Who took a place and was then refused by the rate does not run under this claim, so its place is
 * free. Locks tasks in id order, then concurrency groups, then rate groups, in key order. Index: primary keys.
 */
export const claimRestricted = statement<
  [ids: readonly string[], generations: readonly number[], worker: string, claimId: string]
>()({
  name: 'claim_restricted',
  text: sql`
    with living as (${living}
    ), special as (${specialQueues}
    ), locked as (
      select t.id, t.type, t.queue, t.priority, t.queue = any((select names from special)::text[]) as is_paused,
             t.concurrency_key, t.rate_key, t.id || '/' || $4::uuid as place
        ${claimable}
    ), policy as (
      select name,
             (description->'concurrency'->>'limit')::int4 as places,
             (description->'rate'->>'limit')::int4 as starts,
             (description->'rate'->>'perMs')::float8 * interval '1 ms' as per
        from task_types
       where name in (select type from locked)
    ), crowds as (
      select l.type, l.concurrency_key as key, p.places, array_agg(l.place order by l.priority desc, l.id) as asking
        from locked l
        join policy p on p.name = l.type
       where l.concurrency_key is not null and p.places is not null and not l.is_paused
       group by 1, 2, 3
    ), crowded as (
      select g.type, g.key, c.places, c.asking
        from crowds c
        join concurrency_groups g on g.type = c.type and g.key = c.key
       order by g.type, g.key
         for update of g
    ), taken as (
      update concurrency_groups g
         set places = g.places || c.asking[1:greatest(0, c.places - cardinality(g.places))]
        from crowded c
       where g.type = c.type and g.key = c.key
      returning g.type, g.key, g.places
    ), placed as (
      select l.id, l.type, l.rate_key, row_number() over (partition by l.type, l.rate_key order by l.priority desc, l.id) as turn
        from locked l
       where not l.is_paused
         and (((l.type, l.concurrency_key) in (select type, key from crowds)) is not true
              or ((l.type, l.concurrency_key, l.place) in (select type, key, unnest(places) from taken)) is true)
    ), paces as (
      select l.type, l.rate_key as key, p.starts, p.per, count(*)::int4 as asking
        from placed l
        join policy p on p.name = l.type
       where l.rate_key is not null and p.starts is not null
       group by 1, 2, 3, 4
    ), paced as (
      select g.type, g.key, c.starts, c.per, c.asking
        from paces c
        join rate_groups g on g.type = c.type and g.key = c.key
       order by g.type, g.key
         for update of g
    ), started as (
      update rate_groups g
         set (starts, admitted) = (
           select array(select s from unnest(g.starts) s where s > now.at - c.per)
                    || array_fill(now.at, array[free.places]),
                  free.places
             from (select clock_timestamp() as at) now
             cross join lateral (
               select least(c.asking, greatest(0, c.starts - (select count(*) from unnest(g.starts) s where s > now.at - c.per)))::int4
                        as places
             ) free)
        from paced c
       where g.type = c.type and g.key = c.key
      returning g.type, g.key, g.admitted
    ), admitted as (
      select p.id
        from placed p
       where ((p.type, p.rate_key) in (select type, key from paces)) is not true
          or ((p.type, p.rate_key, p.turn) in (
               select s.type, s.key, t.turn::int8 from started s cross join generate_series(1, s.admitted) as t (turn))) is true
    ), claimed as (${start(sql`admitted`)}
    ), batch as (${keepBatch}
    ), begun as (${beginFlows}
    ), refused as (
      select l.*, ${isAmong(sql`l.id`, sql`placed`)} as is_placed from locked l where l.id not in (select id from admitted)
    ), uninvited as (
      update tasks t set invited_at = null from refused r where t.id = r.id and t.state = 'pending' returning t.id
    ), held as (
      insert into held_back (task_id, reason, scope, key, priority)
      select r.id,
             case when r.is_paused then 'paused' when r.is_placed then 'rate' else 'concurrency' end,
             case when r.is_paused then r.queue else r.type end,
             case when r.is_paused then '' when r.is_placed then r.rate_key else r.concurrency_key end,
             r.priority
        from refused r
       order by r.id
      on conflict (task_id) do update
         set reason = excluded.reason, scope = excluded.scope, key = excluded.key, priority = excluded.priority
    ), forgotten as (
      delete from held_back h using admitted a where h.task_id = a.id
    )
    select v.has_lease, ${shown}
      from living v
      left join claimed c on true`,
  columns: {
    has_lease: 'bool',
    ...claimedColumns,
  },
});
