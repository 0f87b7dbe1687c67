/**
 * The statements that remove rows of keys which nobody holds or runs under any more: there may be one for every customer there ever
 * was. Each takes one step along the primary key of its table and says where to go on; no `last_type` at the end.
 */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql, Statement } from '../../shared/postgres/statement.ts';
import { isKeyHeld, oneById } from '../../shared/tasks/beside.sql.ts';

const swept = { last_type: 'text?', last_key: 'text?', swept: 'int4?' } as const;
type Sweep = Statement<[afterType: string, afterKey: string, limit: number], typeof swept>;

/** `idle`: CTEs behind `step` (rows of the table), the last of them named `idle`, with `type` and `key` of rows that are locked. */
const sweep = (table: Sql, idle: Sql): Sql => sql`
    with step as (
      select k.*
        from ${table} k
       where (k.type, k.key) > ($1::text, $2::text)
       order by k.type, k.key
       limit $3::int4
    )${idle}, gone as (
      delete from ${table} k using idle i where k.type = i.type and k.key = i.key returning k.key
    ), last as (
      select type, key from step order by type desc, key desc limit 1
    )
    select l.type as last_type, l.key as last_key, (select count(*) from gone)::int4 as swept
      from (values (1)) as one (n)
      left join last l on (select count(*) from step) = $3::int4`;

/** Unique keys that nobody holds. */
export const sweepUniqueKeys: Sweep = statement<[afterType: string, afterKey: string, limit: number]>()({
  name: 'sweep_unique_keys',
  text: sweep(
    sql`unique_keys`,
    sql`, free as (
      select k.type, k.key, k.task_id from step k left join tasks t on t.id = k.task_id where not (${isKeyHeld})
    ), idle as (
      select k.type, k.key
        from free f
        join unique_keys k on k.type = f.type and k.key = f.key and k.task_id = f.task_id
       order by k.type, k.key
         for update of k skip locked
    )`,
  ),
  columns: swept,
});

/**
 * Concurrency groups without a running claim. One that took a place since this statement began is no longer as it was, and stays; who
 * finds none makes it anew.
 */
export const sweepConcurrencyGroups: Sweep = statement<[afterType: string, afterKey: string, limit: number]>()({
  name: 'sweep_concurrency_groups',
  text: sweep(
    sql`concurrency_groups`,
    sql`, busy as (
      select s.type, s.key
        from step s
        cross join unnest(s.places) as u (place)
        cross join lateral ${oneById(
          sql`id`,
          sql`split_part(u.place, '/', 1)::uuid`,
          sql`
          and state = 'running' and claim_id = split_part(u.place, '/', 2)::uuid`,
        )} t
    ), idle as (
      select g.type, g.key
        from step s
        join concurrency_groups g on g.type = s.type and g.key = s.key
       where g.places = s.places and (s.type, s.key) not in (select type, key from busy)
       order by g.type, g.key
         for update of g skip locked
    )`,
  ),
  columns: swept,
});

/** Rate groups under which nothing started for a day, the longest time of a rate. */
export const sweepRateGroups: Sweep = statement<[afterType: string, afterKey: string, limit: number]>()({
  name: 'sweep_rate_groups',
  text: sweep(
    sql`rate_groups`,
    sql`, idle as (
      select g.type, g.key
        from step s
        join rate_groups g on g.type = s.type and g.key = s.key
       where not exists (select from unnest(g.starts) as u (at) where u.at > clock_timestamp() - interval '1 day')
       order by g.type, g.key
         for update of g skip locked
    )`,
  ),
  columns: swept,
});
