/** The statement that moves what is due. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import {
  countInLedger,
  endStepsUnheard,
  holdForQueue,
  isAmong,
  isTaskGone,
  writeOutbox,
} from '../../shared/tasks/beside.sql.ts';

/**
 * Takes up to `limit` tasks whose instant has come: those whose run_at passed become pending, with an outbox row, or held back
 * where they were scheduled and their queue is drained, or their queue is fair; those that wait past their deadline expire; a row whose task no longer waits goes. Locks `due` in order of time, then tasks in id
 * order, both skipping what another holds: a settle locks them the other way round. Indexes: due_at, tasks primary key.
 */
export const dispatchDue = statement<[limit: number]>()({
  name: 'dispatch_due',
  text: sql`
    with picked as (
      select task_id from due where at <= clock_timestamp() order by at limit $1::int4 for update skip locked
    ), special as (
      select coalesce(array_agg(name) filter (where mode = 'draining'), '{}') as draining,
             coalesce(array_agg(name) filter (where fair_by is not null), '{}') as fair
        from queues
       where mode <> 'open' or fair_by is not null
    ), locked as (
      select t.id,
             case
               when t.deadline <= clock_timestamp() and t.state in ('pending', 'scheduled', 'retrying', 'blocked')
                 then 'expired'
               when t.state in ('scheduled', 'retrying') and t.run_at <= clock_timestamp() then 'pending'
               else t.state::text
             end::task_state as next_state,
             t.state, t.run_at, t.deadline,
             t.state = 'scheduled' and t.queue = any((select draining from special)::text[]) as is_drained,
             case when t.queue = any((select fair from special)::text[]) then turn_key(t.queue, t.input) end as turn
        from picked p
        join tasks t on t.id = p.task_id
       order by t.id
         for no key update of t skip locked
    ), moved as (
      update tasks t
         set state = l.next_state,
             run_at = case when l.next_state = 'pending' then null else t.run_at end,
             invited_at = case when l.next_state <> 'pending' then t.invited_at when l.turn is null and not l.is_drained then clock_timestamp() end,
             finished_at = case when l.next_state = 'expired' then clock_timestamp() end
        from locked l
       where t.id = l.id and t.state = l.state and l.next_state <> l.state
      returning t.id, t.state, t.invited_at, t.type, t.queue, t.priority, t.generation, t.flow_id, t.flow_step, l.turn
    ), counted as (${countInLedger(sql`'expired'`, sql`moved where state = 'expired'`)}
    ), later as (
      -- Pending with a deadline, or picked for a deadline that an edit moved: look again then. What the locked row says counts; the
      -- snapshot may be older than the edit.
      update due d
         set at = l.next_at
        from (
          select id, least(case when next_state in ('scheduled', 'retrying') then run_at end, deadline) as next_at
            from locked
           where next_state in ('pending', 'scheduled', 'retrying', 'blocked')
        ) l
       where d.task_id = l.id and l.next_at is not null
      returning d.task_id
    ), gone as (
      delete from due d
       using picked p
       where d.task_id = p.task_id
         and p.task_id not in (select task_id from later)
         and (${isAmong(sql`p.task_id`, sql`locked`)} or ${isTaskGone(sql`p.task_id`)})
    ), held as (${holdForQueue(sql`moved where state = 'pending' and invited_at is null`)}
    ), invited as (${writeOutbox(sql`moved where state = 'pending' and invited_at is not null`)}
    )
    select m.id as task_id, m.state::text as state, m.type, m.queue, m.priority, m.generation,
           case when m.state = 'pending' and m.invited_at is not null then (select id from invited) end as outbox_id,
           ${endStepsUnheard(sql`(select * from moved where state = 'expired') over`)} as steps_freed
      from moved m
    union all
    select p.task_id, null, null, null, null, null, null, null from picked p where not ${isAmong(sql`p.task_id`, sql`moved`)}`,
  columns: {
    task_id: 'uuid?',
    state: 'text?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
    steps_freed: 'int4?',
  },
});
