/** The statements that invite what was held back, as far as there is room. */
import { sql, statement } from '../postgres/statement.ts';
import type { Sql } from '../postgres/statement.ts';
import { heldColumns, inviteHeld, shownHeld } from './beside.sql.ts';

/** Tasks invited by one statement at most. */
const MOST = sql`500`;

/**
 * Invites up to `room` (SQL, an integer) of the tasks held back for `reason` (SQL, a text) under scope $1 and key $2, the more
 * urgent and then the older first.
 */
const release = (reason: Sql, room: Sql): Sql => sql`
    , picked as (
      select task_id
        from held_back
       where reason = ${reason} and scope = $1::text and key = $2::text
       order by priority desc, task_id
       limit (select least(${MOST}, greatest(0, ${room})))
         for update skip locked
    ), ${inviteHeld}
    , gone as (
      delete from held_back h using picked p
       where h.task_id = p.task_id and h.task_id in (select id from freed union all select task_id from past)
    )${shownHeld}`;

/**
 * Frees places of a concurrency group whose claims no longer run, and invites as many tasks as there are places then. What this
 * statement's snapshot shows in the group was committed together with its claim, so a claim that it does not show as running is over.
 * Index: held_back_in_turn, primary keys.
 */
export const releasePlaces = statement<[scope: string, key: string]>()({
  name: 'release_places',
  text: sql`
    with crowd as (
      select places from concurrency_groups where type = $1::text and key = $2::text
    ), over as (
      select u.place
        from crowd c
        cross join unnest(c.places) as u (place)
        left join tasks t on t.id = split_part(u.place, '/', 1)::uuid
       where t.id is null or t.state <> 'running' or t.claim_id <> split_part(u.place, '/', 2)::uuid
    ), cleared as (
      update concurrency_groups g
         set places = array(select p from unnest(g.places) p where p <> all(array(select place from over)))
       where g.type = $1::text and g.key = $2::text and exists (select from over)
      returning cardinality(places) as taken
    ), policy as (
      select (description->'concurrency'->>'limit')::int4 as places from task_types where name = $1::text
    )${release(
      sql`'concurrency'`,
      sql`coalesce((select places from policy), 500)
          - coalesce((select taken from cleared), (select cardinality(places) from crowd), 0)`,
    )}`,
  columns: heldColumns,
});

/** Invites as many tasks as may start now under the rate of their type and key. Index: held_back_in_turn, primary keys. */
export const releaseStarts = statement<[scope: string, key: string]>()({
  name: 'release_starts',
  text: sql`
    with policy as (
      select (description->'rate'->>'limit')::int4 as starts,
             (description->'rate'->>'perMs')::float8 * interval '1 ms' as per
        from task_types
       where name = $1::text
    ), recent as (
      select count(*)::int4 as starts
        from rate_groups g
        cross join policy p
        cross join unnest(g.starts) as s (at)
       where g.type = $1::text and g.key = $2::text and s.at > clock_timestamp() - p.per
    )${release(sql`'rate'`, sql`coalesce((select starts from policy), 500) - (select starts from recent)`)}`,
  columns: heldColumns,
});

/** Invites what a queue held back while it was paused, once it no longer is. */
export const releasePaused = statement<[scope: string, key: string]>()({
  name: 'release_paused',
  text: sql`
    with mode as (
      select mode from queues where name = $1::text
    )${release(sql`'paused'`, sql`case when (select mode from mode) = 'paused' then 0 else 500 end`)}`,
  columns: heldColumns,
});

/** Invites what came in while a queue was drained, once it is open again. */
export const releaseDraining = statement<[scope: string, key: string]>()({
  name: 'release_draining',
  text: sql`
    with mode as (
      select mode from queues where name = $1::text
    )${release(sql`'draining'`, sql`case when (select mode from mode) <> 'open' then 0 else 500 end`)}`,
  columns: heldColumns,
});
