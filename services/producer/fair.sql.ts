/** The statements of fair queues: who has the next turn, and what an operator sets. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { heldColumns, inviteHeld, shownHeld, turnsWaiting } from '../../shared/tasks/beside.sql.ts';

/** Tasks invited by one statement at most. */
const MOST = sql`500`;
/** Keys that one statement looks at: the next in turn come first. */
const MOST_KEYS = sql`500`;

/** Rows that it reads of them, where that is enough for a turn of each; keys that run out then leave room to the next call. */
const MOST_ROWS = sql`5000`;

/** Walks from key to key along the index, however many tasks each has: CTE `name` with `key`, from the first `from` on, `until`. */
const keysOf = (name: Sql, from: Sql, until: Sql): Sql => sql`${name} as (
      (select h.key
         from room m
        cross join rule r
        cross join held_back h
        where m.tasks > 0 and h.reason = 'turn' and h.scope = $1::text and ${from}
        order by h.key
        limit 1)
      union all
      select n.key
        from ${name} k
        cross join rule r
        cross join lateral (
          select h.key
            from held_back h
           where h.reason = 'turn' and h.scope = $1::text and h.key > k.key and ${until}
           order by h.key
           limit 1
        ) n
    )`;

/**
 * The queues in which tasks wait for their turn, or had it and have not started, each with a row for its round from now on. Goes from
 * queue to queue. Index: held_back_in_turn.
 */
export const findTurnQueues = statement<[]>()({
  name: 'find_turn_queues',
  text: sql`
    with recursive found as (
      (select reason, scope from held_back where reason >= 'turn' order by reason, scope limit 1)
      union all
      select n.reason, n.scope
        from found f
        cross join lateral (
          select h.reason, h.scope from held_back h where (h.reason, h.scope) > (f.reason, f.scope) order by h.reason, h.scope limit 1
        ) n
    ), started as (
      insert into fair_turns (queue)
      select name from queues where name in (select scope from found) and name not in (select queue from fair_turns) order by name
      on conflict do nothing
    )
    select distinct scope as queue from found order by scope`,
  columns: { queue: 'text?' },
});

/**
 * Invites the next tasks of a fair queue, up to its depth of invited ones that have not started: deficit round robin (Shreedhar and
 * Varghese 1995) over the keys that have tasks, each task of cost 1, the more urgent and then the older of a key first. A turn that the
 * room cuts off is taken up again by the next call; a key without tasks has no turn, so none of the room is left unused. Of a queue that
 * is drained what came before goes; one that is paused gives no turns; one that is fair no longer lets everything go. Nothing while
 * another process does this, or has done it since this statement began. Locks the row of the round, then those of the tasks in id order. Indexes: held_back_in_turn, primary keys.
 */
export const releaseTurns = statement<[fairQueue: string]>()({
  name: 'release_turns',
  text: sql`
    with recursive round as (
      select last_key, served, releases from fair_turns where queue = $1::text for update skip locked
    ), rule as (
      select t.last_key, t.served, q.fair_by is not null as is_fair, q.fair_weights, q.fair_depth,
             case when q.mode = 'draining' then q.mode_since else 'infinity' end as before
        from round t
        join queues q on q.name = $1::text
       where q.mode <> 'paused' and t.releases = (select s.releases from fair_turns s where s.queue = $1::text)
    ), given as (
      select h.task_id, coalesce(t.state = 'pending' and t.invited_at is not null, false) as stands
        from rule r
        join held_back h on true
        left join tasks t on t.id = h.task_id
       where h.reason = 'turn_given' and h.scope = $1::text
    ), over as (
      delete from held_back h using given g where h.task_id = g.task_id and not g.stands and h.reason = 'turn_given'
    ), room as (
      select least(${MOST}, case when is_fair then fair_depth - (select count(*) from given where stands) else ${MOST} end)::int4 as tasks
        from rule
    ), ${keysOf(sql`onward`, sql`h.key >= r.last_key`, sql`true`)}
    , ${keysOf(sql`again`, sql`h.key < r.last_key`, sql`h.key < r.last_key`)}
    , lanes as (
      select u.key, row_number() over (order by u.lap, u.key) as place, coalesce((r.fair_weights->>u.key)::int4, 1) as weight
        from rule r
        cross join (
          (select 0 as lap, key from onward limit ${MOST_KEYS}) union all (select 1, key from again limit ${MOST_KEYS})
        ) u
       order by u.lap, u.key
       limit ${MOST_KEYS}
    ), offered as (
      select l.key, l.place, l.weight, w.task_id,
             w.nth + case when l.place = 1 and l.key = r.last_key then r.served else 0 end - 1 as nth
        from lanes l
        cross join rule r
        cross join room m
        cross join (select count(*) as lanes, sum(weight) as weights from lanes) s
        cross join lateral (
          select h.task_id, row_number() over (order by h.priority desc, h.task_id) as nth
            from (
              select task_id, priority
                from held_back
               where reason = 'turn' and scope = $1::text and key = l.key and held_at < r.before
               order by priority desc, task_id
               limit greatest(least(m.tasks, ${MOST_ROWS} / s.lanes), l.weight * (1 + m.tasks / s.weights))
            ) h
        ) w
    ), chosen as (
      select key, task_id, nth / weight as turn, place, nth, 1 + nth % weight as served
        from offered
       order by nth / weight, place, nth
       limit (select greatest(0, tasks) from room)
    ), picked as (
      select h.task_id
        from (select task_id from chosen order by task_id) c
        cross join lateral (
          select task_id from held_back
           where task_id = c.task_id and reason = 'turn' and scope = $1::text offset 0 for update skip locked
        ) h
    ), ${inviteHeld}
    , counted as (
      update held_back h set reason = 'turn_given' from freed f where h.task_id = f.id
    ), gone as (
      delete from held_back h using past p where h.task_id = p.task_id
    ), moved as (
      update fair_turns t
         set last_key = c.key, served = c.served, releases = releases + 1
        from (select key, served from chosen order by turn desc, place desc, nth desc limit 1) c
       where t.queue = $1::text
    )${shownHeld}`,
  columns: heldColumns,
});

/** How many tasks wait for their turn, by queue, counted up to 100 000: a tenth of a second for those. Index: held_back_in_turn. */
export const countTurns = statement<[]>()({
  name: 'count_turns',
  text: sql`select q.name as queue, ${turnsWaiting} as turns from queues q`,
  columns: { queue: 'text', turns: 'int4?' },
});

/** Sets by what a queue is fair, or that it is not (null), and writes who did. No row: there is no such queue. */
export const setFairness = statement<
  [
    name: string,
    key: string | null,
    weights: string,
    depth: number,
    auditId: string,
    actor: string,
    role: string,
    address: string | null,
    reason: string | null,
  ]
>()({
  name: 'set_fairness',
  text: sql`
    with target as (
      select name, fair_by, fair_weights, fair_depth from queues where name = $1::text for no key update
    ), changed as (
      update queues q
         set fair_by = $2::text, fair_weights = $3::jsonb, fair_depth = $4::int4
        from target g
       where q.name = g.name
      returning q.name
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select $5::uuid, $6::text, $7::text, $8::text, 'queue.fairness', g.name,
             jsonb_strip_nulls(jsonb_build_object(
               'reason', $9::text, 'key', $2::text, 'weights', $3::jsonb, 'depth', $4::int4,
               'was', case when g.fair_by is not null
                        then jsonb_build_object('key', g.fair_by, 'weights', g.fair_weights, 'depth', g.fair_depth) end))
        from target g
    )
    select c.name from changed c`,
  columns: { name: 'text' },
});
