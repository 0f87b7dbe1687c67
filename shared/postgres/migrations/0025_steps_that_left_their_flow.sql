-- A step that was replayed by itself has left its flow, and tells it nothing of its end. A retry of the flow, or a replay of another step of it, made what
-- comes after it wait for that end, for ever.
-- breaking: no

-- Steps that have ended are made anew, as new tasks, blocked until what they wait for has succeeded. A step that has left the flow is waited for by
-- none: its end is told to nobody. The flow is locked and has not ended.
create or replace function remake_steps(of_flow uuid, picked integer[]) returns void language plpgsql as $$
declare
  made  record;
  ready integer[];
begin
  if cardinality(picked) = 0 then return; end if;
  with old as (
    select s.step, s.task_id as old_id, uuid_v7() as id from flow_steps s where s.flow_id = of_flow and s.step = any(picked)
  ), accepted as (
    insert into tasks (id, accepted_at, state, deadline, max_attempts, priority, type, queue, business_key, publisher, tags, input,
                       input_file, concurrency_key, rate_key, flow_id, flow_step)
    select o.id, clock_timestamp(), 'blocked', t.deadline, t.max_attempts, t.priority, t.type, t.queue, t.business_key, t.publisher,
           t.tags, t.input, t.input_file, t.concurrency_key, t.rate_key, of_flow, o.step
      from old o
      cross join lateral (select * from tasks where id = o.old_id offset 0) t
     order by o.id
    returning id, type, flow_step
  ), named as (
    update flow_steps s
       set task_id = a.id, why = null, earlier = s.earlier || s.task_id
      from accepted a
     where s.flow_id = of_flow and s.step = a.flow_step
  )
  select array_agg(a.id) as ids, array_agg(a.type) as types into made from accepted a;
  if made.ids is null then return; end if;
  perform count_in_ledger('accepted', made.ids, made.types);
  update flows w set steps_open = w.steps_open + cardinality(made.ids) where w.id = of_flow;
  with counted as (
    select n.step, count(*)::integer as n
      from flow_steps s
      cross join unnest(s.next) as n (step)
      cross join lateral (select state, flow_id from tasks where id = s.task_id offset 0) t
     where s.flow_id = of_flow and s.kind = 'step' and t.flow_id is not null
       and not (t.state = 'succeeded' or (s.on_failure = 'ignore' and t.state in ('dead', 'expired', 'cancelled')))
     group by n.step
  ), recounted as (
    update flow_steps s
       set waits_for = coalesce((select c.n from counted c where c.step = s.step), 0)
                       + (s.signal is not null and not exists (
                            select from flow_signals g where g.flow_id = of_flow and g.name = s.signal))::integer
     where s.flow_id = of_flow and s.step = any(picked)
    returning s.step, s.waits_for, s.signal, s.signal_ms
  ), timed as (
    insert into flow_timers (flow_id, step, at)
    select of_flow, r.step, clock_timestamp() + r.signal_ms * interval '1 ms'
      from recounted r
     where r.waits_for = 1 and r.signal_ms is not null
       and not exists (select from flow_signals g where g.flow_id = of_flow and g.name = r.signal)
    on conflict (flow_id, step) do update set at = excluded.at
  )
  select array_agg(r.step) into ready from recounted r where r.waits_for = 0;
  perform from unblock_steps(array_fill(of_flow, array[coalesce(cardinality(ready), 0)]), coalesce(ready, '{}'), interval '0');
end $$;

-- A flow that has ended goes on: what failed or was cancelled is made anew, and with `from_step` that step and all that come after it,
-- whatever became of them. Open dead letters of tasks in whose place others come are closed. Gives how many tasks were made; null where the
-- flow has not ended, or what it did is undone; -1 where another flow is about the same thing by now; -2 while a step that was replayed by itself,
-- without which nothing can go on, has not ended.
create or replace function retry_flow(of_flow uuid, from_step text, by_actor text, why text) returns integer language plpgsql as $$
declare
  f      flows;
  picked integer[];
  before integer;
begin
  -- A replay locks a letter before its flow.
  perform from dead_letters l
    where l.task_id = any(array(select s.task_id from flow_steps s where s.flow_id = of_flow)) and l.state = 'open'
    order by l.id for no key update;
  select * into f from flows w where w.id = of_flow for no key update;
  if f.finished_at is null or f.phase = 'undo' then return null; end if;
  if exists (
    select from flow_steps s
      cross join lateral (select state, flow_id from tasks where id = s.task_id offset 0) t
     where s.flow_id = of_flow and s.kind = 'step' and coalesce(s.on_failure, '') <> 'ignore' and t.flow_id is null
       and t.state not in ('succeeded', 'dead', 'expired', 'cancelled')
  ) then
    return -2;
  end if;
  picked := array(
    with recursive anew (step) as (
      select s.step
        from flow_steps s
        cross join lateral (select state from tasks where id = s.task_id offset 0) t
       where s.flow_id = of_flow and s.kind = 'step'
         and (s.name = from_step or (t.state in ('dead', 'expired', 'cancelled') and coalesce(s.on_failure, '') <> 'ignore'))
      union
      select n from anew a
        join flow_steps s on s.flow_id = of_flow and s.step = a.step
        cross join unnest(s.next) as n
    )
    select step from anew order by step);
  if cardinality(picked) = 0 then return 0; end if;
  if f.business_key is not null then
    perform from flow_keys k where k.business_type = f.business_type and k.business_key = f.business_key for update;
    insert into flow_keys as k (business_type, business_key, flow_id) values (f.business_type, f.business_key, of_flow)
    on conflict (business_type, business_key) do update set flow_id = excluded.flow_id
      where k.flow_id = excluded.flow_id
         or not exists (select from flows h where h.id = k.flow_id and h.state not in ('failed', 'cancelled'));
    if not found then return -1; end if;
  end if;
  with letter as (
    update dead_letters l
       set state = 'discarded', closed_at = clock_timestamp(), closed_by = by_actor,
           close_reason = left('its step was made anew: ' || coalesce(why, 'the flow was retried'), 500)
     where l.task_id = any(array(select s.task_id from flow_steps s where s.flow_id = of_flow and s.step = any(picked)))
       and l.state = 'open'
    returning l.group_id
  )
  update failure_groups g
     set open_letters = g.open_letters - c.n
    from (select group_id, count(*)::integer as n from letter where group_id is not null group by group_id) c
   where g.id = c.group_id;
  before := f.steps_open;
  update flows w
     set state = 'running', finished_at = null, is_stopped = false, steps_failed = 0, cancelled_by = null, cancel_reason = null, phase = 'steps'
   where w.id = of_flow;
  perform remake_steps(of_flow, picked);
  return (select w.steps_open - before from flows w where w.id = of_flow);
end $$;
