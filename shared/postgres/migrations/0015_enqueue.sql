-- Tasks accepted inside the caller's own transaction, in any language: `select enqueue('mail.send', '{"to": "a@example.com"}')`.
-- breaking: no
--
-- What acceptance over HTTP checks and writes, checked and written by Postgres, but for the input's schema, which workers check.
-- `test/once/enqueue.test.ts` holds both doors to the same answers and the same rows. A caller needs no right but to execute: the
-- functions work as their owner, with this schema and nothing of the caller's on their path.

-- `pg_temp` comes last, so that no temporary table of the caller stands in for one of ours; `from current` below keeps it so.
select set_config('search_path', current_setting('search_path') || ', pg_temp', true);

-- Refuses a submission. Programs find the code in `constraint` and the field in `column`.
create function refuse_submission(code text, field text, reason text) returns void language plpgsql as $$
begin
  raise exception using
    message = field || ' ' || reason,
    detail = code,
    constraint = code,
    column = field,
    errcode = case code
      when 'task-type-unknown' then '42704'
      when 'queue-unknown' then '42704'
      when 'unique-conflict' then '23505'
      when 'body-too-large' then '54000'
      when 'body-too-deep' then '54000'
      when 'body-invalid' then '22P02'
      when 'text-invalid' then '22P05'
      when 'number-not-exact' then '22003'
      else '22023'
    end;
end $$;

-- What is wrong with a number of more than 15 characters or with an exponent: JavaScript, in which handlers read it, would change
-- it (docs/decisions/0005). Null: nothing.
create function number_fault(literal text) returns text language plpgsql immutable as $$
declare
  value numeric;
begin
  value := literal::numeric;
  if abs(value) >= 1.797693134862315807e308 then return 'is larger than a number can be; send it as a string'; end if;
  if abs(value) <= 2.4703282292062327e-324 and literal ~ '^-?[0.]*[1-9]' then
    return 'is smaller than a number can be; send it as a string';
  end if;
  if literal !~ '[.eE]' and abs(value) > 9007199254740991 then
    return 'is an integer beyond 2^53-1; send it as a string';
  end if;
  if literal ~ '[.eE]' and value = trunc(value) and value <> value::float8::text::numeric then
    return 'is an integer of more digits than a number keeps; send it as a string';
  end if;
  return null;
exception when numeric_value_out_of_range then
  return 'is larger or smaller than a number can be; send it as a string';
end $$;

-- Says why Postgres could not read an input, by the state that it failed with.
create function refuse_unreadable(input text, state text) returns void language plpgsql stable as $$
begin
  case state
    when '54001' then perform refuse_submission('body-too-deep', 'input', 'nests deeper than 64 levels');
    when '22003' then
      perform refuse_submission('number-not-exact', 'input', 'has a number larger than a number can be; send it as a string');
    else
      begin
        perform input::json;
      exception when others then
        perform refuse_submission('body-invalid', 'input', 'is not valid JSON');
      end;
      perform refuse_submission('text-invalid', 'input', 'holds U+0000 or a lone surrogate');
  end case;
end $$;

-- The first thing that is wrong with an input beside its grammar: code, field, reason. Null: nothing.
-- PL/pgSQL keeps its plan, which takes longer to make than an input to walk.
create function input_fault(input json) returns text[] language plpgsql stable as $$
declare
  found text[];
begin
  with recursive walk (value, kind, depth, path) as (
    select input, json_typeof(input), 1, 'input'
    union all
    select below.value, json_typeof(below.value),
           w.depth + case when json_typeof(below.value) in ('object', 'array') then 1 else 0 end,
           w.path || below.step
      from walk w
      cross join lateral (
        select member.value,
               case when member.key ~ '^[A-Za-z_$][A-Za-z0-9_$]*$' then '.' || member.key
                    else '[' || to_json(member.key)::text || ']' end as step
          from json_each(case w.kind when 'object' then w.value else '{}' end) as member
        union all
        select item.value, '[' || (item.place - 1) || ']'
          from json_array_elements(case w.kind when 'array' then w.value else '[]' end)
               with ordinality as item (value, place)
      ) below
     where w.kind in ('object', 'array') and w.depth <= 64
  )
  select array[fault.code, w.path, fault.reason] into found
    from walk w
    cross join lateral (
      select 'body-too-deep' as code, 'nests deeper than 64 levels' as reason
       where w.kind in ('object', 'array') and w.depth > 64
      union all
      select 'number-not-exact', found.reason
        from (select number_fault(w.value::text) as reason
               where w.kind = 'number' and (length(w.value::text) > 15 or w.value::text ~ '[eE]')) found
       where found.reason is not null
      union all
      select 'body-invalid', 'has the member ' || to_json(twice.key)::text || ' twice'
        from (
          select key from json_object_keys(case w.kind when 'object' then w.value else '{}' end) as k (key)
           group by key having count(*) > 1 limit 1
        ) twice
    ) fault
   limit 1;
  return found;
end $$;

-- A JSON value as JSON.stringify writes it, since keys of limits must be the same at each door.
create function json_as_written(value json) returns text language plpgsql stable as $$
declare
  number float8;
begin
  case json_typeof(value)
    when 'string' then return to_json(value #>> '{}')::text;
    when 'number' then
      number := value::text::float8;
      return case
        when number = 0 then '0'
        when abs(number) >= 1e21 or abs(number) < 1e-6 then regexp_replace(number::text, 'e([+-])0+', 'e\1')
        else trim_scale(number::text::numeric)::text
      end;
    when 'array' then
      return '[' || coalesce((select string_agg(json_as_written(item), ',' order by place)
                                from json_array_elements(value) with ordinality as i (item, place)), '') || ']';
    when 'object' then
      -- Names that are array indexes come first, in their order: so JavaScript keeps objects.
      return '{' || coalesce((
        select string_agg(to_json(key)::text || ':' || json_as_written(member), ',' order by
                 case when key ~ '^(0|[1-9][0-9]{0,9})$' and key::numeric < 4294967295 then key::numeric end nulls last, place)
          from json_each(value) with ordinality as m (key, member, place)), '') || '}';
    else return value::text;
  end case;
end $$;

-- Under which key an input counts towards a limit of its type; the twin of `shared/tasks/limit-key.ts`.
create function limit_key(path text, input json) returns text language plpgsql stable as $$
declare
  value json := input;
  step  text;
  key   text;
begin
  if path is null then return ''; end if;
  foreach step in array (string_to_array(path, '.'))[2:] loop
    value := case json_typeof(value)
      when 'object' then value -> step
      when 'array' then case
        when step = 'length' then to_json(json_array_length(value))
        when step ~ '^(0|[1-9][0-9]{0,8})$' then value -> step::integer
      end
    end;
    if value is null or json_typeof(value) = 'null' then return ''; end if;
  end loop;
  key := case when json_typeof(value) = 'string' then value #>> '{}' else json_as_written(value) end;
  return case when length(key) <= 200 then key else encode(sha256(convert_to(key, 'UTF8')), 'hex') end;
end $$;

-- An integer option. Null where it is absent. `lowest` and `highest` are inclusive.
create function option_integer(options jsonb, name text, lowest bigint, highest bigint, prefix text default '') returns bigint
language plpgsql stable as $$
declare
  value jsonb := options -> name;
begin
  if value is null or value = 'null' then return null; end if;
  if jsonb_typeof(value) = 'number' then
    if value::numeric = trunc(value::numeric) and value::numeric between lowest and highest then
      return value::numeric::bigint;
    end if;
  end if;
  perform refuse_submission('field-invalid', prefix || name, format('must be an integer from %s to %s', lowest, highest));
end $$;

-- A text option of 1 to `longest` characters. Null where it is absent.
create function option_text(options jsonb, name text, longest integer, prefix text default '') returns text
language plpgsql stable as $$
declare
  value jsonb := options -> name;
begin
  if value is null or value = 'null' then return null; end if;
  if jsonb_typeof(value) <> 'string' or length(value #>> '{}') not between 1 and longest then
    perform refuse_submission('field-invalid', prefix || name, format('must be a text of 1 to %s characters', longest));
  end if;
  return value #>> '{}';
end $$;

-- An instant as an option: RFC 3339 with an offset, from 1970 to 9999, kept to the millisecond. Null where it is absent.
create function option_instant(options jsonb, name text) returns timestamptz language plpgsql stable as $$
declare
  value jsonb := options -> name;
  found timestamptz;
  rule  text := 'must be an RFC 3339 instant with an offset, from 1970 to 9999, such as 2030-01-31T12:00:00Z';
begin
  if value is null or value = 'null' then return null; end if;
  if jsonb_typeof(value) <> 'string' or value #>> '{}' !~
     '^\d{4}-\d{2}-\d{2}T(([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?|24:00(:00(\.0{1,9})?)?)(Z|[+-]\d{2}:\d{2})$' then
    perform refuse_submission('field-invalid', name, rule);
  end if;
  begin
    -- Cut, not rounded, as JavaScript reads it: a microsecond of its own would round up.
    found := regexp_replace(value #>> '{}', '(\.\d{3})\d+', '\1')::timestamptz;
  exception when others then
    perform refuse_submission('field-invalid', name, rule);
  end;
  if found < 'epoch' or found >= '10000-01-01T00:00:00Z' then perform refuse_submission('field-invalid', name, rule); end if;
  return found;
end $$;

create function option_tags(options jsonb) returns text[] language plpgsql stable as $$
declare
  value jsonb := options -> 'tags';
  tags  text[];
begin
  if value is null or value = 'null' then return null; end if;
  if jsonb_typeof(value) <> 'array' then
    perform refuse_submission('field-invalid', 'tags', 'must be a list of texts');
  end if;
  if jsonb_array_length(value) > 20 then perform refuse_submission('field-invalid', 'tags', 'must be at most 20 tags'); end if;
  perform refuse_submission('field-invalid', format('tags[%s]', place - 1), 'must be a text of 1 to 100 characters')
     from jsonb_array_elements(value) with ordinality as t (tag, place)
    where jsonb_typeof(tag) <> 'string' or length(tag #>> '{}') not between 1 and 100;
  select array_agg(tag order by first) into tags
    from (select tag, min(place) as first
            from jsonb_array_elements_text(value) with ordinality as t (tag, place) group by tag) once;
  return tags;
end $$;

-- Who is to be told of the end, as it is kept. Whether the URL may be called is judged when it is called.
create function option_webhook(options jsonb) returns jsonb language plpgsql stable as $$
declare
  value  jsonb := nullif(options -> 'webhook', 'null');
  states jsonb := nullif(value -> 'states', 'null');
begin
  if value is null then return null; end if;
  perform refuse_unknown_members(value, array['url', 'states'], 'webhook.', 'webhook');
  if option_text(value, 'url', 2048, 'webhook.') is null then
    perform refuse_submission('field-invalid', 'webhook.url', 'is required');
  end if;
  if value ->> 'url' !~* '^https?://[^/]' then
    perform refuse_submission('field-invalid', 'webhook.url', 'must be an https URL');
  end if;
  if states is not null then
    if jsonb_typeof(states) <> 'array' or states = '[]' then
      perform refuse_submission('field-invalid', 'webhook.states', 'must be a list of states');
    end if;
    perform refuse_submission('field-invalid', format('webhook.states[%s]', place - 1), 'must be an end of a task')
       from jsonb_array_elements(states) with ordinality as s (state, place)
      where state not in ('"succeeded"', '"dead"', '"cancelled"', '"expired"');
    states := (select jsonb_agg(state order by first)
                 from (select state, min(place) as first
                         from jsonb_array_elements(states) with ordinality as s (state, place) group by state) once);
  end if;
  return jsonb_strip_nulls(jsonb_build_object('kind', 'webhook', 'url', value -> 'url', 'states', states));
end $$;

-- Refuses members that nobody knows.
create function refuse_unknown_members(value jsonb, known text[], prefix text, what text) returns void
language plpgsql stable as $$
begin
  if jsonb_typeof(value) <> 'object' then
    perform refuse_submission('field-invalid', case prefix when '' then 'options' else rtrim(prefix, '.') end, 'must be an object');
  end if;
  perform refuse_submission('field-invalid', prefix || left(name, 100), 'is not a member of ' || what)
     from jsonb_object_keys(value) as k (name)
    where name <> all (known);
end $$;

-- Accepts a task in the transaction of the caller, with all that stands beside it. `duplicate`: the task was there before, because
-- its unique key is held or its idempotency key came before. The sweeper takes the invitation at once after the commit. The settings
-- hold for all that it calls: the caller's must not change how a number is written, or what a backslash means.
create function enqueue_task(type text, input text, options jsonb default '{}', out id uuid, out duplicate boolean)
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
begin
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
                     publisher, tags, input, concurrency_key, rate_key)
  values (enqueue_task.id, at, case when not waits and not is_held_back then at end, run_at, deadline,
          case when waits then 'scheduled' else 'pending' end::task_state, coalesce(tries, known.max_attempts),
          coalesce(chosen, known.priority), known.name, chosen_queue, business_key, publisher, tags,
          convert_to(enqueue_task.input, 'UTF8'),
          case when known.description ? 'concurrency' then limit_key(known.description #>> '{concurrency,key}', value) end,
          case when known.description ? 'rate' then limit_key(known.description #>> '{rate,key}', value) end);
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

-- The same, for callers that want the id alone.
create function enqueue(type text, input text, options jsonb default '{}') returns uuid
language plpgsql security definer set search_path from current as $$
begin
  return (select id from enqueue_task(type, input, options));
end $$;

create function enqueue(type text, input jsonb, options jsonb default '{}') returns uuid
language plpgsql security definer set search_path from current as $$
begin
  return (select id from enqueue_task(type, input::text, options));
end $$;

-- Nobody may, until somebody grants it: functions are everybody's otherwise.
revoke all on function enqueue_task(text, text, jsonb), enqueue(text, text, jsonb), enqueue(text, jsonb, jsonb) from public;
