-- Where tasks and flows stand in traces, as W3C Trace Context says it.
-- breaking: no
--
-- What came without a context has null everywhere and costs nothing. A step of a flow has none of its own: it is found by its flow.

-- As in 0015: no temporary table of a caller stands in for one of ours.
select set_config('search_path', current_setting('search_path') || ', pg_temp', true);

-- `trace`: a traceparent, and where there is a tracestate a space and that: the span in which the task was accepted.
-- `failed_span`: 16 hexadecimal digits, the span in that trace of the last attempt that did not succeed.
alter table tasks add column trace text, add column failed_span text;
-- Of a nested flow null: it stands where the one around it does.
alter table flows add column trace text;
alter table lifecycle_events add column traces text[];

-- What takes the place of a partition on its way out has the same columns.
do $$
declare
  of_retirement text;
begin
  for of_retirement in select target from task_retirements loop
    execute format('alter table %I add column trace text, add column failed_span text', of_retirement);
  end loop;
end $$;

-- Where the steps of a flow stand; null for none. The outermost flow says it for all that are nested in it.
create function trace_of_flow(of_flow uuid) returns text language sql stable as $$
  select coalesce(f.trace, (select r.trace from flows r where r.id = f.root_id)) from flows f where f.id = of_flow
$$;

create or replace function note_acceptances() returns trigger language plpgsql as $$
begin
  insert into lifecycle_events (task_ids, types, queues, states, attempts, traces)
  select array_agg(n.id), array_agg(n.type), array_agg(n.queue), array_agg(n.state::text), array_agg(n.attempt),
         case when count(t.trace) > 0 then array_agg(t.trace) end
    from new_rows n
    cross join lateral (select case when n.flow_id is null then n.trace else trace_of_flow(n.flow_id) end as trace) t
  having count(*) > 0;
  return null;
end
$$;

-- Services plan without hash joins; here two sets of rows without an index meet.
create or replace function note_transitions() returns trigger language plpgsql set enable_hashjoin = on set enable_seqscan = on as $$
begin
  insert into lifecycle_events (task_ids, types, queues, states, attempts, traces)
  select array_agg(n.id), array_agg(n.type), array_agg(n.queue), array_agg(n.state::text), array_agg(n.attempt),
         case when count(t.trace) > 0 then array_agg(t.trace) end
    from new_rows n
    join old_rows o on o.id = n.id
    cross join lateral (select case when n.flow_id is null then n.trace else trace_of_flow(n.flow_id) end as trace) t
   where n.state <> o.state
  having count(*) > 0;
  return null;
end
$$;

-- The two headers as they are kept, by the rules of W3C: null where the first is not valid, which is never a reason to refuse; without the
-- second where that is not.
create function read_trace(traceparent text, tracestate text) returns text language plpgsql immutable as $$
declare
  parent  text := btrim(traceparent, E' \t\r\n');
  members text[];
begin
  if parent is null or parent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}' or parent ~ '^ff' or parent ~ '^..-0{32}-'
     or parent ~ '^.{35}-0{16}-' or (length(parent) > 55 and (parent ~ '^00' or substr(parent, 56, 1) <> '-')) then
    return null;
  end if;
  parent := '00' || substr(parent, 3, 53);
  if length(tracestate) > 1024 then return parent; end if;
  select array_agg(btrim(m, E' \t\r\n') order by place) into members
    from unnest(string_to_array(tracestate, ',')) with ordinality as u (m, place)
   where btrim(m, E' \t\r\n') <> '';
  if members is null or cardinality(members) > 32 or length(array_to_string(members, ',')) > 512
     or exists (select from unnest(members) m
                 where m collate "C" !~ '^[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\x2d-<>-~]{0,255}[!-+\x2d-<>-~]$') then
    return parent;
  end if;
  return parent || ' ' || array_to_string(members, ',');
end $$;

-- As before, but that a call may say in which trace it stands: `traceparent` and `tracestate` among the options.
create or replace function enqueue_task(type text, input text, options jsonb default '{}', out id uuid, out duplicate boolean)
language plpgsql security definer
set search_path from current set extra_float_digits = 1 set standard_conforming_strings = on as $$
#variable_conflict use_column
declare
  given         jsonb := coalesce(options, '{}');
  value         json;
  fault         text[];
  known         task_types;
  chosen_queue  text;
  chosen        smallint;
  tries         integer;
  delay_ms      bigint;
  run_at        timestamptz;
  deadline      timestamptz;
  tags          text[];
  business_key  text;
  rule          jsonb;
  unique_key    text;
  hold          text;
  within_ms     bigint;
  on_conflict   text;
  idem_key      text;
  idem_digest   bytea;
  publisher     text := 'sql:' || session_user;
  callback      jsonb;
  turn          text;
  is_held_back  boolean;
  holder        record;
  at            timestamptz;
  waits         boolean;
  rounds        integer := 0;
  trace         text := read_trace(options ->> 'traceparent', options ->> 'tracestate');
begin
  -- A call that comes again is the same call in another trace.
  if jsonb_typeof(given) = 'object' then given := given - 'traceparent' - 'tracestate'; end if;

  -- The options. Replacing a task that waits is an edit of it, which services do.
  if given ? 'debounce' then
    perform refuse_submission('field-invalid', 'debounce', 'cannot be asked for in a transaction; submit over HTTP');
  end if;
  if given #>> '{unique,onConflict}' = 'replace' then
    perform refuse_submission('field-invalid', 'unique.onConflict',
                              'replace cannot be asked for in a transaction; submit over HTTP');
  end if;
  perform refuse_unknown_members(given, array['queue', 'priority', 'delayMs', 'runAt', 'deadline', 'maxAttempts', 'tags',
                                             'businessKey', 'unique', 'throttle', 'webhook', 'idempotencyKey'], '', 'a submission');
  chosen := option_integer(given, 'priority', 0, 9);
  tries := option_integer(given, 'maxAttempts', 1, 100);
  delay_ms := option_integer(given, 'delayMs', 0, 31622400000);
  run_at := option_instant(given, 'runAt');
  deadline := option_instant(given, 'deadline');
  tags := option_tags(given);
  business_key := option_text(given, 'businessKey', 200);
  idem_key := option_text(given, 'idempotencyKey', 255);
  if delay_ms is not null and run_at is not null then
    perform refuse_submission('field-invalid', 'runAt', 'must not be given together with delayMs');
  end if;
  rule := nullif(given -> 'throttle', 'null');
  if rule is not null then
    if nullif(given -> 'unique', 'null') is not null then
      perform refuse_submission('field-invalid', 'throttle', 'must not be given together with unique');
    end if;
    perform refuse_unknown_members(rule, array['key', 'withinMs'], 'throttle.', 'throttle');
    unique_key := option_text(rule, 'key', 200, 'throttle.');
    within_ms := option_integer(rule, 'withinMs', 1, 31622400000, 'throttle.');
    if within_ms is null then perform refuse_submission('field-invalid', 'throttle.withinMs', 'is required'); end if;
    if unique_key is null then perform refuse_submission('field-invalid', 'throttle.key', 'is required'); end if;
  end if;
  rule := nullif(given -> 'unique', 'null');
  if rule is not null then
    perform refuse_unknown_members(rule, array['key', 'while', 'withinMs', 'onConflict'], 'unique.', 'unique');
    unique_key := option_text(rule, 'key', 200, 'unique.');
    within_ms := option_integer(rule, 'withinMs', 1, 31622400000, 'unique.');
    hold := option_text(rule, 'while', 20, 'unique.');
    on_conflict := option_text(rule, 'onConflict', 20, 'unique.');
    if unique_key is null then perform refuse_submission('field-invalid', 'unique.key', 'is required'); end if;
    if hold not in ('waiting', 'unfinished') then
      perform refuse_submission('field-invalid', 'unique.while', 'must be one of waiting, unfinished');
    end if;
    if on_conflict not in ('return', 'reject') then
      perform refuse_submission('field-invalid', 'unique.onConflict', 'must be one of return, reject');
    end if;
    if hold is not null and within_ms is not null then
      perform refuse_submission('field-invalid', 'unique.withinMs', 'must not be given together with while');
    end if;
  end if;
  hold := case when unique_key is null then null when within_ms is not null then 'window' else coalesce(hold, 'unfinished') end;

  callback := option_webhook(given);

  -- The type, and what it says where the options say nothing.
  select * into known from task_types t where t.name = enqueue_task.type;
  if not found then perform refuse_submission('task-type-unknown', 'type', 'names no announced task type'); end if;
  if known.name = 'warren.webhook' then
    perform refuse_submission('field-invalid', 'type',
                              'is for Warren alone: it makes such tasks for those that ask for a webhook');
  end if;
  chosen_queue := coalesce(option_text(given, 'queue', 100), known.queue);
  if chosen_queue <> known.queue and not exists (select from queues q where q.name = chosen_queue) then
    perform refuse_submission('queue-unknown', 'queue', 'names no queue that there is');
  end if;

  -- The input: its bytes stay as they are.
  if input is null then perform refuse_submission('input-invalid', 'input', 'is required'); end if;
  if octet_length(input) > 262144 then
    perform refuse_submission('body-too-large', 'input', format('is %s bytes, the limit is 262144', octet_length(input)));
  end if;
  begin
    perform input::jsonb; -- refuses what json lets pass: U+0000, lone surrogates, numbers that nothing can hold
  exception when others then
    perform refuse_unreadable(input, sqlstate);
  end;
  value := input::json;
  if json_typeof(value) <> 'object' then perform refuse_submission('input-invalid', 'input', 'must be an object'); end if;
  fault := input_fault(value);
  if fault is not null then perform refuse_submission(fault[1], fault[2], fault[3]); end if;

  id := uuid_v7();
  duplicate := false;
  at := clock_timestamp();

  -- A call that comes again. Keys belong to the user of the session.
  if idem_key is not null then
    idem_digest := sha256(convert_to(jsonb_build_array(enqueue_task.type, enqueue_task.input, given)::text, 'UTF8'));
    loop
      insert into idempotency_keys (actor, key, task_id, digest)
      values (publisher, idem_key, enqueue_task.id, idem_digest)
      on conflict do nothing;
      exit when found;
      select k.task_id, k.digest, k.accepted_at < now() - interval '7 days' as is_past into holder
        from idempotency_keys k where k.actor = publisher and k.key = idem_key;
      if found and not holder.is_past then
        if holder.digest <> idem_digest then
          perform refuse_submission('idempotency-key-reused', 'idempotencyKey',
                                    format('belongs to task %s, accepted from another call', holder.task_id));
        end if;
        id := holder.task_id;
        duplicate := true;
        return;
      end if;
      delete from idempotency_keys k
       where k.actor = publisher and k.key = idem_key and k.accepted_at < now() - interval '7 days';
      rounds := rounds + 1;
      if rounds > 20 then raise exception 'the idempotency key changes hands too often' using errcode = '40001'; end if;
    end loop;
  end if;

  -- One at a time under a key: judged by its holder (docs/decisions/0018). Waits for a transaction that takes the same key.
  if unique_key is not null then
    loop
      insert into unique_keys (type, key, task_id, hold, until)
      values (known.name, unique_key, enqueue_task.id, hold, at + within_ms * interval '1 ms')
      on conflict do nothing;
      exit when found;
      select k.task_id,
             case k.hold
               when 'window' then k.until > clock_timestamp() and (t.id is not null or k.held_at < now() - interval '1 hour')
               when 'waiting' then coalesce(t.state in ('pending', 'scheduled', 'retrying', 'blocked'), false)
               else coalesce(t.state not in ('succeeded', 'dead', 'cancelled', 'expired'), false)
             end as is_held
        into holder
        from unique_keys k left join tasks t on t.id = k.task_id
       where k.type = known.name and k.key = unique_key;
      if found and holder.is_held then
        if on_conflict = 'reject' then
          perform refuse_submission('unique-conflict', 'unique.key', format('is held by task %s', holder.task_id));
        end if;
        update idempotency_keys k set task_id = holder.task_id, became = 'existing'
         where idem_key is not null and k.actor = publisher and k.key = idem_key;
        id := holder.task_id;
        duplicate := true;
        return;
      end if;
      if found then
        delete from unique_keys k
         where k.type = known.name and k.key = unique_key and k.task_id = holder.task_id;
      end if;
      rounds := rounds + 1;
      if rounds > 20 then raise exception 'the unique key changes hands too often' using errcode = '40001'; end if;
    end loop;
  end if;

  -- The task, the books, what waits for an instant, the invitation.
  run_at := case when delay_ms > 0 then at + delay_ms * interval '1 ms' when run_at > at then run_at end;
  waits := run_at is not null;
  turn := turn_key(chosen_queue, convert_to(enqueue_task.input, 'UTF8'));
  is_held_back := not waits and (turn is not null
                                 or exists (select from queues q where q.name = chosen_queue and q.mode = 'draining'));
  insert into tasks (id, accepted_at, invited_at, run_at, deadline, state, max_attempts, priority, type, queue, business_key,
                     publisher, tags, input, concurrency_key, rate_key, trace)
  values (enqueue_task.id, at, case when not waits and not is_held_back then at end, run_at, deadline,
          case when waits then 'scheduled' else 'pending' end::task_state, coalesce(tries, known.max_attempts),
          coalesce(chosen, known.priority), known.name, chosen_queue, business_key, publisher, tags,
          convert_to(enqueue_task.input, 'UTF8'),
          case when known.description ? 'concurrency' then limit_key(known.description #>> '{concurrency,key}', value) end,
          case when known.description ? 'rate' then limit_key(known.description #>> '{rate,key}', value) end, trace);
  insert into ledger_entries as l (hour, type, entry, backend, tasks)
  values (task_hour(enqueue_task.id), known.name, 'accepted', pg_backend_pid(), 1)
  on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks;
  if waits or deadline is not null then
    insert into due (task_id, at) values (enqueue_task.id, least(run_at, deadline));
  end if;
  if callback is not null then
    insert into callbacks (task_id, callback) values (enqueue_task.id, callback);
  end if;
  if is_held_back then
    insert into held_back (task_id, reason, scope, key, priority)
    values (enqueue_task.id, case when turn is null then 'draining' else 'turn' end, chosen_queue, coalesce(turn, ''),
            coalesce(chosen, known.priority));
  elsif not waits then
    insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
    values (at, array[enqueue_task.id], array[known.name], array[chosen_queue],
            array[coalesce(chosen, known.priority)]::smallint[], array[1]);
  end if;
end $$;
