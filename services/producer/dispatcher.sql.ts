/** The statement that moves what is due. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Takes up to `limit` tasks whose instant has come: those whose run_at passed become pending, with an outbox row; those
 * that wait past their deadline expire; a row whose task no longer waits goes. Locks `due` in order of time, then tasks in id
 * order, both skipping what another holds: a settle locks them the other way round. Indexes: due_at, tasks primary key.
 */
export const dispatchDue = statement<[limit: number]>()({
  name: 'dispatch_due',
  text: sql`
    with picked as (
      select task_id from due where at <= clock_timestamp() order by at limit $1::int4 for update skip locked
    ), locked as (
      select t.id,
             case
               when t.deadline <= clock_timestamp() and t.state in ('pending', 'scheduled', 'retrying', 'blocked')
                 then 'expired'
               when t.state in ('scheduled', 'retrying') and t.run_at <= clock_timestamp() then 'pending'
               else t.state::text
             end::task_state as next_state,
             t.state
        from picked p
        join tasks t on t.id = p.task_id
       order by t.id
         for no key update of t skip locked
    ), moved as (
      update tasks t
         set state = l.next_state,
             run_at = case when l.next_state = 'pending' then null else t.run_at end,
             invited_at = case when l.next_state = 'pending' then clock_timestamp() else t.invited_at end,
             finished_at = case when l.next_state = 'expired' then clock_timestamp() end
        from locked l
       where t.id = l.id and t.state = l.state and l.next_state <> l.state
      returning t.id, t.state, t.type, t.queue, t.priority, t.generation
    ), counted as (
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select task_hour(id), type, 'expired', pg_backend_pid(), count(*)
        from moved where state = 'expired'
       group by 1, 2, 3
       order by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
    ), later as (
      -- Pending with a deadline, or picked for a deadline that an edit moved: look again then.
      update due d
         set at = least(case when t.state in ('scheduled', 'retrying') and l.next_state <> 'pending' then t.run_at end,
                        t.deadline)
        from locked l
        join tasks t on t.id = l.id
       where d.task_id = l.id
         and l.next_state in ('pending', 'scheduled', 'retrying', 'blocked')
         and least(case when t.state in ('scheduled', 'retrying') and l.next_state <> 'pending' then t.run_at end,
                   t.deadline) is not null
      returning d.task_id
    ), gone as (
      delete from due d
       using picked p
        left join locked l on l.id = p.task_id
       where d.task_id = p.task_id
         and p.task_id not in (select task_id from later)
         and (l.id is not null or not exists (select from tasks t where t.id = p.task_id))
    ), invited as (
      insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
      select clock_timestamp() + interval '10 s', array_agg(id), array_agg(type), array_agg(queue),
             array_agg(priority), array_agg(generation)
        from moved where state = 'pending' having count(*) > 0
      returning id
    )
    select p.task_id, m.state::text as state, m.type, m.queue, m.priority, m.generation,
           case when m.state = 'pending' then (select id from invited) end as outbox_id
      from picked p
      left join moved m on m.id = p.task_id`,
  columns: {
    task_id: 'uuid',
    state: 'text?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
  },
});
