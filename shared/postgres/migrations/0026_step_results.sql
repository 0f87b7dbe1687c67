-- Results of a step are read page by page, and what stands in the place of those that were left out of an input says where they are
-- (docs/decisions/0030).
-- breaking: no
--
-- An older program hands it on as it is.

-- What stands in the place of what a reference means, where that is too large: of which step of which flow it is, how many results and how many
-- bytes. What a signal brought, and the list of what failed, are no results of a step.
create function omitted_results(of_flow uuid, ref jsonb, bytes bigint) returns text language sql stable as $$
  select json_strip_nulls(json_build_object(
           '$omitted', 'results', 'bytes', omitted_results.bytes, 'flow', case when s.results > 0 then of_flow end, 'step', s.name,
           'member', case when not ref ? 'group' then s.member end, 'count', nullif(s.results, 0)))::text
    from (
      select min(name) as name, min(member) as member, count(*) as results
        from flow_steps
       where flow_id = of_flow and kind = 'step'
         and (name = ref ->> 'group' or step = coalesce(ref ->> 'step', ref ->> 'object')::integer)
    ) s
$$;

-- As in 0022, but for what it says where the list is too large.
create or replace function group_result(of_flow uuid, of_name text, path text[], most integer) returns text language plpgsql stable as $$
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
    return omitted_results(of_flow, jsonb_build_object('group', of_name), bytes);
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

-- As in 0022, but for what stands in the place of what is beyond the MiB.
create or replace function flow_input(of_flow uuid, of_step integer) returns bytea language plpgsql stable as $$
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
    if bytes + octet_length(value) > 1048576 then value := omitted_results(of_flow, ref, octet_length(value)); end if;
    bytes := bytes + octet_length(value);
    parts := parts || s.pieces[place] || value;
  end loop;
  return convert_to(array_to_string(parts || s.pieces[place + 1], ''), 'UTF8');
exception when data_exception or program_limit_exceeded then
  return convert_to(to_json('the results that this input is made of cannot be looked into: ' || sqlerrm)::text, 'UTF8');
end $$;

-- The members of a group, or a single step, after the step of a number, at most `most`, in their order. It looks at so many steps of the flow at a
-- time, by the key alone: asked for all that follow, Postgres thinks of a name as rare, and would read and sort a whole group for each page of it.
create function steps_of_name(of_flow uuid, of_name text, after_step integer, most integer)
returns table (step integer, member integer, task_id uuid) language plpgsql stable rows 200 as $$
#variable_conflict use_column
declare
  reach constant integer := 1000;
  at    integer := after_step;
  last  integer := (select max(s.step) from flow_steps s where s.flow_id = of_flow);
  given integer := 0;
  more  integer;
begin
  while at < last and given < most loop
    return query
    select s.step, s.member, s.task_id
      from flow_steps s
     where s.flow_id = of_flow and s.step > at and s.step <= at + reach and s.name = of_name and s.kind = 'step'
     order by s.step
     limit most - given;
    get diagnostics more = row_count;
    given := given + more;
    at := at + reach;
  end loop;
end $$;

-- A page of what the members of a group, or a single step, gave, after the step of a number (-1: from the first), in their order: rows at most
-- `most`, bytes of results at most `most_bytes`, but the first row has what it has; what is beyond is weighed and not read. A result that is in the store is
-- the reference to its file; `state` is null where the task has been deleted, and for a step that is a flow, which has no task either. `looked`: rows that there are, up to one more than `most`.
create function page_step_results(of_flow uuid, of_name text, after_step integer, most integer, most_bytes integer)
returns table (step integer, member integer, task_id uuid, state task_state, result bytea, looked integer) language sql stable rows 200 as $$
  with page as (
    select p.step, p.member, p.task_id from steps_of_name(of_flow, of_name, after_step, most + 1) p
  ), weighed as (
    select p.step, p.member, p.task_id, t.state, t.result, row_number() over (order by p.step) as place,
           sum(coalesce(octet_length(t.result), 4)) over (order by p.step) as bytes
      from page p
      left join lateral (
        select k.state, case k.state when 'succeeded' then k.result end as result from tasks k where k.id = p.task_id offset 0
      ) t on true
  )
  select w.step, w.member, w.task_id, w.state,
         coalesce(w.result, case when w.task_id is null then convert_to(step_result(of_flow, w.step, '{}'), 'UTF8')
                                 when w.state = 'succeeded' then convert_to(result_text(w.task_id), 'UTF8') end),
         (select count(*) from page)::integer
    from weighed w
   where w.place = 1 or (w.place <= most and w.bytes <= most_bytes)
   order by w.step
$$;

-- Whether a flow has a step of that name, or a group of it that has no members as yet.
create function has_step(of_flow uuid, of_name text) returns boolean language sql stable as $$
  select coalesce((select f.groups ? of_name from flows f where f.id = of_flow), false)
      or exists (select from flow_steps s where s.flow_id = of_flow and s.name = of_name and s.kind = 'step')
$$;
