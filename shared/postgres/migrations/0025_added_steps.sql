-- Steps that add steps to their flow while they run (docs/decisions/0030).
-- breaking: no
--
-- What is added waits for the step that adds it, and whatever waits for that step waits for it too; so nothing of it has begun while the step
-- runs, and a later attempt finds what an earlier one added.

-- Groups that are no rows yet, or were not there when the flow was started, by their names:
--   after  names of steps that their members wait for
--   next   steps that wait for the group
--   level  that of its members, at least
--   on_failure, undo  as of a step; undo: spec, pieces, refs, where the step that it undoes is -1
alter table flows add column groups jsonb;

--   added_by  the step that added it
--   added_as  digest of what was asked for
alter table flow_steps add column added_by integer, add column added_as bytea;

-- A type as it is announced, and whether there is the queue that is asked for: the twin of what `enqueue_task` asks.
create function announced_type(of_name text, asked_queue text) returns task_types language plpgsql stable as $$
declare
  known task_types;
begin
  select * into known from task_types t where t.name = of_name;
  if not found then perform refuse_submission('task-type-unknown', 'type', 'names no announced task type'); end if;
  if known.name = 'warren.webhook' then perform refuse_submission('field-invalid', 'type', 'is for Warren alone'); end if;
  if asked_queue <> known.queue and not exists (select from queues q where q.name = asked_queue) then
    perform refuse_submission('queue-unknown', 'queue', 'names no queue that there is');
  end if;
  return known;
end $$;

-- Moves steps down the flow that would lie above what they wait for, with their undos; what is undone is undone from the deepest level up.
create function sink_steps(of_flow uuid, of_steps integer[], below integer) returns void language plpgsql as $$
declare
  sinking integer[] := of_steps;
  sunk    integer[] := '{}';
  at      integer := below + 1;
begin
  while cardinality(sinking) > 0 loop
    with lowered as (
      update flow_steps s set level = at where s.flow_id = of_flow and s.step = any(sinking) and s.level < at returning s.step, s.next
    )
    select coalesce(array_agg(distinct n.step), '{}'), sunk || coalesce(array_agg(distinct l.step), '{}') into sinking, sunk
      from lowered l left join lateral unnest(l.next) as n (step) on true;
    sinking := array_remove(sinking, null);
    at := at + 1;
  end loop;
  if sunk = '{}' then return; end if;
  update flow_steps u
     set level = (select s.level from flow_steps s where s.flow_id = of_flow and s.step = u.undo_of)
   where u.flow_id = of_flow and u.undo_of = any(sunk);
end $$;

-- Adds a step, or members of a group, to the flow of a task that runs: one task for each of `inputs`. `spec` says type, queue, priority, maxAttempts,
-- delayMs, onFailure, after (names) and isGroup. An input is JSON text, or null where `pieces` and `refs` are its template; a reference names a
-- `result` (a step), a `signal`, or the `adder`. Gives the tasks in their order, and whether they are new; no row where the attempt has lost its
-- claim. Refuses by `refuse_submission`.
create function add_steps(of_task uuid, of_attempt integer, of_claim uuid, step_name text, spec jsonb, inputs text[], pieces text[], refs text[],
                          most_steps integer, most_edges integer)
returns table (task_ids uuid[], is_new boolean) language plpgsql as $$
#variable_conflict use_column
declare
  of_flow   uuid;
  of_step   integer;
  f         flows;
  adder     flow_steps;
  is_group  boolean := (spec ->> 'isGroup')::boolean;
  n         integer := cardinality(inputs);
  asked_as  bytea[];
  there     record;
  sibling   flow_steps;
  declared  jsonb;
  known     task_types;
  fault     record;
  names     text[];
  stands    jsonb;
  sources   integer[];
  source    record;
  followers integer[];
  own       integer[];
  fresh     integer[];
  first     integer;
  at_level  integer;
  undo      record;
begin
  select t.flow_id, t.flow_step into of_flow, of_step
    from tasks t
   where t.id = of_task and t.attempt = of_attempt and t.claim_id = of_claim and t.state = 'running'
     for no key update;
  if not found then return; end if;
  if of_flow is not null then
    perform lock_flows(array[of_flow]);
    select * into f from flows w where w.id = of_flow;
    select * into adder from flow_steps s where s.flow_id = of_flow and s.step = of_step;
  end if;
  if adder.task_id is distinct from of_task or adder.kind <> 'step' then
    perform refuse_submission('step-refused', 'task', 'is no step of a flow, so there is nothing that steps can be added to');
  end if;
  if f.cancelled_by is not null then
    perform refuse_submission('step-refused', 'flow', 'was cancelled, so nothing more begins in it');
  end if;
  if f.is_stopped or f.phase <> 'steps' or f.finished_at is not null then
    perform refuse_submission('step-refused', 'flow', 'has stopped because a step of it failed, so nothing more begins in it');
  end if;

  -- What was added before, by an earlier attempt or by this one.
  asked_as := array(
    select sha256(convert_to(jsonb_build_array(spec, u.input::jsonb, u.pieces, u.refs::jsonb)::text, 'UTF8'))
      from unnest(inputs, pieces, refs) with ordinality as u (input, pieces, refs, place) order by u.place);
  select count(*) as tasks, bool_or(s.member is null) as is_single, max(s.member) as last, count(*) filter (where s.added_by = of_step) as ours,
         array_agg(s.task_id order by s.member) filter (where s.added_by = of_step) as ids,
         array_agg(s.added_as order by s.member) filter (where s.added_by = of_step) as added_as,
         min(s.step) filter (where s.added_by is null) as given
    into there
    from flow_steps s where s.flow_id = of_flow and s.name = step_name and s.kind = 'step';
  if there.ours > 0 then
    -- Of a flow of which something was erased nobody knows how it was asked for.
    if there.ours <> n or exists (
      select from unnest(there.added_as, asked_as) as u (was, asked) where u.was <> u.asked
    ) then
      perform refuse_submission('step-refused', 'name', 'was added before by this step, with other content');
    end if;
    return query select there.ids, false;
    return;
  end if;
  declared := f.groups -> step_name;
  if (there.tasks > 0 or declared is not null) and (not is_group or coalesce(there.is_single, false)) then
    perform refuse_submission('step-refused', 'name', case when not is_group and not coalesce(there.is_single, false)
      then 'is a group of this flow: give inputs to add members to it' else 'is a step of this flow already' end);
  end if;
  known := announced_type(spec ->> 'type', spec ->> 'queue');
  if f.steps_total + n > most_steps then
    perform refuse_submission('field-invalid', case when is_group then 'inputs' else 'name' end,
      format('would make this a flow of %s tasks; a flow has %s at most', f.steps_total + n, most_steps));
  end if;

  -- What it waits for beside the step that adds it.
  with named as (
    select name, 'after[' || place - 1 || ']' as field from jsonb_array_elements_text(spec -> 'after') with ordinality as a (name, place)
    union all
    select name, 'inputs' from jsonb_array_elements_text(coalesce(declared -> 'after', '[]')) as a (name)
    union all
    select ref ->> 'result', ref ->> 'field'
      from unnest(refs) as r (refs) cross join jsonb_array_elements(r.refs::jsonb) as e (ref) where ref ? 'result'
  ), once as (
    select name, min(field) as field from named group by name
  ), meant as (
    select o.name, o.field, (select s from flow_steps s where s.flow_id = of_flow and s.kind = 'step' and s.name = o.name order by s.step limit 1) as s
      from once o
  )
  select coalesce(array_agg(m.name), '{}') as names,
         coalesce(jsonb_object_agg(m.name, case when (m.s).step is null or (m.s).member is not null then jsonb_build_object('group', m.name)
                                                else jsonb_build_object('step', (m.s).step) end), '{}') as stands,
         min(m.field) filter (where m.name = step_name or ((m.s).step is null and not coalesce(f.groups ? m.name, false))) as unknown
    into source
    from meant m;
  if source.unknown is not null then
    perform refuse_submission('field-invalid', source.unknown, 'names no step that is in this flow by now');
  end if;
  names := source.names;
  stands := source.stands;
  for fault in
    select ref ->> 'field' as field
      from unnest(refs) as r (refs) cross join jsonb_array_elements(r.refs::jsonb) as e (ref)
     where ref ? 'signal' and not exists (
             select from flow_steps s where s.flow_id = of_flow and s.kind = 'step' and s.signal = ref ->> 'signal')
     limit 1
  loop
    perform refuse_submission('field-invalid', fault.field, 'names a signal that no step waits for');
  end loop;
  -- Members of a group wait for what the group waits for.
  if there.given is not null then
    select * into sibling from flow_steps s where s.flow_id = of_flow and s.step = there.given;
  end if;
  select array_agg(s.step) filter (where s.step <> of_step) as steps, max(s.level) as level,
         count(*) filter (where s.step <> of_step and t.state <> 'succeeded' and not (s.on_failure = 'ignore' and t.has_failed) is true)::integer as open,
         min(s.name) filter (where t.has_failed and s.on_failure is distinct from 'ignore') as failed
    into source
    from flow_steps s
    cross join lateral (
      select v.state, v.state in ('dead', 'expired', 'cancelled', 'failed') as has_failed from state_of_step(s.task_id, s.child_id) v
    ) t
   where s.flow_id = of_flow and s.kind = 'step' and (s.name = any(names) or sibling.step = any(s.next));
  sources := coalesce(source.steps, '{}');
  if source.failed is not null then
    perform refuse_submission('step-refused', 'after', format('names %s, which has failed or was cancelled', source.failed));
  end if;

  -- What waits for it.
  own := array(select s.step from flow_steps s where s.flow_id = of_flow and s.added_by = of_step);
  followers := array(
    select u.step from unnest(adder.next) as u (step) where u.step <> all(own)
    union
    select g.step::integer from jsonb_array_elements_text(coalesce(declared -> 'next', '[]')) as g (step)
    union
    select u.step
      from unnest(sibling.next) as u (step)
      cross join lateral (select added_by from flow_steps w where w.flow_id = of_flow and w.step = u.step offset 0) s
     where s.added_by is distinct from sibling.step
    order by 1);
  for fault in
    select s.name
      from unnest(followers) as u (step)
      cross join lateral (select * from flow_steps w where w.flow_id = of_flow and w.step = u.step offset 0) s
      cross join lateral (
        select v.state from state_of_step(s.task_id, s.child_id) v where v.state not in ('blocked', 'cancelled', 'expired')
      ) t
     limit 1
  loop
    perform refuse_submission('step-refused', 'name', format('is waited for by %s, which has begun', fault.name));
  end loop;
  if sources <> '{}' and exists (
    with recursive below (step) as (
      select u.step from unnest(followers) as u (step)
      union
      select u.step from below b
        cross join lateral (select next from flow_steps w where w.flow_id = of_flow and w.step = b.step offset 0) s
        cross join unnest(s.next) as u (step)
    )
    select from below where step = any(sources)
  ) then
    perform refuse_submission('field-invalid', 'after', 'goes round in a circle: it names a step that waits for this one');
  end if;
  if n::bigint * (cardinality(followers) + cardinality(sources) + 1) > most_edges then
    perform refuse_submission('field-invalid', case when is_group then 'inputs' else 'after' end,
      format('and the steps before and after have more than %s dependencies between their tasks', most_edges));
  end if;

  -- Empty groups are kept by their names, so that others can refer to them.
  if is_group and there.tasks = 0 and declared is null then
    f.groups := coalesce(f.groups, '{}') || jsonb_build_object(step_name, jsonb_build_object('after', '[]'::jsonb, 'next', '[]'::jsonb));
    update flows w set groups = f.groups where w.id = of_flow;
  end if;
  if n = 0 then
    return query select '{}'::uuid[], true;
    return;
  end if;

  select max(s.step) + 1 into first from flow_steps s where s.flow_id = of_flow;
  fresh := array(select generate_series(first, first + n - 1));
  at_level := greatest(adder.level + 1, source.level + 1, (declared ->> 'level')::integer);
  with wanted as (
    select uuid_v7() as id, first + u.place::integer - 1 as step, case when is_group then coalesce(there.last + 1, 0) + u.place::integer - 1 end as member,
           u.input, u.pieces::text[] as pieces, asked_as[u.place] as added_as,
           (select jsonb_agg(case when ref ? 'result' then stands -> (ref ->> 'result')
                                  when ref ? 'adder' then jsonb_build_object('object', of_step, 'name', adder.name)
                                  else jsonb_build_object('signal', ref ->> 'signal') end
                             || case when ref ? 'path' then jsonb_build_object('path', ref -> 'path') else '{}' end order by place)
              from jsonb_array_elements(u.refs::jsonb) with ordinality as e (ref, place)) as refs
      from unnest(inputs, pieces, refs) with ordinality as u (input, pieces, refs, place)
  ), accepted as (
    insert into tasks (id, accepted_at, state, max_attempts, priority, type, queue, business_key, publisher, tags, input, concurrency_key,
                       rate_key, flow_id, flow_step)
    select w.id, clock_timestamp(), 'blocked', coalesce((spec ->> 'maxAttempts')::integer, known.max_attempts),
           coalesce((spec ->> 'priority')::smallint, known.priority), known.name, coalesce(spec ->> 'queue', known.queue), f.business_key,
           f.created_by, f.tags, convert_to(coalesce(w.input, '{}'), 'UTF8'),
           case when w.input is not null and known.description ? 'concurrency' then limit_key(known.description #>> '{concurrency,key}', w.input::json) end,
           case when w.input is not null and known.description ? 'rate' then limit_key(known.description #>> '{rate,key}', w.input::json) end,
           of_flow, w.step
      from wanted w
     order by w.id
  ), placed as (
    insert into flow_steps (flow_id, step, name, member, task_id, waits_for, next, level, on_failure, delay_ms, pieces, refs, added_by, added_as)
    select of_flow, w.step, step_name, w.member, w.id, 1 + coalesce(source.open, 0), followers, at_level,
           coalesce(spec ->> 'onFailure', declared ->> 'onFailure', sibling.on_failure), (spec ->> 'delayMs')::float8, w.pieces, w.refs, of_step,
           w.added_as
      from wanted w
     order by w.step
  )
  select array_agg(w.id order by w.step) as ids into there from wanted w;
  update flow_steps s set next = s.next || fresh where s.flow_id = of_flow and s.step = any(sources || of_step);
  update flow_steps s set waits_for = s.waits_for + n where s.flow_id = of_flow and s.step = any(followers);
  delete from flow_timers m where m.flow_id = of_flow and m.step = any(followers);
  update flows w
     set steps_total = w.steps_total + n, steps_open = w.steps_open + n,
         groups = (select jsonb_object_agg(g.name, case when g.name = any(names) then jsonb_set(g.about, '{next}', (g.about -> 'next') || to_jsonb(fresh))
                                                        else g.about end)
                     from jsonb_each(w.groups) as g (name, about))
   where w.id = of_flow;
  perform sink_steps(of_flow, followers, at_level);
  perform count_in_ledger('accepted', there.ids, array_fill(known.name, array[n]));

  -- The undo of a group is of each of its members.
  if declared -> 'undo' is not null then
    select -1 as of_step, declared #> '{undo,spec}' as spec, declared #> '{undo,refs}' as refs,
           (select array_agg(piece order by place) from jsonb_array_elements_text(declared #> '{undo,pieces}') with ordinality as p (piece, place)) as pieces
      into undo;
  else
    select u.undo_of as of_step, u.spec, u.refs, u.pieces into undo
      from flow_steps u where u.flow_id = of_flow and u.kind = 'undo' and u.undo_of = sibling.step;
  end if;
  if undo.spec is null then return query select there.ids, true; return; end if;
  insert into flow_steps (flow_id, step, kind, name, member, level, undo_of, pieces, refs, spec)
  select of_flow, s.step + n, 'undo', 'undo ' || step_name, s.member, at_level, s.step, undo.pieces,
         (select jsonb_agg(case when ref -> 'step' = to_jsonb(undo.of_step) then jsonb_set(ref, '{step}', to_jsonb(s.step))
                                when ref -> 'object' = to_jsonb(undo.of_step) then jsonb_set(ref, '{object}', to_jsonb(s.step))
                                else ref end order by place)
            from jsonb_array_elements(undo.refs) with ordinality as e (ref, place)),
         undo.spec
    from flow_steps s where s.flow_id = of_flow and s.step = any(fresh);
  return query select there.ids, true;
end $$;
