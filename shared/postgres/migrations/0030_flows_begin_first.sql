-- Nothing of a nested flow starts before the flow does.
-- breaking: no
--
-- Until now a blocked step that was cancelled by hand let those after it start, where its failure is ignored, although its flow waited for its turn;
-- so did a signal. Cancelled, failed or replayed then, such a flow was counted wrongly: it stayed open for ever, or could not be cancelled.
--
-- And what is made anew waits no more for a nested flow whose failure was ignored and that was retried by itself: that one tells nobody of its end.

-- True where a flow that has nothing open any more has succeeded, whatever its rules: nothing of it failed, and nobody waits for its end.
create function flow_is_plain(f flows) returns boolean language sql immutable as $$
  select f.parent_id is null and f.phase = 'steps' and f.steps_failed = 0 and not f.is_stopped and f.cancelled_by is null
         and not f.is_undoing and f.finished_at is null
$$;

-- Steps of flows have ended: moves their flows on, those around them where they end, and those nested in them whose turn has come. Step -2 is
-- none: the flow is only to end where nothing of it is open. Of a nested flow nothing starts before it begins: a blocked step that was cancelled by
-- hand, and whose failure is ignored, lowers what waits for it, and no more. Called in the statement that ended their tasks, and read by it, else
-- Postgres leaves it out.
create or replace function end_steps(of_flows uuid[], of_steps integer[], of_states text[], swept_in interval default '10 s')
returns table (task_id uuid, type text, queue text, priority smallint, generation integer, outbox_id bigint)
language plpgsql strict as $$
#variable_conflict use_column
declare
  failing       record;
  gone          integer;
  reaching      record;
  ready_flows   uuid[] := '{}';
  ready_steps   integer[] := '{}';
  plain         uuid[] := '{}';
  closing_flows uuid[];
  held_flows    uuid[];
  is_clean      boolean;
  closing       uuid;
  starting      integer[];
  undoing       uuid[];
begin
  perform lock_flows(of_flows);
  loop
    -- A nested flow begins with its step -1: before that, others of it can only have been cancelled by hand.
    is_clean := '{succeeded}' @> of_states;
    with counted as (
      update flows f
         set steps_open = f.steps_open - cardinality(array_positions(of_flows, f.id)),
             started_at = case when f.state = 'pending' and not flow_begins(f, of_steps[array_position(of_flows, f.id)]) then f.started_at
                               else coalesce(f.started_at, clock_timestamp()) end,
             -- as `close_phase` does, of what there is nothing to be found out about
             finished_at = case when is_clean and flow_is_plain(f) and f.steps_open = cardinality(array_positions(of_flows, f.id))
                                then clock_timestamp() else f.finished_at end,
             state = case when is_clean and flow_is_plain(f) and f.steps_open = cardinality(array_positions(of_flows, f.id)) then 'succeeded'
                          when f.state = 'pending' and flow_begins(f, of_steps[array_position(of_flows, f.id)]) then 'running'
                          else f.state end
       where f.id = any(of_flows)
      returning f.id, f.steps_open, f.parent_id is not null and f.state = 'pending' as is_held,
                f.parent_id is null and f.finished_at is not null as is_over
    )
    select coalesce(array_agg(c.id order by c.id) filter (where c.steps_open = 0 and not c.is_over), '{}'),
           coalesce(array_agg(c.id) filter (where c.is_held), '{}')
      into closing_flows, held_flows
      from counted c;

    -- What failed, and what its flow does about it.
    if not is_clean then
      for failing in
        select f.id, count(*) as n, bool_or(coalesce(s.on_failure, f.on_failure) <> 'continue') as stops,
               array_agg(s.step) as steps, (array_agg(s.name || ' is ' || e.state order by s.step))[1] as because
          from unnest(of_flows, of_steps, of_states) as e (flow_id, step, state)
          cross join lateral (select * from flow_steps w where w.flow_id = e.flow_id and w.step = e.step offset 0) s
          cross join lateral (select * from flows w where w.id = e.flow_id offset 0) f
         where e.state <> 'succeeded' and s.kind = 'step' and coalesce(s.on_failure, '') <> 'ignore'
         group by f.id
         order by f.id
      loop
        update flows f set steps_failed = f.steps_failed + failing.n, is_stopped = f.is_stopped or failing.stops where f.id = failing.id;
        gone := cancel_blocked(failing.id, case when not failing.stops then failing.steps end, failing.because);
        update flows f set steps_open = f.steps_open - gone where f.id = failing.id;
      end loop;
      closing_flows := array(select f.id from flows f where f.id = any(of_flows) and f.steps_open = 0 order by f.id);
    end if;

    -- What waited for those that succeeded, or whose failure is ignored.
    with usual as (
      select not exists (select from queues q where q.mode <> 'open' or q.fair_by is not null) as is_plain
    ), arrived as (
      select a.flow_id, a.step, sum(a.n)::integer as n
        from (
          select e.flow_id, unnest(s.next) as step, 1 as n
            from unnest(of_flows, of_steps, of_states) as e (flow_id, step, state)
            cross join lateral (select * from flow_steps f where f.flow_id = e.flow_id and f.step = e.step offset 0) s
           where e.state = 'succeeded' or s.on_failure = 'ignore'
          union all
          -- what was held until its flow begins
          select e.flow_id, h.step, 0
            from unnest(of_flows, of_steps) as e (flow_id, step)
            cross join lateral (
              select f.step from flow_steps f
               where f.flow_id = e.flow_id and f.kind = 'step' and (f.waits_for = 0 or (f.waits_for = 1 and f.signal_ms is not null))
              offset 0
            ) h
           where e.step = -1
        ) a
       group by a.flow_id, a.step
    ), reached as (
      select k.flow_id, k.step, k.task_id, k.child_id, k.waits_for - a.n as waits_for, k.signal, k.signal_ms,
             a.flow_id = any(held_flows) as is_held,
             k.child_id is null and k.pieces is null and k.delay_ms is null and (select is_plain from usual) as is_plain
        from arrived a
        cross join lateral (select * from flow_steps w where w.flow_id = a.flow_id and w.step = a.step offset 0) k
       where k.flow_id = a.flow_id and k.step = a.step
    ), lowered as (
      -- but for those that may start now: nobody asks for their counter any more
      update flow_steps s
         set waits_for = l.waits_for
        from (select * from reached where waits_for > 0 or is_held order by flow_id, step) l
       where s.flow_id = l.flow_id and s.step = l.step
    ), timed as (
      insert into flow_timers (flow_id, step, at)
      select l.flow_id, l.step, clock_timestamp() + l.signal_ms * interval '1 ms'
        from reached l
       where l.waits_for = 1 and l.signal_ms is not null and not l.is_held
         and not exists (select from flow_signals g where g.flow_id = l.flow_id and g.name = l.signal)
       order by l.flow_id, l.step
      on conflict (flow_id, step) do update set at = excluded.at
    )
    select array_agg(l.flow_id) filter (where not l.is_plain and l.child_id is null) as flows,
           array_agg(l.step) filter (where not l.is_plain and l.child_id is null) as steps,
           array_agg(l.task_id) filter (where l.is_plain) as plain, array_agg(l.child_id) filter (where l.child_id is not null) as begun
      into reaching
      from reached l
     where l.waits_for = 0 and not l.is_held;
    ready_flows := ready_flows || reaching.flows;
    ready_steps := ready_steps || reaching.steps;
    plain := plain || reaching.plain;

    undoing := '{}';
    foreach closing in array closing_flows loop
      starting := close_phase(closing);
      continue when starting = '{}';
      ready_flows := ready_flows || array_fill(closing, array[cardinality(starting)]);
      ready_steps := ready_steps || starting;
      undoing := undoing || array(
        select s.child_id from flow_steps s where s.flow_id = closing and s.step = any(starting) and s.child_id is not null);
    end loop;

    exit when closing_flows = '{}' and reaching.begun is null;
    with told as (
      update flows f
         set is_awaited = false
       where f.id = any(closing_flows) and f.is_awaited and f.steps_open = 0 and f.finished_at is not null
      returning f.id, f.parent_id, f.parent_step, f.is_undoing, f.undone_at
    ), next as (
      select t.parent_id as flow_id, t.parent_step as step, e.state
        from told t
        cross join lateral state_of_step(null, t.id) e
       where not t.is_undoing
      union all
      select t.parent_id, u.step, case when t.undone_at is null then 'dead' else 'succeeded' end
        from told t
        cross join lateral (
          select step from flow_steps w where w.flow_id = t.parent_id and w.kind = 'undo' and w.child_id = t.id offset 0
        ) u
       where t.is_undoing
      union all
      select u.id, -2, 'succeeded' from unnest(undoing) as u (id)
      union all
      select c.id, -1, 'succeeded'
        from unnest(reaching.begun) as b (id)
        cross join lateral (select id from flows where id = b.id and state = 'pending' offset 0) c
    )
    select coalesce(array_agg(n.flow_id), '{}'), array_agg(n.step), array_agg(n.state) into of_flows, of_steps, of_states from next n;
    exit when of_flows = '{}';
  end loop;
  if ready_flows <> '{}' then return query select * from unblock_steps(ready_flows, ready_steps, swept_in); end if;
  if plain = '{}' then return; end if;
  -- As unblock_steps does, of tasks of which there is nothing to be found out: half of what this costs a chain.
  return query
  with moved as (
    update tasks t
       set state = 'pending', invited_at = clock_timestamp()
     where t.id = any(plain) and t.state = 'blocked'
    returning t.id, t.type, t.queue, t.priority, t.generation
  ), invited as (
    insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
    select clock_timestamp() + swept_in, array_agg(m.id), array_agg(m.type), array_agg(m.queue), array_agg(m.priority),
           array_agg(m.generation)
      from moved m
    having count(*) > 0
    returning id
  )
  select m.id, m.type, m.queue, m.priority, m.generation, i.id from moved m cross join invited i;
end $$;

-- Something came from outside for a flow: once by each name. Gives what may start now. True in `is_new` for the first of that name.
create or replace function signal_flow(of_flow uuid, signal_name text, payload bytea, sender text, swept_in interval default '10 s')
returns table (is_new boolean, task_id uuid, type text, queue text, priority smallint, generation integer, outbox_id bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  ready integer[];
begin
  perform lock_flows(array[of_flow]);
  insert into flow_signals (flow_id, name, data, sent_by) values (of_flow, signal_name, payload, sender) on conflict do nothing;
  if not found then
    return query select false, null::uuid, null::text, null::text, null::smallint, null::integer, null::bigint;
    return;
  end if;
  with lowered as (
    update flow_steps s set waits_for = s.waits_for - 1
     where s.flow_id = of_flow and s.signal = signal_name and s.kind = 'step' and s.waits_for > 0
    returning s.step, s.waits_for
  ), untimed as (
    delete from flow_timers m using lowered l where m.flow_id = of_flow and m.step = l.step
  )
  select array_agg(l.step) into ready
    from lowered l
   where l.waits_for = 0 and not exists (select from flows f where f.id = of_flow and f.parent_id is not null and f.state = 'pending');
  return query
  select true, u.task_id, u.type, u.queue, u.priority, u.generation, u.outbox_id
    from (values (1)) as one (n)
    left join start_steps(array_fill(of_flow, array[coalesce(cardinality(ready), 0)]), coalesce(ready, '{}'), swept_in) u on true;
end $$;

-- Steps that have ended are made anew, as new tasks, blocked until what they wait for has succeeded. A nested flow that failed, and that nothing
-- else is in the way of, goes on where it failed; any other, and those of `forced`, begins anew. Gives how many tasks were made. The flow is
-- locked and has not ended.
create or replace function remake_steps(of_flow uuid, picked integer[], forced integer[], by_actor text, because text) returns integer
language plpgsql as $$
declare
  made   record;
  nested record;
  ready  integer[];
  again  integer[] := '{}';
  total  integer;
begin
  if cardinality(picked) = 0 then return 0; end if;
  perform close_letters(array(
    select s.task_id from flow_steps s where s.flow_id = of_flow and s.step = any(picked) and s.task_id is not null), by_actor, because);
  delete from flow_timers m where m.flow_id = of_flow and m.step = any(picked);
  with old as (
    select s.step, s.task_id as old_id, uuid_v7() as id from flow_steps s
     where s.flow_id = of_flow and s.step = any(picked) and s.task_id is not null
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
  total := coalesce(cardinality(made.ids), 0);
  if total > 0 then perform count_in_ledger('accepted', made.ids, made.types); end if;
  update flows w set steps_open = w.steps_open + total where w.id = of_flow;

  for nested in
    select s.step, s.child_id,
           c.state in ('failed', 'cancelled') and c.started_at is not null and c.phase <> 'undo' and not s.step = any(forced)
             and steps_to_retry(c.id, null) <> '{}' as goes_on
      from flow_steps s
      cross join lateral (select * from flows where id = s.child_id offset 0) c
     where s.flow_id = of_flow and s.step = any(picked) and s.child_id is not null
     order by s.step
  loop
    update flow_steps s set why = null where s.flow_id = of_flow and s.step = nested.step;
    update flows w set steps_open = w.steps_open + 1 where w.id = of_flow;
    if nested.goes_on then again := again || nested.step; else total := total + restart_flow(nested.child_id, by_actor, because); end if;
  end loop;

  with counted as (
    select n.step, count(*)::integer as n
      from flow_steps s
      cross join unnest(s.next) as n (step)
      cross join lateral (
        select state from state_of_step(s.task_id, s.child_id)
        union all
        select f.state::text from flows f where s.kind = 'begin' and f.id = of_flow
      ) t
     where s.flow_id = of_flow and (s.kind = 'step' or (s.kind = 'begin' and t.state = 'pending'))
       -- a task that has left the flow tells nobody of its end
       and (s.task_id is null or (select w.flow_id from tasks w where w.id = s.task_id) is not null)
       -- nor does a flow that was retried by itself, since its failure had been ignored
       and (s.child_id is null or coalesce(s.on_failure, '') <> 'ignore' or (select w.is_awaited from flows w where w.id = s.child_id))
       and not (t.state = 'succeeded' or (coalesce(s.on_failure, '') = 'ignore' and t.state in ('dead', 'expired', 'cancelled', 'failed')))
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
  select coalesce(array_agg(r.step), '{}') into ready from recounted r where r.waits_for = 0;

  for nested in
    select s.step, s.child_id from flow_steps s where s.flow_id = of_flow and s.step = any(again) order by s.step
  loop
    if nested.step = any(ready) then
      ready := array_remove(ready, nested.step);
      update flows w set is_awaited = true where w.id = nested.child_id;
      total := total + resume_flow(nested.child_id, steps_to_retry(nested.child_id, null), '{}', by_actor, because);
    else
      total := total + restart_flow(nested.child_id, by_actor, because);
    end if;
  end loop;
  perform from start_steps(array_fill(of_flow, array[cardinality(ready)]), ready, interval '0');
  return total;
end $$;
