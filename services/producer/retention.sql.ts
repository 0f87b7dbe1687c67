/** The statements of retention. Those that change tables stand in `0011_retention.sql`, since they take names. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { countInLedger } from '../../shared/tasks/beside.sql.ts';

/** Taken by every step of retention and by erasing, so that no two of them judge or change the same tasks at once. */
const RETENTION_LOCK = sql`hashtextextended('warren retention ' || current_schema(), 0)`;

/** Takes the lock until the transaction ends, where it is free. */
export const tryRetentionLock = statement<[]>()({
  name: 'try_retention_lock',
  text: sql`select pg_try_advisory_xact_lock(${RETENTION_LOCK}) as is_ours`,
  columns: { is_ours: 'bool?' },
});

/** Waits for the lock, and holds it until the transaction ends. */
export const takeRetentionLock = statement<[]>()({
  name: 'take_retention_lock',
  text: sql`select pg_advisory_xact_lock(${RETENTION_LOCK}) is null as is_done`,
  columns: { is_done: 'bool?' },
});

/** The partitions of tasks but for the default one, by Postgres's catalogue, in the order of time. `rows`: as last counted. */
export const readPartitions = statement<[]>()({
  name: 'read_partitions',
  text: sql`
    select c.relname::text as name, b.bound[1]::uuid as lower_id, b.bound[2]::uuid as upper_id,
           id_instant(b.bound[1]::uuid) as lower_at, id_instant(b.bound[2]::uuid) as upper_at,
           greatest(c.reltuples, 0)::float8 as rows, pg_total_relation_size(c.oid)::float8 as bytes,
           h.name is not null as is_held
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      cross join lateral (
        select regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([^'']+)''[)] TO [(]''([^'']+)''[)]') as bound
      ) b
      left join held_partitions h on h.name = c.relname and h.till > clock_timestamp()
     where i.inhparent = 'tasks'::regclass and b.bound is not null
     order by 2`,
  columns: {
    name: 'text?',
    lower_id: 'uuid?',
    upper_id: 'uuid?',
    lower_at: 'timestamptz?',
    upper_at: 'timestamptz?',
    rows: 'float8?',
    bytes: 'float8?',
    is_held: 'bool?',
  },
});

/** The clock that counts, the default partition, the oldest task, and the retirement under way. Always one row. */
export const readStanding = statement<[]>()({
  name: 'read_retention_standing',
  text: sql`
    select clock_timestamp() as now, greatest(d.reltuples, 0)::float8 as default_rows,
           pg_total_relation_size(d.oid)::float8 as default_bytes,
           (select id_instant(id) from tasks order by id limit 1) as oldest_at,
           r.target, r.sources, r.lower_id, r.upper_id, r.kept::float8 as kept, r.retired::float8 as retired,
           r.began_at, r.is_broken,
           array(select name from retired_partitions order by name) as to_drop
      from pg_class d
      left join task_retirements r on true
     where d.oid = 'tasks_default'::regclass`,
  columns: {
    now: 'timestamptz?',
    default_rows: 'float8?',
    default_bytes: 'float8?',
    oldest_at: 'timestamptz?',
    target: 'text?',
    sources: 'text[]?',
    lower_id: 'uuid?',
    upper_id: 'uuid?',
    kept: 'float8?',
    retired: 'float8?',
    began_at: 'timestamptz?',
    is_broken: 'bool?',
    to_drop: 'text[]?',
  },
});

/** The instant of the newest task of a range in the default partition, where more than `$3` are in it. Index: primary key. */
export const findCrowd = statement<[lower: string, upper: string, most: number]>()({
  name: 'find_crowd',
  text: sql`
    select id_instant(id) as newest_at
      from tasks_default
     where id >= $1::uuid and id < $2::uuid
       and exists (select from tasks_default where id >= $1::uuid and id < $2::uuid offset $3::int4)
     order by id desc
     limit 1`,
  columns: { newest_at: 'timestamptz?' },
});

/** Says that a range of the default partition stays empty; see `validateGuard`. */
export const guardDefault = statement<[lower: string, upper: string]>()({
  name: 'guard_default',
  text: sql`select guard_default_partition($1::uuid, $2::uuid)::text as done`,
  columns: { done: 'text?' },
});

/** Takes back what a crash has left of that. */
export const unguardDefault = statement<[]>()({
  name: 'unguard_default',
  text: sql`select unguard_default_partition()::text as done`,
  columns: { done: 'text?' },
});

/** Makes a partition. */
export const addPartition = statement<[name: string, lower: string, upper: string]>()({
  name: 'add_partition',
  text: sql`select add_task_partition($1::text, $2::uuid, $3::uuid)::text as done`,
  columns: { done: 'text?' },
});

/** Sees autovacuum out of a partition. */
export const quietPartition = statement<[name: string]>()({
  name: 'quiet_partition',
  text: sql`select quiet_partition($1::text)::text as done`,
  columns: { done: 'text?' },
});

/** Begins to retire partitions. */
export const beginRetirement = statement<[target: string, sources: readonly string[], lower: string, upper: string]>()({
  name: 'begin_retirement',
  text: sql`select begin_task_retirement($1::text, $2::text[], $3::uuid, $4::uuid)::text as done`,
  columns: { done: 'text?' },
});

/** Puts what stays where the partitions were. */
export const finishRetirement = statement<[]>()({
  name: 'finish_retirement',
  text: sql`select finish_task_retirement()::text as done`,
  columns: { done: 'text?' },
});

/** Gives a retirement up. */
export const abandonRetirement = statement<[]>()({
  name: 'abandon_retirement',
  text: sql`select abandon_task_retirement()::text as done`,
  columns: { done: 'text?' },
});

/** Drops a partition that was taken out. */
export const dropRetired = statement<[name: string]>()({
  name: 'drop_retired',
  text: sql`select drop_retired_partition($1::text)::text as done`,
  columns: { done: 'text?' },
});

/** Says that more tasks stay in these partitions than are worth moving, and when to look again. */
export const holdPartitions = statement<[names: readonly string[], forMs: number]>()({
  name: 'hold_partitions',
  text: sql`
    insert into held_partitions (name, till)
    select name, clock_timestamp() + $2::float8 * interval '1 ms' from unnest($1::text[]) as u (name) order by name
    on conflict (name) do update set till = excluded.till
    returning name`,
  columns: { name: 'text' },
});

/** The retirement under way, for one step. */
export const lockRetirement = statement<[]>()({
  name: 'lock_retirement',
  text: sql`
    select target, sources, lower_id, upper_id, walked_to, kept::float8 as kept, is_broken from task_retirements for update`,
  columns: {
    target: 'text',
    sources: 'text[]',
    lower_id: 'uuid',
    upper_id: 'uuid',
    walked_to: 'uuid',
    kept: 'float8',
    is_broken: 'bool',
  },
});

/**
 * Judges the next `$4` tasks after `$1`, from `$2` to before `$3`: whose time is over, and who stays. Rules: `$5` types (empty:
 * all others), `$6` states, `$7` milliseconds after the end. A dead task's time runs from when its last letter was closed;
 * while one is open, or none was ever written, it stays. Steps stay while their flow has not ended. Indexes: primary key of tasks, dead_letters_task.
 */
export const judgeTasks = statement<
  [
    after: string,
    lower: string,
    upper: string,
    limit: number,
    types: readonly string[],
    states: readonly string[],
    keptMs: readonly number[],
  ]
>()({
  name: 'judge_tasks',
  text: sql`
    with rules as materialized (
      select * from unnest($5::text[], $6::text[], $7::float8[]) as r (type, state, kept_ms)
    ), seen as materialized (
      select id, type, state, finished_at, flow_id
        from tasks
       where id > $1::uuid and id >= $2::uuid and id < $3::uuid
       order by id
       limit $4::int4
    ), limited as (
      select s.id, s.state, s.finished_at, s.flow_id,
             clock_timestamp() - coalesce(
               (select r.kept_ms from rules r where r.type = s.type and r.state = s.state::text),
               (select r.kept_ms from rules r where r.type = '' and r.state = s.state::text)) * interval '1 ms' as over_before
        from seen s
    ), judged as materialized (
      select l.id,
             coalesce(case
               when l.state in ('succeeded', 'cancelled', 'expired') then l.finished_at < l.over_before
               when l.state = 'dead' then (
                 select bool_and(coalesce(d.closed_at < l.over_before, false)) from dead_letters d where d.task_id = l.id)
             end, false)
             -- what a step gave may still be wanted by those after it
             and (l.flow_id is null or not exists (
                    select from flows f
                     where f.id = l.flow_id
                       and (f.finished_at is null
                            or exists (select from flows o where o.id = f.root_id and o.finished_at is null)))) as is_over
        from limited l
    )
    select (select count(*) from judged)::int4 as rows_seen,
           (select id from judged order by id desc limit 1) as last_id,
           array(select id from judged where is_over order by id) as over,
           array(select id from judged where not is_over order by id) as kept`,
  columns: { rows_seen: 'int4', last_id: 'uuid?', over: 'uuid[]', kept: 'uuid[]' },
});

/** Copies tasks that stay to where they are going to be. */
export const keepTasks = statement<[ids: readonly string[]]>()({
  name: 'keep_tasks',
  text: sql`select keep_tasks($1::uuid[]) as kept`,
  columns: { kept: 'int4?' },
});

/** Takes tasks that are over out of where those that stay are going to be. */
export const leaveTasks = statement<[ids: readonly string[]]>()({
  name: 'leave_tasks',
  text: sql`select leave_tasks($1::uuid[])::text as done`,
  columns: { done: 'text?' },
});

/** Moves the retirement on, and writes down what is going to be counted as retired. */
export const advanceRetirement = statement<[walkedTo: string, kept: number, over: readonly string[]]>()({
  name: 'advance_retirement',
  text: sql`
    with counted as (
      insert into task_retirement_counts as c (hour, type, tasks)
      select task_hour(id), type, count(*) from tasks where id = any($3::uuid[]) group by 1, 2 order by 1, 2
      on conflict (hour, type) do update set tasks = c.tasks + excluded.tasks
    )
    update task_retirements
       set walked_to = $1::uuid, kept = kept + $2::int4, retired = retired + cardinality($3::uuid[])
    returning target`,
  columns: { target: 'text' },
});

/** Removes tasks row by row, and counts them in the ledger. */
export const removeTasks = statement<[ids: readonly string[]]>()({
  name: 'remove_tasks',
  text: sql`
    with locked as (
      select id from tasks where id = any($1::uuid[]) order by id for update
    ), removed as (
      delete from tasks t using locked l where t.id = l.id returning t.id, t.type
    ), counted as (${countInLedger(sql`'retired'`, sql`removed`)}
    )
    select id from removed`,
  columns: { id: 'uuid' },
});
