/** The statements that remove by age what is not a task: at most 500 rows each call, oldest first. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { isAmong } from '../../shared/tasks/beside.sql.ts';

/**
 * Letters that were closed `$1` milliseconds ago, with what they are searched by and the inputs that were mended. One whose task
 * is dead still waits for it: a death without a letter would be a fault. Index: dead_letters_closed.
 */
export const sweepLetters = statement<[keptMs: number]>()({
  name: 'sweep_letters',
  text: sql`
    with old as (
      select l.id
        from dead_letters l
       where l.closed_at < clock_timestamp() - $1::float8 * interval '1 ms'
         and not exists (select from tasks t where t.id = l.task_id and t.state = 'dead')
       order by l.closed_at
       limit 500
         for update of l skip locked
    ), facts_gone as (
      delete from letter_facts f using old o where f.letter_id = o.id
    ), inputs_gone as (
      delete from mended_inputs m using old o where m.letter_id = o.id
    )
    delete from dead_letters l using old o where l.id = o.id returning l.id`,
  columns: { id: 'uuid' },
});

/** Items of replays that ended `$1` milliseconds ago, and the replays without any. Index: replays_finished. */
export const sweepReplays = statement<[keptMs: number]>()({
  name: 'sweep_replays',
  text: sql`
    with old as materialized (
      select id from replays
       where finished_at < clock_timestamp() - $1::float8 * interval '1 ms'
       order by finished_at
       limit 50
         for update skip locked
    ), items as materialized (
      select i.replay_id, i.n
        from old o
        cross join lateral (
          select replay_id, n from replay_items r where r.replay_id = o.id order by n limit 500
        ) i
       limit 500
    ), items_gone as (
      delete from replay_items i using items k where i.replay_id = k.replay_id and i.n = k.n returning i.replay_id
    ), replays_gone as (
      delete from replays r
       using old o
       where r.id = o.id and not exists (select from replay_items i where i.replay_id = o.id)
      returning r.id
    )
    select replay_id as id from items_gone union all select id from replays_gone`,
  columns: { id: 'uuid?' },
});

/**
 * Steps of flows that ended `$1` milliseconds ago, and the flows without any, with what stands beside them. What is nested in a flow goes together
 * with it. Indexes: flows_finished_at, flows_parent.
 */
export const sweepFlows = statement<[keptMs: number]>()({
  name: 'sweep_flows',
  text: sql`
    with old as materialized (
      select id
        from flows
       where finished_at < clock_timestamp() - $1::float8 * interval '1 ms' and parent_id is null
       order by finished_at
       limit 100
         for update skip locked
    ), whole as materialized (
      select f.id, coalesce(f.root_id, f.id) as root, f.business_type, f.business_key, f.finished_at
        from unnest(flows_within(array(select id from old))) as n (id)
        cross join lateral (select * from flows w where w.id = n.id offset 0) f
    ), living as (
      -- a nested flow that failed may go on by itself
      select root as id from whole where finished_at is null
    ), tree as materialized (
      select * from whole where not ${isAmong(sql`whole.root`, sql`living`)}
    ), steps as materialized (
      select s.flow_id, s.step
        from tree o
        cross join lateral (
          select flow_id, step from flow_steps f where f.flow_id = o.id order by step limit 500
        ) s
       limit 500
    ), steps_gone as (
      delete from flow_steps f using steps s where f.flow_id = s.flow_id and f.step = s.step returning f.flow_id
    ), with_steps as (
      select o.root as id from tree o where exists (select from flow_steps s where s.flow_id = o.id)
    ), flows_gone as (
      delete from flows f
       using tree o
       where f.id = o.id and not ${isAmong(sql`o.root`, sql`with_steps`)}
      returning f.id, f.business_type, f.business_key
    ), signals_gone as (
      delete from flow_signals g using flows_gone f where g.flow_id = f.id
    ), keys_gone as (
      delete from flow_keys k
       using flows_gone f
       where k.business_type = f.business_type and k.business_key = f.business_key and k.flow_id = f.id
    )
    select flow_id as id from steps_gone union all select id from flows_gone`,
  columns: { id: 'uuid?' },
});

/** What became of instants of schedules, `$1` milliseconds ago, but for what waits and runs still. Index: occurrences_decided_at. */
export const sweepOccurrences = statement<[keptMs: number]>()({
  name: 'sweep_occurrences',
  text: sql`
    with old as materialized (
      select schedule_id, at, is_manual
        from occurrences
       where decided_at < clock_timestamp() - $1::float8 * interval '1 ms' and state <> 'waiting' and not is_open
       order by decided_at
       limit 500
         for update skip locked
    )
    delete from occurrences o
     using old w
     where o.schedule_id = w.schedule_id and o.at = w.at and o.is_manual = w.is_manual
    returning o.schedule_id as id`,
  columns: { id: 'uuid' },
});

/** Counts of letters by hour of groups, older than `$1` milliseconds. Index: failure_group_hours_hour. */
export const sweepGroupHours = statement<[keptMs: number]>()({
  name: 'sweep_group_hours',
  text: sql`
    delete from failure_group_hours
     where ctid = any(array(
       select ctid from failure_group_hours
        where hour < floor((extract(epoch from clock_timestamp()) * 1000 - $1::float8) / 3600000)
        order by hour limit 500))
    returning hour`,
  columns: { hour: 'int4' },
});
