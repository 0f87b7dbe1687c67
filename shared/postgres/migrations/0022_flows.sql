-- Flows: tasks that wait for others to end, moved on by whoever ends those, in the same transaction (docs/decisions/0030).
-- breaking: yes
--
-- An older worker would end a step and leave its flow standing.
--
-- What is joined to rows that a function made is looked up by itself (`offset 0`), and its key is said again, so that Postgres takes it for few: a
-- session plans once, and where a table was counted when it was small, a join would walk it for ever.
--
-- Order of locks: tasks that are not blocked, then their flows in id order, then what those flows have blocked. So whoever wants a blocked
-- task of a flow locks the flow first.

create type flow_state as enum ('pending', 'running', 'succeeded', 'failed', 'partial', 'cancelled');

-- A graph of tasks. `steps_open`: tasks of it, made so far, that have not ended; who brings it to 0 ends the phase, and with the last the flow.
create table flows (
  id            uuid        primary key,
  name          text        not null,
  business_type text,
  business_key  text,
  state         flow_state  not null default 'pending',
  phase         text        not null default 'steps' check (phase in ('steps', 'undo', 'failure')),
  on_failure    text        not null check (on_failure in ('stop', 'continue', 'compensate')),
  steps_total   integer     not null,
  steps_open    integer     not null check (steps_open >= 0),
  steps_failed  integer     not null default 0,
  is_stopped    boolean     not null default false,
  tags          text[],
  created_at    timestamptz not null default clock_timestamp(),
  created_by    text,
  started_at    timestamptz,
  finished_at   timestamptz,
  cancelled_by  text,
  cancel_reason text,
  check ((finished_at is not null) = (state in ('succeeded', 'failed', 'partial', 'cancelled')))
) with (fillfactor = 50);
create index flows_business_key on flows (business_key, id) where business_key is not null;
create index flows_name on flows (name, id);
create index flows_finished_at on flows (finished_at) where finished_at is not null;
-- What is asked for by its state is rare: of flows that succeeded there is no end.
create index flows_state on flows (state, id) where state <> 'succeeded';

-- One flow at a time about a thing; judged by the flow that holds it.
create table flow_keys (
  business_type text not null,
  business_key  text not null,
  flow_id       uuid not null,
  primary key (business_type, business_key)
);

-- A step: the task that it is, what waits for it, and what its input is made of.
--   waits_for  steps that have not succeeded, and one for a signal that has not come; a join is this counter. Left as it was by what lets
--              the step start
--   level      steps on the longest way to it; what is undone is undone from the deepest level up
--   pieces     texts of the input around its references, one more than there are `refs`; null: the input is as it was given
--   spec       kinds undo and failure: the task that is made when it comes to that
--   why        why its flow cancelled it
--   earlier    tasks that it was before
create table flow_steps (
  flow_id    uuid      not null,
  step       integer   not null,
  kind       text      not null default 'step' check (kind in ('step', 'undo', 'failure')),
  name       text      not null,
  member     integer,
  task_id    uuid,
  waits_for  integer   not null default 0 check (waits_for >= 0),
  next       integer[] not null default '{}',
  level      integer   not null default 0,
  on_failure text      check (on_failure in ('stop', 'continue', 'ignore')),
  undo_of    integer,
  delay_ms   float8,
  signal     text,
  signal_ms  float8,
  pieces     text[],
  refs       jsonb,
  spec       jsonb,
  why        text,
  earlier    uuid[]    not null default '{}',
  primary key (flow_id, step)
) with (fillfactor = 60);

-- What came from outside for a flow.
create table flow_signals (
  flow_id uuid        not null,
  name    text        not null,
  data    bytea       not null,
  sent_at timestamptz not null default clock_timestamp(),
  sent_by text        not null,
  primary key (flow_id, name)
);

-- Steps that wait for a signal alone, and until when.
create table flow_timers (
  flow_id uuid        not null,
  step    integer     not null,
  at      timestamptz not null,
  primary key (flow_id, step)
);
create index flow_timers_at on flow_timers (at);

alter table tasks add column flow_id uuid, add column flow_step integer;

-- The result of a task as JSON text: as it was stored, or where it was too large for its row the reference to its file; null where it has none.
create function result_text(of_task uuid) returns text language sql stable as $$
  select coalesce(convert_from(t.result, 'UTF8'), (
           select json_build_object('$file', f.id, 'name', f.name, 'contentType', f.content_type, 'bytes', f.bytes)::text
             from files f
            where f.task_id = t.id and f.attempt = t.attempt and f.kind = 'result' and f.stored_at is not null and f.doomed_at is null))
    from (select * from tasks where id = of_task and state = 'succeeded' offset 0) t
$$;

-- The result of a step as JSON text; `null` where it has none. `path`: where in it.
create function step_result(of_flow uuid, of_step integer, path text[]) returns text language plpgsql stable as $$
declare
  found text := result_text((select s.task_id from flow_steps s where s.flow_id = of_flow and s.step = of_step));
begin
  if found is not null and cardinality(path) > 0 then found := (found::json #> path)::text; end if;
  return coalesce(found, 'null');
end $$;

-- The results of a group as a list, in the order of its members; what says how large it is in its place where it has more than `most` bytes: that
-- is told without reading it.
create function group_result(of_flow uuid, of_name text, path text[], most integer) returns text language plpgsql stable as $$
declare
  found text;
  bytes bigint;
begin
  select sum(coalesce(t.bytes, 4) + 1) + 1 into bytes
    from flow_steps s
    left join lateral (select octet_length(result) as bytes from tasks where id = s.task_id and state = 'succeeded' offset 0) t on true
   where s.flow_id = of_flow and s.name = of_name and s.kind = 'step' and s.member is not null;
  -- A part of each may be small, but only so much is read for it.
  if bytes > (case cardinality(path) when 0 then most else 64 * most end) then
    return json_build_object('$omitted', 'results', 'bytes', bytes)::text;
  end if;
  select '[' || coalesce(string_agg(coalesce(
           case when cardinality(path) = 0 then r.result else (r.result::json #> path)::text end, 'null'), ',' order by s.member), '')
         || ']' into found
    from flow_steps s
    left join lateral (
      -- `result_text` by itself, ten thousand times
      select coalesce(convert_from(result, 'UTF8'), result_text(id)) as result from tasks where id = s.task_id and state = 'succeeded' offset 0
    ) r on true
   where s.flow_id = of_flow and s.name = of_name and s.kind = 'step' and s.member is not null;
  return found;
end $$;

-- What a reference in the input of a step stands for, as JSON text.
create function flow_reference(of_flow uuid, ref jsonb) returns text language plpgsql stable as $$
declare
  path  text[] := array(select jsonb_array_elements_text(ref -> 'path'));
  found text;
begin
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
    select '[' || coalesce(string_agg(json_build_object('step', s.name, 'taskId', s.task_id, 'state', t.state)::text, ',' order by s.step), '')
           || ']' into found
      from flow_steps s
      cross join lateral (
        select state from tasks where id = s.task_id and state in ('dead', 'expired', 'cancelled') offset 0
      ) t
     where s.flow_id = of_flow and s.kind <> 'failure' and s.why is null and coalesce(s.on_failure, '') <> 'ignore';
    return found;
  end if;
  raise exception 'a step of flow % has a reference of no kind', of_flow;
end $$;

-- The input of a step, made of its template; null where it has none. Beyond a MiB what is referred to is left out and says so: the input of a
-- task is read with each claim of it. A result that Postgres cannot look into (U+0000, which JSON may hold, or nesting without end) must not
-- hold up the end of the step that gave it: the input is a text that says so, which no schema of an object takes, and the task dies of that.
create function flow_input(of_flow uuid, of_step integer) returns bytea language plpgsql stable as $$
declare
  s     flow_steps;
  ref   jsonb;
  parts text[] := '{}';
  value text;
  bytes integer := 0;
  place integer := 0;
begin
  select * into s from flow_steps f where f.flow_id = of_flow and f.step = of_step;
  if s.pieces is null then return null; end if;
  for ref in select r.ref from jsonb_array_elements(s.refs) with ordinality as r (ref, place) order by r.place loop
    place := place + 1;
    value := flow_reference(of_flow, ref);
    if bytes + octet_length(value) > 1048576 then
      value := json_build_object('$omitted', 'results', 'bytes', octet_length(value))::text;
    end if;
    bytes := bytes + octet_length(value);
    parts := parts || s.pieces[place] || value;
  end loop;
  return convert_to(array_to_string(parts || s.pieces[place + 1], ''), 'UTF8');
exception when data_exception or program_limit_exceeded then
  return convert_to(to_json('the results that this input is made of cannot be looked into: ' || sqlerrm)::text, 'UTF8');
end $$;

-- Under which key an input that was made counts towards a limit of its type; as `turn_key` does where it cannot be read.
create function made_limit_key(rule jsonb, input bytea) returns text language plpgsql stable as $$
begin
  return case when rule is not null then limit_key(rule ->> 'key', convert_from(input, 'UTF8')::json) end;
exception when data_exception or program_limit_exceeded then
  return '';
end $$;

-- Makes steps claimable whose task is blocked, with their input, and gives what is to be published. The sweeper takes the outbox row after
-- `swept_in`. The flows are locked.
create function unblock_steps(of_flows uuid[], of_steps integer[], swept_in interval)
returns table (task_id uuid, type text, queue text, priority smallint, generation integer, outbox_id bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  if cardinality(of_flows) = 0 then return; end if;
  return query
  with special as (
    select coalesce(array_agg(q.name) filter (where q.mode = 'draining'), '{}') as draining,
           coalesce(array_agg(q.name) filter (where q.fair_by is not null), '{}') as fair
      from queues q
     where q.mode <> 'open' or q.fair_by is not null
  ), ready as (
    select s.flow_id, s.step, s.task_id, s.delay_ms, s.pieces is not null as is_made
      from unnest(of_flows, of_steps) as r (flow_id, step)
      cross join lateral (select * from flow_steps f where f.flow_id = r.flow_id and f.step = r.step offset 0) s
     where s.task_id is not null
     order by s.task_id
  ), locked as (
    select t.id, t.type, t.queue, t.deadline, r.delay_ms, r.is_made,
           case when r.is_made then flow_input(r.flow_id, r.step) else t.input end as input,
           t.queue = any((select draining from special)::text[]) as is_drained,
           t.queue = any((select fair from special)::text[]) as is_fair,
           clock_timestamp() as now
      from ready r
      cross join lateral (
        select * from tasks where id = r.task_id and state = 'blocked' for no key update offset 0
      ) t
     where t.id = r.task_id and t.state = 'blocked'
  ), judged as (
    select l.*, case when l.delay_ms > 0 then l.now + l.delay_ms * interval '1 ms' end as run_at,
           case when l.is_fair then coalesce(turn_key(l.queue, l.input), '') end as turn,
           case when l.is_made then made_limit_key(k.description -> 'concurrency', l.input) end as concurrency_key,
           case when l.is_made then made_limit_key(k.description -> 'rate', l.input) end as rate_key
      from locked l
      left join task_types k on l.is_made and k.name = l.type
  ), moved as (
    update tasks t
       set state = case when j.run_at is null then 'pending' else 'scheduled' end::task_state,
           run_at = j.run_at, input = j.input,
           concurrency_key = case when j.is_made then j.concurrency_key else t.concurrency_key end,
           rate_key = case when j.is_made then j.rate_key else t.rate_key end,
           invited_at = case when j.run_at is null and j.turn is null and not j.is_drained then j.now end
      from judged j
     where t.id = j.id and t.state = 'blocked'
    returning t.id, t.type, t.queue, t.priority, t.generation, t.state, t.run_at, t.deadline, t.invited_at, j.turn
  ), waiting as (
    insert into due (task_id, at)
    select m.id, least(m.run_at, m.deadline) from moved m where m.run_at is not null or m.deadline is not null order by m.id
    on conflict (task_id) do update set at = excluded.at
  ), held as (
    insert into held_back (task_id, reason, scope, key, priority)
    select m.id, case when m.turn is null then 'draining' else 'turn' end, m.queue, coalesce(m.turn, ''), m.priority
      from moved m
     where m.state = 'pending' and m.invited_at is null
     order by m.id
    on conflict (task_id) do update
       set reason = excluded.reason, scope = excluded.scope, key = excluded.key, priority = excluded.priority
  ), invited as (
    insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
    select clock_timestamp() + swept_in, array_agg(m.id), array_agg(m.type), array_agg(m.queue), array_agg(m.priority),
           array_agg(m.generation)
      from moved m
     where m.invited_at is not null
    having count(*) > 0
    returning id
  )
  select m.id, m.type, m.queue, m.priority, m.generation, i.id
    from moved m
    cross join invited i
   where m.invited_at is not null;
end $$;

-- Counts tasks in the ledger, as the statements do.
create function count_in_ledger(entry text, ids uuid[], types text[]) returns void language sql as $$
  insert into ledger_entries as l (hour, type, entry, backend, tasks)
  select task_hour(u.id), u.type, count_in_ledger.entry, pg_backend_pid(), count(*)
    from unnest(ids, types) as u (id, type)
   group by 1, 2, 3
   order by 1, 2, 3
  on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
$$;

-- Cancels what a flow has blocked: all of it, or what comes after some steps. Gives how many. The flow is locked.
create function cancel_blocked(of_flow uuid, after_steps integer[], because text) returns integer language plpgsql as $$
declare
  picked    integer[];
  cancelled uuid[];
  types     text[];
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
  if cancelled is null then return 0; end if;
  perform count_in_ledger('cancelled', cancelled, types);
  delete from flow_timers m where m.flow_id = of_flow and m.step = any(picked);
  return cardinality(cancelled);
end $$;

-- Makes the tasks of steps that have a `spec`, blocked. The flow is locked.
create function make_step_tasks(of_flow uuid, of_steps integer[]) returns void language plpgsql as $$
declare
  made  uuid[];
  types text[];
begin
  with chosen as (
    update flow_steps s set task_id = uuid_v7() where s.flow_id = of_flow and s.step = any(of_steps) returning s.*
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
  update flows f set steps_open = f.steps_open + cardinality(of_steps) where f.id = of_flow;
end $$;

-- What a flow does once nothing of it is open: the next level is undone, the step for failures is made, or it ends. Gives steps that are to
-- start now. The flow is locked.
create function close_phase(of_flow uuid) returns integer[] language plpgsql as $$
declare
  f     flows;
  steps integer[];
begin
  select * into f from flows where id = of_flow;
  if f.phase <> 'failure' and f.on_failure = 'compensate' and (f.is_stopped or f.cancelled_by is not null) then
    if f.phase = 'steps' or not exists (
      select from flow_steps u
       where u.flow_id = of_flow and u.kind = 'undo' and u.task_id is not null
         and (select t.state from tasks t where t.id = u.task_id) <> 'succeeded'
    ) then
      with open as (
        select u.step, u.level
          from flow_steps u
          join flow_steps s on s.flow_id = of_flow and s.step = u.undo_of
         where u.flow_id = of_flow and u.kind = 'undo' and u.task_id is null
           and (select t.state from tasks t where t.id = s.task_id) = 'succeeded'
      )
      select array_agg(o.step) into steps from open o where o.level = (select max(level) from open);
      if steps is not null then
        update flows set phase = 'undo' where id = of_flow;
        perform make_step_tasks(of_flow, steps);
        return steps;
      end if;
    end if;
  end if;
  if f.steps_failed > 0 and f.cancelled_by is null then
    select array_agg(s.step) into steps
      from flow_steps s where s.flow_id = of_flow and s.kind = 'failure' and s.task_id is null;
    if steps is not null then
      update flows set phase = case phase when 'undo' then 'undo' else 'failure' end where id = of_flow;
      perform make_step_tasks(of_flow, steps);
      return steps;
    end if;
  end if;
  update flows
     set finished_at = clock_timestamp(),
         state = case when cancelled_by is not null then 'cancelled' when is_stopped then 'failed' when steps_failed > 0 then 'partial'
                      else 'succeeded' end::flow_state
   where id = of_flow;
  return '{}';
end $$;

-- Tasks of flows have ended: moves their flows on. Called in the statement that ended them, and read by it, else Postgres leaves it out.
create function end_steps(of_flows uuid[], of_steps integer[], of_states text[], swept_in interval default '10 s')
returns table (task_id uuid, type text, queue text, priority smallint, generation integer, outbox_id bigint)
language plpgsql strict as $$
#variable_conflict use_column
declare
  failing     record;
  gone        integer;
  ready_flows uuid[];
  ready_steps integer[];
  plain       uuid[];
  closing_flows uuid[];
  closing     uuid;
  starting    integer[];
begin
  perform from flows f where f.id = any(of_flows) order by f.id for no key update;
  with counted as (
    update flows f
       set steps_open = f.steps_open - cardinality(array_positions(of_flows, f.id)), started_at = coalesce(f.started_at, clock_timestamp()),
           state = case f.state when 'pending' then 'running' else f.state end
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
    select k.flow_id, k.step, k.task_id, k.waits_for - a.n as waits_for, k.signal, k.signal_ms,
           k.pieces is null and k.delay_ms is null and (select is_plain from usual) as is_plain
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
  select array_agg(l.flow_id) filter (where not l.is_plain), array_agg(l.step) filter (where not l.is_plain),
         array_agg(l.task_id) filter (where l.is_plain)
    into ready_flows, ready_steps, plain
    from reached l
   where l.waits_for = 0;

  foreach closing in array closing_flows loop
    starting := close_phase(closing);
    ready_flows := coalesce(ready_flows, '{}') || array_fill(closing, array[cardinality(starting)]);
    ready_steps := coalesce(ready_steps, '{}') || starting;
  end loop;
  if ready_flows is not null then return query select * from unblock_steps(ready_flows, ready_steps, swept_in); end if;
  if plain is null then return; end if;
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
create function signal_flow(of_flow uuid, signal_name text, payload bytea, sender text, swept_in interval default '10 s')
returns table (is_new boolean, task_id uuid, type text, queue text, priority smallint, generation integer, outbox_id bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  ready integer[];
begin
  perform from flows f where f.id = of_flow for no key update;
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
    left join unblock_steps(array_fill(of_flow, array[coalesce(cardinality(ready), 0)]), coalesce(ready, '{}'), swept_in) u on true;
end $$;

-- Ends steps whose signal has not come in time, at most `most`. Gives how many.
create function expire_flow_timers(most integer) returns integer language plpgsql as $$
declare
  of_flows uuid[];
  of_steps integer[];
  free     uuid[];
  ended    record;
begin
  select array_agg(p.flow_id), array_agg(p.step) into of_flows, of_steps
    from (select m.flow_id, m.step from flow_timers m where m.at <= clock_timestamp() order by m.at limit most for update skip locked) p;
  if of_flows is null then return 0; end if;
  -- A signal that comes now holds the flow and wants the timer: then it is left for the next round.
  free := array(select f.id from flows f where f.id = any(of_flows) order by f.id for no key update skip locked);
  select array_agg(p.flow_id), array_agg(p.step) into of_flows, of_steps
    from unnest(of_flows, of_steps) as p (flow_id, step) where p.flow_id = any(free);
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
  if ended.ids is null then return 0; end if;
  perform count_in_ledger('expired', ended.ids, ended.types);
  perform from end_steps(ended.flows, ended.steps, array_fill('expired'::text, array[cardinality(ended.ids)]), interval '0');
  return cardinality(ended.ids);
end $$;

-- Cancels a flow: at once what it has blocked. Gives the tasks that are under way, which are cancelled as any other; null where the flow
-- has ended, or was cancelled before.
create function cancel_flow(of_flow uuid, by_actor text, why text) returns uuid[] language plpgsql as $$
declare
  gone     integer;
  starting integer[];
begin
  perform from flows f where f.id = of_flow for no key update;
  update flows f set cancelled_by = by_actor, cancel_reason = why
   where f.id = of_flow and f.finished_at is null and f.cancelled_by is null;
  if not found then return null; end if;
  gone := cancel_blocked(of_flow, null, 'the flow was cancelled');
  update flows f set steps_open = f.steps_open - gone where f.id = of_flow;
  if (select f.steps_open from flows f where f.id = of_flow) = 0 then
    starting := close_phase(of_flow);
    perform from unblock_steps(array_fill(of_flow, array[cardinality(starting)]), starting, interval '0');
  end if;
  return array(
    select s.task_id from flow_steps s
      cross join lateral (
        select id from tasks where id = s.task_id and state in ('pending', 'scheduled', 'running', 'retrying') offset 0
      ) t
     where s.flow_id = of_flow and s.kind = 'step'
     order by 1);
end $$;

-- Steps that have ended are made anew, as new tasks, blocked until what they wait for has succeeded. The flow is locked and has not ended.
create function remake_steps(of_flow uuid, picked integer[]) returns void language plpgsql as $$
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
      cross join lateral (select state from tasks where id = s.task_id offset 0) t
     where s.flow_id = of_flow and s.kind = 'step'
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
-- flow has not ended, or what it did is undone; -1 where another flow is about the same thing by now.
create function retry_flow(of_flow uuid, from_step text, by_actor text, why text) returns integer language plpgsql as $$
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

-- Dead tasks live again: those that are steps are steps again, with what was cancelled because of them made anew. A step without which its
-- flow has gone on (its failure is ignored, what was done is undone, the flow was cancelled, another task is in its place) leaves it, and runs by itself. Called in the
-- statement that revived them, and read by it. Gives how many are steps still.
create function revive_steps(of_tasks uuid[]) returns integer language plpgsql strict as $$
declare
  one     record;
  revived integer := 0;
  remade  integer[];
begin
  perform from flows f
    where f.id = any(array(select t.flow_id from tasks t where t.id = any(of_tasks))) order by f.id for no key update;
  update tasks t
     set flow_id = null, flow_step = null
    from (
      select t.id
        from tasks t
        cross join lateral (select * from flow_steps w where w.flow_id = t.flow_id and w.step = t.flow_step offset 0) s
        cross join lateral (select * from flows w where w.id = t.flow_id offset 0) f
       where t.id = any(of_tasks) and s.kind = 'step'
         and (f.phase = 'undo' or f.cancelled_by is not null or s.on_failure = 'ignore' or s.task_id <> t.id)
    ) left_behind
   where t.id = left_behind.id and t.id = any(of_tasks);
  for one in
    select t.flow_id as id, count(*) as n, count(*) filter (where s.kind = 'step') as steps
      from tasks t
      cross join lateral (select * from flow_steps w where w.flow_id = t.flow_id and w.step = t.flow_step offset 0) s
     where t.id = any(of_tasks)
     group by t.flow_id
     order by t.flow_id
  loop
    revived := revived + one.n;
    update flows w
       set steps_open = w.steps_open + one.n, steps_failed = w.steps_failed - one.steps, state = 'running', finished_at = null,
           phase = case when one.steps > 0 then 'steps' else w.phase end,
           is_stopped = exists (
             select from flow_steps s
               cross join lateral (select state from tasks where id = s.task_id and state in ('dead', 'expired', 'cancelled') offset 0) t
              where s.flow_id = one.id and s.kind = 'step' and s.why is null and coalesce(s.on_failure, w.on_failure) not in ('continue', 'ignore'))
     where w.id = one.id;
    continue when one.steps = 0 or (select w.is_stopped from flows w where w.id = one.id);

    remade := array(
      with recursive below (step) as (
        select n from flow_steps s
          cross join lateral (select state from tasks where id = s.task_id and state in ('dead', 'expired', 'cancelled') offset 0) t
          cross join unnest(s.next) as n
         where s.flow_id = one.id and s.kind = 'step' and s.why is null and coalesce(s.on_failure, '') <> 'ignore'
        union
        select n from below b
          join flow_steps s on s.flow_id = one.id and s.step = b.step
          cross join unnest(s.next) as n
      )
      select s.step from flow_steps s
       where s.flow_id = one.id and s.why is not null and not exists (select from below b where b.step = s.step));
    perform remake_steps(one.id, remade);
  end loop;
  return revived;
end $$;
