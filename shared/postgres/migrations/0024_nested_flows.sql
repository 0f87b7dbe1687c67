-- Flows as steps of other flows (docs/decisions/0030).
-- breaking: yes
--
-- An older producer would list nested flows with all others, and sweep them from under the flow that waits for them.
--
-- Order of locks: tasks that are not blocked, then outermost flows in id order (`lock_flows`), then all else of theirs. Whoever holds the outermost
-- flow holds all that is nested in it: a nested flow moves the one around it on, which begins others, and no order of ids would fit both ways.

-- parent_id, parent_step  the step of another flow that it is
-- root_id                 the outermost flow around it; null where it is that itself
-- is_awaited              its end is still to be told to the flow around it
-- is_undoing, undone_at   the flow around it has what it did undone, and since when all of that is. Its state stays what it was
alter table flows
  add column parent_id   uuid,
  add column parent_step integer,
  add column root_id     uuid,
  add column is_awaited  boolean not null default false,
  add column is_undoing  boolean not null default false,
  add column undone_at   timestamptz;

-- child_id      the flow that the step is, or that it undoes, in place of a task
-- kind `begin`  step -1 of a nested flow: the ones that wait for nothing else wait for this
alter table flow_steps
  add column child_id uuid,
  drop constraint flow_steps_kind_check,
  add constraint flow_steps_kind_check check (kind in ('step', 'undo', 'failure', 'begin'));

-- Lists show a nested flow only below the one that it belongs to, and it goes with that one.
drop index flows_business_key, flows_name, flows_finished_at, flows_state;
create index flows_business_key on flows (business_key, id) where business_key is not null and parent_id is null;
create index flows_name on flows (name, id) where parent_id is null;
create index flows_finished_at on flows (finished_at) where finished_at is not null and parent_id is null;
create index flows_state on flows (state, id) where state <> 'succeeded' and parent_id is null;
create index flows_parent on flows (parent_id, id) where parent_id is not null;

-- Locks flows, with all that they are nested in and all that is nested in them.
create function lock_flows(of_flows uuid[]) returns void language plpgsql as $$
begin
  perform from flows f
    where f.id = any(array(select coalesce(w.root_id, w.id) from flows w where w.id = any(of_flows)))
    order by f.id for no key update;
end $$;

-- Locks the flows of tasks that are blocked, and gives those that are so still. Seen anew once the flows are held: a task whose turn has come
-- meanwhile may be in the hands of somebody who wants its flow.
create function hold_blocked(of_tasks uuid[]) returns uuid[] language plpgsql as $$
begin
  perform lock_flows(array(select t.flow_id from tasks t where t.id = any(of_tasks) and t.state = 'blocked'));
  return array(select t.id from tasks t where t.id = any(of_tasks) and t.state = 'blocked');
end $$;

-- Flows and all that is nested in them.
create function flows_within(of_flows uuid[]) returns uuid[] language sql stable as $$
  with recursive tree (id) as (
    select u.id from unnest(of_flows) as u (id)
    union all
    select c.id from tree t cross join lateral (select f.id from flows f where f.parent_id = t.id offset 0) c
  )
  select array(select t.id from tree t)
$$;

-- How a step stands: the state of its task, or of the flow that it is. That one has succeeded also where it is partial: it said itself that it
-- goes on without what failed. `blocked`: its turn has not come.
create function state_of_step(of_task uuid, of_child uuid) returns table (state text) language sql stable as $$
  select t.state::text from tasks t where t.id = of_task
  union all
  select case f.state when 'partial' then 'succeeded' when 'pending' then 'blocked' else f.state::text end from flows f where f.id = of_child
  offset 0
$$;

-- What a flow gave, as JSON text: what its last step gave; where it has several an object with those that succeeded by their names, groups left
-- out. Null where it gave nothing.
create function flow_result(of_flow uuid) returns text language plpgsql stable as $$
declare
  last record;
begin
  select count(*) as steps, array_agg(l.step order by l.step) filter (where l.state = 'succeeded') as given,
         array_agg(l.name order by l.step) filter (where l.state = 'succeeded') as names
    into last
    from (
      select s.step, s.name, t.state
        from flow_steps s
        cross join lateral state_of_step(s.task_id, s.child_id) t
       where s.flow_id = of_flow and s.kind = 'step' and s.next = '{}' and s.member is null
       order by s.step
       limit 100
    ) l;
  if last.given is null then return null; end if;
  if last.steps = 1 then return step_result(of_flow, last.given[1], '{}'); end if;
  return '{' || (select string_agg(to_json(u.name)::text || ':' || step_result(of_flow, u.step, '{}'), ',' order by u.place)
                   from unnest(last.names, last.given) with ordinality as u (name, step, place)) || '}';
end $$;

-- The result of a step as JSON text; `null` where it has none. `path`: where in it.
create or replace function step_result(of_flow uuid, of_step integer, path text[]) returns text language plpgsql stable as $$
declare
  s     record;
  found text;
begin
  select f.task_id, f.child_id into s from flow_steps f where f.flow_id = of_flow and f.step = of_step;
  if s.child_id is null then
    found := result_text(s.task_id);
  elsif exists (select from flows c where c.id = s.child_id and c.state in ('succeeded', 'partial')) then
    found := flow_result(s.child_id);
  end if;
  if found is not null and cardinality(path) > 0 then found := (found::json #> path)::text; end if;
  return coalesce(found, 'null');
end $$;

-- What a reference in the input of a step stands for, as JSON text. `up`: so many flows around this one it is meant in.
create or replace function flow_reference(of_flow uuid, ref jsonb) returns text language plpgsql stable as $$
declare
  path  text[] := array(select jsonb_array_elements_text(ref -> 'path'));
  found text;
begin
  for _level in 1 .. coalesce((ref ->> 'up')::integer, 0) loop
    of_flow := (select f.parent_id from flows f where f.id = of_flow);
  end loop;
  if ref ? 'step' then
    return step_result(of_flow, (ref ->> 'step')::integer, path);
  elsif ref ? 'object' then
    -- The input of a step that says nothing of its input: the result of the one before it, where that is an object.
    found := step_result(of_flow, (ref ->> 'object')::integer, path);
    if json_typeof(found::json) = 'object' then return found; end if;
    return '{' || to_json(ref ->> 'name')::text || ':' || found || '}';
  elsif ref ? 'group' then
    return group_result(of_flow, ref ->> 'group', path, 1048576);
  elsif ref ? 'signal' then
    select convert_from(g.data, 'UTF8') into found
      from flow_signals g where g.flow_id = of_flow and g.name = ref ->> 'signal';
    if found is not null and cardinality(path) > 0 then found := (found::json #> path)::text; end if;
    return coalesce(found, 'null');
  elsif ref ? 'failed' then
    select '[' || coalesce(string_agg(json_strip_nulls(json_build_object(
             'step', s.name, 'taskId', s.task_id, 'flowId', s.child_id, 'state', t.state))::text, ',' order by s.step), '') || ']' into found
      from flow_steps s
      cross join lateral state_of_step(s.task_id, s.child_id) t
     where s.flow_id = of_flow and (s.kind = 'step' or (s.kind = 'undo' and s.task_id is not null)) and s.why is null
       and t.state in ('dead', 'expired', 'cancelled', 'failed') and coalesce(s.on_failure, '') <> 'ignore';
    return found;
  end if;
  raise exception 'a step of flow % has a reference of no kind', of_flow;
end $$;

-- Starts steps that wait for nothing any more, tasks and nested flows; see `unblock_steps`. The flows are locked.
create function start_steps(of_flows uuid[], of_steps integer[], swept_in interval)
returns table (task_id uuid, type text, queue text, priority smallint, generation integer, outbox_id bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  begun uuid[];
begin
  if cardinality(of_flows) = 0 then return; end if;
  return query select * from unblock_steps(of_flows, of_steps, swept_in);
  select array_agg(c.id) into begun
    from unnest(of_flows, of_steps) as r (flow_id, step)
    cross join lateral (select child_id from flow_steps f where f.flow_id = r.flow_id and f.step = r.step offset 0) s
    cross join lateral (select id from flows where id = s.child_id and state = 'pending' offset 0) c;
  if begun is null then return; end if;
  update flows f set state = 'running', started_at = coalesce(f.started_at, clock_timestamp()) where f.id = any(of_flows) and f.state = 'pending';
  return query
  select * from end_steps(begun, array_fill(-1, array[cardinality(begun)]), array_fill('succeeded'::text, array[cardinality(begun)]), swept_in);
end $$;

-- Cancels nested flows whose turn has not come, with all that is nested in them. Those around them count them no more. They are locked.
create function drop_flows(of_flows uuid[], because text, by_actor text default 'flow') returns void language plpgsql as $$
declare
  tree      uuid[] := flows_within(of_flows);
  cancelled uuid[];
  types     text[];
begin
  with gone as (
    update tasks t
       set state = 'cancelled', generation = t.generation + 1, finished_at = clock_timestamp()
     where t.id = any(array(
             select s.task_id
               from unnest(tree) as u (id)
               cross join lateral (select w.task_id from flow_steps w where w.flow_id = u.id and w.task_id is not null offset 0) s))
       and t.state = 'blocked'
    returning t.id, t.type, t.flow_id, t.flow_step
  ), explained as (
    update flow_steps s set why = because from gone g where s.flow_id = g.flow_id and s.step = g.flow_step
  )
  select array_agg(g.id), array_agg(g.type) into cancelled, types from gone g;
  if cancelled is not null then perform count_in_ledger('cancelled', cancelled, types); end if;
  update flow_steps s set why = because
    from (select f.parent_id, f.parent_step from flows f where f.id = any(tree) and f.parent_id = any(tree)) n
   where s.flow_id = n.parent_id and s.step = n.parent_step and s.flow_id = any(tree);
  update flows f
     set state = 'cancelled', finished_at = clock_timestamp(), steps_open = 0, is_awaited = false, cancelled_by = by_actor, cancel_reason = because
   where f.id = any(tree);
end $$;

-- Cancels what a flow has blocked: all of it, or what comes after some steps. Gives how many. The flow is locked.
create or replace function cancel_blocked(of_flow uuid, after_steps integer[], because text) returns integer language plpgsql as $$
declare
  picked    integer[];
  cancelled uuid[];
  types     text[];
  dropped   integer[];
  children  uuid[];
begin
  if after_steps is null then
    picked := array(select s.step from flow_steps s where s.flow_id = of_flow and s.kind = 'step' order by s.step);
  else
    picked := array(
      with recursive below (step) as (
        select n from flow_steps s cross join unnest(s.next) as n where s.flow_id = of_flow and s.step = any(after_steps)
        union
        select n from below b
          join flow_steps s on s.flow_id = of_flow and s.step = b.step
          cross join unnest(s.next) as n
      )
      select step from below order by step);
  end if;
  with gone as (
    update tasks t
       set state = 'cancelled', generation = t.generation + 1, finished_at = clock_timestamp()
     where t.id = any(array(
             select s.task_id from flow_steps s where s.flow_id = of_flow and s.step = any(picked) and s.task_id is not null))
       and t.state = 'blocked'
    returning t.id, t.type, t.flow_step
  ), explained as (
    update flow_steps s set why = because from gone g where s.flow_id = of_flow and s.step = g.flow_step
  )
  select array_agg(g.id), array_agg(g.type) into cancelled, types from gone g;
  if cancelled is not null then perform count_in_ledger('cancelled', cancelled, types); end if;
  select array_agg(s.step), array_agg(s.child_id) into dropped, children
    from flow_steps s
    cross join lateral (select id from flows where id = s.child_id and state = 'pending' offset 0) c
   where s.flow_id = of_flow and s.step = any(picked) and s.child_id is not null;
  if dropped is not null then
    perform drop_flows(children, because);
    update flow_steps s set why = because where s.flow_id = of_flow and s.step = any(dropped);
  end if;
  if cancelled is null and dropped is null then return 0; end if;
  delete from flow_timers m where m.flow_id = of_flow and m.step = any(picked);
  return coalesce(cardinality(cancelled), 0) + coalesce(cardinality(dropped), 0);
end $$;

-- Makes the tasks of steps that have a `spec`, blocked, and has nested flows that are to be undone begin with that once step -2 of them is said
-- to have ended. The flow is locked.
create or replace function make_step_tasks(of_flow uuid, of_steps integer[]) returns void language plpgsql as $$
declare
  made  uuid[];
  types text[];
begin
  with chosen as (
    update flow_steps s set task_id = uuid_v7()
     where s.flow_id = of_flow and s.step = any(of_steps) and s.child_id is null
    returning s.*
  ), accepted as (
    insert into tasks (id, accepted_at, state, max_attempts, priority, type, queue, business_key, publisher, tags, input, concurrency_key,
                       rate_key, flow_id, flow_step)
    select c.task_id, clock_timestamp(), 'blocked', (c.spec ->> 'maxAttempts')::integer, (c.spec ->> 'priority')::smallint,
           c.spec ->> 'type', c.spec ->> 'queue', f.business_key, f.created_by, f.tags,
           convert_to(coalesce(c.spec ->> 'input', '{}'), 'UTF8'), c.spec ->> 'concurrencyKey', c.spec ->> 'rateKey', of_flow, c.step
      from chosen c
      join flows f on f.id = of_flow
     order by c.task_id
    returning id, type
  )
  select array_agg(a.id), array_agg(a.type) into made, types from accepted a;
  perform count_in_ledger('accepted', coalesce(made, '{}'), coalesce(types, '{}'));
  update flows f
     set is_undoing = true, phase = 'undo', is_awaited = true, steps_open = f.steps_open + 1
   where f.id = any(array(
           select s.child_id from flow_steps s where s.flow_id = of_flow and s.step = any(of_steps) and s.child_id is not null));
  update flows f set steps_open = f.steps_open + cardinality(of_steps) where f.id = of_flow;
end $$;

-- What a flow does once nothing of it is open: the next level is undone, the step for failures is made, or it ends. Gives steps that are to
-- start now. The flow is locked.
create or replace function close_phase(of_flow uuid) returns integer[] language plpgsql as $$
declare
  f        flows;
  steps    integer[];
  is_stuck boolean;
begin
  select * into f from flows where id = of_flow;
  if f.is_undoing or (f.phase <> 'failure' and f.on_failure = 'compensate' and (f.is_stopped or f.cancelled_by is not null)) then
    is_stuck := f.phase = 'undo' and exists (
      select from flow_steps u
       where u.flow_id = of_flow and u.kind = 'undo'
         and ((u.task_id is not null and (select t.state from tasks t where t.id = u.task_id) <> 'succeeded')
              or (u.child_id is not null
                  and exists (select from flows c where c.id = u.child_id and c.is_undoing and c.undone_at is null)))
    );
    if not is_stuck then
      -- A nested flow that has no task that undoes it as a whole is undone step by step, whatever became of it, unless it has done so itself.
      with open as (
        select u.step, u.level
          from flow_steps u
          join flow_steps s on s.flow_id = of_flow and s.step = u.undo_of
          cross join lateral state_of_step(s.task_id, s.child_id) t
         where u.flow_id = of_flow and u.kind = 'undo' and u.task_id is null
           and case when u.child_id is null then t.state = 'succeeded'
                    else exists (select from flows c where c.id = u.child_id and c.started_at is not null and c.phase <> 'undo') end
      )
      select array_agg(o.step) into steps from open o where o.level = (select max(level) from open);
      if steps is not null then
        update flows set phase = 'undo' where id = of_flow;
        perform make_step_tasks(of_flow, steps);
        return steps;
      end if;
    end if;
  end if;
  if f.steps_failed > 0 and f.cancelled_by is null and not f.is_undoing then
    select array_agg(s.step) into steps
      from flow_steps s where s.flow_id = of_flow and s.kind = 'failure' and s.task_id is null;
    if steps is not null then
      update flows set phase = case phase when 'undo' then 'undo' else 'failure' end where id = of_flow;
      perform make_step_tasks(of_flow, steps);
      return steps;
    end if;
  end if;
  update flows
     set finished_at = coalesce(finished_at, clock_timestamp()),
         undone_at = case when is_undoing and not is_stuck then clock_timestamp() end,
         state = case when cancelled_by is not null then 'cancelled' when is_stopped then 'failed' when steps_failed > 0 then 'partial'
                      else 'succeeded' end::flow_state
   where id = of_flow;
  return '{}';
end $$;

-- True where this step is the first of a flow to end, or to begin: of a nested one its step -1, of any other any, but not -2.
create function flow_begins(f flows, step integer) returns boolean language sql immutable as $$
  select case when f.parent_id is null then step <> -2 else step = -1 end
$$;

-- Steps of flows have ended: moves their flows on, those around them where they end, and those nested in them whose turn has come. Step -2 is
-- none: the flow is only to end where nothing of it is open. Called in the statement that ended their tasks, and read by it, else Postgres leaves it out.
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
  closing       uuid;
  starting      integer[];
  undoing       uuid[];
begin
  perform lock_flows(of_flows);
  loop
    -- A nested flow begins with its step -1: before that, others of it can only have been cancelled by hand.
    with counted as (
      update flows f
         set steps_open = f.steps_open - cardinality(array_positions(of_flows, f.id)),
             started_at = case when f.state = 'pending' and not flow_begins(f, of_steps[array_position(of_flows, f.id)]) then f.started_at
                               else coalesce(f.started_at, clock_timestamp()) end,
             state = case when f.state = 'pending' and flow_begins(f, of_steps[array_position(of_flows, f.id)]) then 'running' else f.state end
       where f.id = any(of_flows)
      returning f.id, f.steps_open
    )
    select coalesce(array_agg(c.id order by c.id) filter (where c.steps_open = 0), '{}') into closing_flows from counted c;

    -- What failed, and what its flow does about it.
    if not '{succeeded}' @> of_states then
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
      select e.flow_id, n.step, count(*)::integer as n
        from unnest(of_flows, of_steps, of_states) as e (flow_id, step, state)
        cross join lateral (select * from flow_steps f where f.flow_id = e.flow_id and f.step = e.step offset 0) s
        cross join unnest(s.next) as n (step)
       where e.state = 'succeeded' or s.on_failure = 'ignore'
       group by e.flow_id, n.step
    ), reached as (
      select k.flow_id, k.step, k.task_id, k.child_id, k.waits_for - a.n as waits_for, k.signal, k.signal_ms,
             k.child_id is null and k.pieces is null and k.delay_ms is null and (select is_plain from usual) as is_plain
        from arrived a
        cross join lateral (select * from flow_steps w where w.flow_id = a.flow_id and w.step = a.step offset 0) k
       where k.flow_id = a.flow_id and k.step = a.step
    ), lowered as (
      -- but for those that may start now: nobody asks for their counter any more
      update flow_steps s
         set waits_for = l.waits_for
        from (select * from reached where waits_for > 0 order by flow_id, step) l
       where s.flow_id = l.flow_id and s.step = l.step
    ), timed as (
      insert into flow_timers (flow_id, step, at)
      select l.flow_id, l.step, clock_timestamp() + l.signal_ms * interval '1 ms'
        from reached l
       where l.waits_for = 1 and l.signal_ms is not null
         and not exists (select from flow_signals g where g.flow_id = l.flow_id and g.name = l.signal)
       order by l.flow_id, l.step
      on conflict (flow_id, step) do update set at = excluded.at
    )
    select array_agg(l.flow_id) filter (where not l.is_plain and l.child_id is null) as flows,
           array_agg(l.step) filter (where not l.is_plain and l.child_id is null) as steps,
           array_agg(l.task_id) filter (where l.is_plain) as plain, array_agg(l.child_id) filter (where l.child_id is not null) as begun
      into reaching
      from reached l
     where l.waits_for = 0;
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
  select array_agg(l.step) into ready from lowered l where l.waits_for = 0;
  return query
  select true, u.task_id, u.type, u.queue, u.priority, u.generation, u.outbox_id
    from (values (1)) as one (n)
    left join start_steps(array_fill(of_flow, array[coalesce(cardinality(ready), 0)]), coalesce(ready, '{}'), swept_in) u on true;
end $$;

-- Ends steps whose signal has not come in time, at most `most`. Gives how many.
create or replace function expire_flow_timers(most integer) returns integer language plpgsql as $$
declare
  of_flows uuid[];
  of_steps integer[];
  free     uuid[];
  ended    record;
  dropped  record;
begin
  select array_agg(p.flow_id), array_agg(p.step) into of_flows, of_steps
    from (select m.flow_id, m.step from flow_timers m where m.at <= clock_timestamp() order by m.at limit most for update skip locked) p;
  if of_flows is null then return 0; end if;
  -- A signal that comes now holds the flow and wants the timer: then it is left for the next round.
  free := array(
    select f.id from flows f
     where f.id = any(array(select coalesce(w.root_id, w.id) from flows w where w.id = any(of_flows)))
     order by f.id for no key update skip locked);
  select array_agg(p.flow_id), array_agg(p.step) into of_flows, of_steps
    from unnest(of_flows, of_steps) as p (flow_id, step)
   where (select coalesce(w.root_id, w.id) from flows w where w.id = p.flow_id) = any(free);
  if of_flows is null then return 0; end if;
  delete from flow_timers m
   using unnest(of_flows, of_steps) as p (flow_id, step)
   where m.flow_id = p.flow_id and m.step = p.step and m.flow_id = any(of_flows);
  with gone as (
    update tasks t
       set state = 'expired', generation = t.generation + 1, finished_at = clock_timestamp()
     where t.id = any(array(
             select s.task_id from unnest(of_flows, of_steps) as p (flow_id, step)
               cross join lateral (select * from flow_steps w where w.flow_id = p.flow_id and w.step = p.step offset 0) s))
       and t.state = 'blocked'
    returning t.id, t.type, t.flow_id, t.flow_step
  )
  select array_agg(g.id) as ids, array_agg(g.type) as types, array_agg(g.flow_id) as flows, array_agg(g.flow_step) as steps into ended
    from gone g;
  if ended.ids is not null then perform count_in_ledger('expired', ended.ids, ended.types); end if;
  select array_agg(c.id) as ids, array_agg(p.flow_id) as flows, array_agg(p.step) as steps into dropped
    from unnest(of_flows, of_steps) as p (flow_id, step)
    cross join lateral (select child_id from flow_steps w where w.flow_id = p.flow_id and w.step = p.step offset 0) s
    cross join lateral (select id from flows where id = s.child_id and state = 'pending' offset 0) c;
  if dropped.ids is not null then perform drop_flows(dropped.ids, 'its signal did not come in time'); end if;
  of_flows := coalesce(ended.flows, '{}') || dropped.flows;
  if of_flows = '{}' then return 0; end if;
  perform from end_steps(of_flows, coalesce(ended.steps, '{}') || dropped.steps,
                         array_fill('expired'::text, array[cardinality(of_flows)]), interval '0');
  return cardinality(of_flows);
end $$;

-- Cancels a flow and what is nested in it: at once what they have blocked. Gives the tasks that are under way, which are cancelled as any other;
-- null where the flow has ended, or was cancelled before.
create or replace function cancel_flow(of_flow uuid, by_actor text, why text) returns uuid[] language plpgsql as $$
declare
  f    flows;
  tree uuid[];
  each uuid;
  gone integer;
begin
  perform lock_flows(array[of_flow]);
  select * into f from flows w where w.id = of_flow;
  if f.id is null or f.finished_at is not null or f.cancelled_by is not null then return null; end if;
  if f.parent_id is not null and f.state = 'pending' then
    perform drop_flows(array[of_flow], coalesce(why, 'the flow was cancelled'), by_actor);
    perform from end_steps(array[f.parent_id], array[f.parent_step], array['cancelled'], interval '0');
    return '{}';
  end if;
  tree := array(
    select w.id from flows w
     where w.id = any(flows_within(array[of_flow])) and w.finished_at is null and w.cancelled_by is null
       and (w.id = of_flow or w.state = 'running'));
  update flows w set cancelled_by = by_actor, cancel_reason = why where w.id = any(tree);
  foreach each in array tree loop
    gone := cancel_blocked(each, null, 'the flow was cancelled');
    -- one more, which `end_steps` takes off again: it closes what has nothing open
    update flows w set steps_open = w.steps_open - gone + 1 where w.id = each;
  end loop;
  perform from end_steps(tree, array_fill(-2, array[cardinality(tree)]), array_fill('succeeded'::text, array[cardinality(tree)]), interval '0');
  return array(
    select t.id
      from unnest(tree) as u (id)
      cross join lateral (select w.task_id from flow_steps w where w.flow_id = u.id and w.kind = 'step' offset 0) s
      cross join lateral (
        select id from tasks where id = s.task_id and state in ('pending', 'scheduled', 'running', 'retrying') offset 0
      ) t
     order by 1);
end $$;

-- Closes the open dead letters of tasks in whose place others come. They are locked, or nobody else can have them.
create function close_letters(of_tasks uuid[], by_actor text, because text) returns void language sql as $$
  with letter as (
    update dead_letters l
       set state = 'discarded', closed_at = clock_timestamp(), closed_by = by_actor,
           close_reason = left('its step was made anew: ' || coalesce(because, 'the flow was retried'), 500)
     where l.task_id = any(of_tasks) and l.state = 'open'
    returning l.group_id
  )
  update failure_groups g
     set open_letters = g.open_letters - c.n
    from (select group_id, count(*)::integer as n from letter where group_id is not null group by group_id) c
   where g.id = c.group_id
$$;

-- Steps of a flow that failed or were cancelled, or are `from_step`, with all that come after them.
create function steps_to_retry(of_flow uuid, from_step text) returns integer[] language sql stable as $$
  select array(
    with recursive anew (step) as (
      select s.step
        from flow_steps s
        cross join lateral state_of_step(s.task_id, s.child_id) t
       where s.flow_id = of_flow and s.kind = 'step'
         and (s.name = from_step
              or (t.state in ('dead', 'expired', 'cancelled', 'failed') and coalesce(s.on_failure, '') <> 'ignore'))
      union
      select n from anew a
        join flow_steps s on s.flow_id = of_flow and s.step = a.step
        cross join unnest(s.next) as n
    )
    select step from anew order by step)
$$;

drop function remake_steps(uuid, integer[]);

-- Steps that have ended are made anew, as new tasks, blocked until what they wait for has succeeded. A nested flow that failed, and that nothing
-- else is in the way of, goes on where it failed; any other, and those of `forced`, begins anew. Gives how many tasks were made. The flow is
-- locked and has not ended.
create function remake_steps(of_flow uuid, picked integer[], forced integer[], by_actor text, because text) returns integer
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

-- Has a nested flow that has ended wait for its turn once more, with all of its steps made anew. Gives how many tasks were made.
create function restart_flow(of_flow uuid, by_actor text, because text) returns integer language plpgsql as $$
declare
  steps integer[] := array(select s.step from flow_steps s where s.flow_id = of_flow and s.kind = 'step' order by s.step);
begin
  perform close_letters(array(
    select s.task_id from flow_steps s where s.flow_id = of_flow and s.kind = 'undo' and s.task_id is not null), by_actor, because);
  update flow_steps s set task_id = null, earlier = s.earlier || s.task_id
   where s.flow_id = of_flow and s.kind = 'undo' and s.task_id is not null;
  -- what is open is step -1
  update flows w
     set state = 'pending', phase = 'steps', started_at = null, finished_at = null, steps_open = 1, steps_failed = 0, is_stopped = false,
         cancelled_by = null, cancel_reason = null, is_awaited = true, is_undoing = false, undone_at = null
   where w.id = of_flow;
  return remake_steps(of_flow, steps, steps, by_actor, because);
end $$;

-- Has a flow that has ended go on with `picked` made anew. Gives how many tasks were made.
create function resume_flow(of_flow uuid, picked integer[], forced integer[], by_actor text, because text) returns integer language plpgsql as $$
declare
  f flows;
begin
  select * into f from flows w where w.id = of_flow;
  update flows w
     set state = 'running', finished_at = null, is_stopped = false, steps_failed = 0, cancelled_by = null, cancel_reason = null, phase = 'steps'
   where w.id = of_flow;
  perform rejoin_flow(f);
  return remake_steps(of_flow, picked, forced, by_actor, because);
end $$;

-- A nested flow that had ended, as it was then, goes on: so does the flow around it, where it stands still for it. Where that has gone on without
-- it (its failure is ignored, what was done is undone, it was cancelled), it stays as it is.
create function rejoin_flow(c flows) returns void language plpgsql as $$
declare
  p flows;
  s flow_steps;
begin
  if c.parent_id is null or c.finished_at is null or c.is_awaited then return; end if;
  select * into p from flows w where w.id = c.parent_id;
  select * into s from flow_steps w where w.flow_id = c.parent_id and w.step = c.parent_step;
  if not c.is_undoing
     and (c.state not in ('failed', 'cancelled') or s.on_failure = 'ignore' or p.phase = 'undo' or p.cancelled_by is not null
          or (p.parent_id is not null and p.finished_at is not null and p.state in ('succeeded', 'partial'))) then
    return;
  end if;
  update flows w set is_awaited = true where w.id = c.id;
  perform reopen_flow(p.id, 1, (not c.is_undoing)::integer);
end $$;

-- `revived` tasks and nested flows of a flow live again, of which so many are `steps`: what was cancelled because of them is made anew.
create function reopen_flow(of_flow uuid, revived integer, steps integer) returns void language plpgsql as $$
declare
  f      flows;
  remade integer[];
begin
  select * into f from flows w where w.id = of_flow;
  update flows w
     set steps_open = w.steps_open + revived, steps_failed = w.steps_failed - steps, state = 'running', finished_at = null,
         phase = case when steps > 0 then 'steps' else w.phase end,
         is_stopped = exists (
           select from flow_steps s
             cross join lateral state_of_step(s.task_id, s.child_id) t
            where s.flow_id = of_flow and s.kind = 'step' and t.state in ('dead', 'expired', 'cancelled', 'failed') and s.why is null
              and coalesce(s.on_failure, w.on_failure) not in ('continue', 'ignore'))
   where w.id = of_flow;
  -- what undoes, and the step for failures, make a flow no other than it was
  if steps > 0 or f.is_undoing then perform rejoin_flow(f); end if;
  if steps = 0 or (select w.is_stopped from flows w where w.id = of_flow) then return; end if;
  remade := array(
    with recursive below (step) as (
      select n from flow_steps s
        cross join lateral state_of_step(s.task_id, s.child_id) t
        cross join unnest(s.next) as n
       where s.flow_id = of_flow and s.kind = 'step' and t.state in ('dead', 'expired', 'cancelled', 'failed') and s.why is null
         and coalesce(s.on_failure, '') <> 'ignore'
      union
      select n from below b
        join flow_steps s on s.flow_id = of_flow and s.step = b.step
        cross join unnest(s.next) as n
    )
    select s.step from flow_steps s
     where s.flow_id = of_flow and s.why is not null and not exists (select from below b where b.step = s.step));
  perform remake_steps(of_flow, remade, '{}', null, null);
end $$;

-- A flow that has ended goes on: what failed or was cancelled is made anew, and with `from_step` that step and all that come after it,
-- whatever became of them; so does a flow around it that failed with it. Open dead letters of tasks in whose place others come are closed. Gives
-- how many tasks were made; null where the flow, or one nested in it, has not ended, where what it did is undone, where the flow around it has gone
-- on with what it gave, or did not get to it; -1 where another flow is about the same thing by now; -2 while a step that was replayed by itself,
-- without which nothing can go on, has not ended.
create or replace function retry_flow(of_flow uuid, from_step text, by_actor text, why text) returns integer language plpgsql as $$
declare
  f      flows;
  o      flows;
  forced integer[];
  picked integer[];
begin
  -- A replay locks a letter before its flow.
  perform from dead_letters l
    where l.task_id = any(array(
            select s.task_id
              from unnest(flows_within(array[of_flow])) as u (id)
              cross join lateral (select w.task_id from flow_steps w where w.flow_id = u.id and w.task_id is not null offset 0) s))
      and l.state = 'open'
    order by l.id for no key update;
  perform lock_flows(array[of_flow]);
  select * into f from flows w where w.id = of_flow;
  if f.finished_at is null or f.phase = 'undo' then return null; end if;
  if f.parent_id is not null and (f.state in ('succeeded', 'partial') or f.started_at is null) then return null; end if;
  if exists (select from flows w where w.id = any(flows_within(array[of_flow])) and w.finished_at is null) then return null; end if;
  if exists (
    select from unnest(flows_within(array[of_flow])) as u (id)
      cross join lateral (select w.* from flow_steps w where w.flow_id = u.id and w.kind = 'step' and w.task_id is not null offset 0) s
      cross join lateral (select state, flow_id from tasks where id = s.task_id offset 0) t
     where coalesce(s.on_failure, '') <> 'ignore' and t.flow_id is null and t.state not in ('succeeded', 'dead', 'expired', 'cancelled')
  ) then
    return -2;
  end if;
  picked := steps_to_retry(of_flow, from_step);
  if cardinality(picked) = 0 then return 0; end if;
  select * into o from flows w where w.id = coalesce(f.root_id, f.id);
  if o.business_key is not null and o.finished_at is not null then
    perform from flow_keys k where k.business_type = o.business_type and k.business_key = o.business_key for update;
    insert into flow_keys as k (business_type, business_key, flow_id) values (o.business_type, o.business_key, o.id)
    on conflict (business_type, business_key) do update set flow_id = excluded.flow_id
      where k.flow_id = excluded.flow_id
         or not exists (select from flows h where h.id = k.flow_id and h.state not in ('failed', 'cancelled'));
    if not found then return -1; end if;
  end if;
  forced := array(
    with recursive anew (step) as (
      select s.step from flow_steps s where s.flow_id = of_flow and s.kind = 'step' and s.name = from_step
      union
      select n from anew a
        join flow_steps s on s.flow_id = of_flow and s.step = a.step
        cross join unnest(s.next) as n
    )
    select step from anew);
  return resume_flow(of_flow, picked, forced, by_actor, why);
end $$;

-- Dead tasks live again: those that are steps are steps again, with what was cancelled because of them made anew. A step without which its
-- flow has gone on (its failure is ignored, what was done is undone, the flow was cancelled, another task is in its place, the flow around it has
-- taken what it gave) leaves it, and runs by itself; so does the step for failures of a nested flow, for which nobody waits. Called in the
-- statement that revived them, and read by it. Gives how many are steps still.
create or replace function revive_steps(of_tasks uuid[]) returns integer language plpgsql strict as $$
declare
  one     record;
  revived integer := 0;
begin
  perform lock_flows(array(select t.flow_id from tasks t where t.id = any(of_tasks)));
  update tasks t
     set flow_id = null, flow_step = null
    from (
      select t.id
        from tasks t
        cross join lateral (select * from flow_steps w where w.flow_id = t.flow_id and w.step = t.flow_step offset 0) s
        cross join lateral (select * from flows w where w.id = t.flow_id offset 0) f
       where t.id = any(of_tasks)
         and (s.task_id is distinct from t.id
              or (s.kind = 'failure' and f.parent_id is not null)
              or (s.kind = 'step'
                  and (f.phase = 'undo' or f.cancelled_by is not null or s.on_failure = 'ignore'
                       or (f.parent_id is not null and f.finished_at is not null and f.state in ('succeeded', 'partial')))))
    ) left_behind
   where t.id = left_behind.id and t.id = any(of_tasks);
  for one in
    select t.flow_id as id, count(*)::integer as n, (count(*) filter (where s.kind = 'step'))::integer as steps
      from tasks t
      cross join lateral (select * from flow_steps w where w.flow_id = t.flow_id and w.step = t.flow_step offset 0) s
     where t.id = any(of_tasks)
     group by t.flow_id
     order by t.flow_id
  loop
    revived := revived + one.n;
    perform reopen_flow(one.id, one.n, one.steps);
  end loop;
  return revived;
end $$;
