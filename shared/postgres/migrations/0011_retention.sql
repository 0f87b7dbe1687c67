-- Partitions of tasks by time: made ahead, and retired with the few tasks that stay put into one that takes their place.
-- breaking: no
--
-- Statements that change tables take names, so they stand here as functions; which to call, and when, is retention's to say.
-- Each waits 100 ms for a lock at most: whoever claims or settles stands behind it meanwhile.

-- The instant in an id.
create function id_instant(id uuid) returns timestamptz language sql immutable parallel safe as $$
  select timestamptz 'epoch' + ('x' || encode(substring(uuid_send(id) from 1 for 6), 'hex'))::bit(48)::bigint * interval '1 ms'
$$;

-- A retirement under way; at most one. `target` takes the place of `sources` when every task was looked at: those up to
-- `walked_to` were, and those of them that stay are in it. Triggers on the sources keep it in step.
create table task_retirements (
  is_only_row boolean     primary key default true check (is_only_row),
  target      text        not null,
  sources     text[]      not null,
  lower_id    uuid        not null,
  upper_id    uuid        not null,
  walked_to   uuid        not null,
  kept        bigint      not null default 0,
  retired     bigint      not null default 0,
  is_broken   boolean     not null default false,
  began_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- What the retirement under way takes out of the tasks, for the ledger: counted there when it is done.
create table task_retirement_counts (
  hour  integer not null,
  type  text    not null,
  tasks bigint  not null,
  primary key (hour, type)
) with (fillfactor = 50);

-- Partitions that were taken out and are still to be dropped.
create table retired_partitions (
  name       text        primary key,
  retired_at timestamptz not null default clock_timestamp()
);

-- Partitions in which more tasks stay than are worth moving. Until then their tasks are removed row by row.
create table held_partitions (
  name text        primary key,
  till timestamptz not null
);

-- A check by which Postgres knows, without reading the default partition, that nothing of a range is in it.
create function guard_default_partition(lower_id uuid, upper_id uuid) returns void language plpgsql
set lock_timeout = '100ms' as $$
begin
  execute 'alter table tasks_default drop constraint if exists tasks_default_guard';
  execute format('alter table tasks_default add constraint tasks_default_guard check (id < %L or id >= %L) not valid',
                 lower_id, upper_id);
end
$$;
create function unguard_default_partition() returns void language plpgsql set lock_timeout = '100ms' as $$
begin
  if exists (select from pg_constraint where conrelid = 'tasks_default'::regclass and conname = 'tasks_default_guard') then
    execute 'alter table tasks_default drop constraint tasks_default_guard';
  end if;
end
$$;

-- Makes a partition. The few tasks of its range that a clock ahead of time has put into the default partition move along.
-- Everybody is seen out first. Attaching asks for less, but who has planned before would miss the tasks that moved, and an insert
-- that had chosen the default partition before would be refused by it (23514).
create function add_task_partition(part text, lower_id uuid, upper_id uuid) returns void language plpgsql
set lock_timeout = '100ms' as $$
begin
  execute format('create table %I (like tasks including all) with (fillfactor = 30)', part);
  lock table only tasks in access exclusive mode;
  execute format('with early as (delete from tasks_default where id >= $1 and id < $2 returning *)
                  insert into %I select * from early', part) using lower_id, upper_id;
  execute format('alter table tasks attach partition %I for values from (%L) to (%L)', part, lower_id, upper_id);
  perform unguard_default_partition();
end
$$;

-- Keeps what takes the place of a partition in step with it. Never fails the statement that fired it: a retirement that
-- cannot be kept in step is given up.
create function follow_into_target() returns trigger language plpgsql as $$
declare
  was_kept integer := 0;
begin
  if tg_op <> 'INSERT' then
    execute format('delete from %I where id = $1', tg_argv[0]) using old.id;
    get diagnostics was_kept = row_count;
    -- Judged as over, and changed or removed all the same: no longer for this retirement to count.
    if was_kept = 0 and exists (select from task_retirements where walked_to >= old.id) then
      insert into task_retirement_counts as c (hour, type, tasks) values (task_hour(old.id), old.type, -1)
      on conflict (hour, type) do update set tasks = c.tasks - 1;
    end if;
  end if;
  if tg_op <> 'DELETE' then
    execute format('insert into %I select ($1).*', tg_argv[0]) using new;
  end if;
  return null;
exception
  when deadlock_detected or serialization_failure or lock_not_available or query_canceled then raise;
  when others then
    update task_retirements set is_broken = true;
    return null;
end
$$;

-- Sees autovacuum out of a partition that is about to go: it would hold up the 100 ms, and there is nothing left to win.
create function quiet_partition(part text) returns void language plpgsql set lock_timeout = '3s' as $$
begin
  if to_regclass(quote_ident(part)) is null then return; end if;
  execute format('alter table %I set (autovacuum_enabled = false, toast.autovacuum_enabled = false)', part);
end
$$;

-- Begins to retire partitions that lie side by side.
create function begin_task_retirement(new_target text, of_sources text[], from_id uuid, to_id uuid) returns void
language plpgsql set lock_timeout = '100ms' as $$
declare
  source text;
begin
  execute format('create table %I (like tasks including all, constraint retirement_range check (id >= %L and id < %L))
                  with (fillfactor = 30)', new_target, from_id, to_id);
  foreach source in array of_sources loop
    execute format('create trigger follow_into_target after insert or update or delete on %I
                    for each row execute function follow_into_target(%L)', source, new_target);
  end loop;
  insert into task_retirements (target, sources, lower_id, upper_id, walked_to)
  values (new_target, of_sources, from_id, to_id, '00000000-0000-0000-0000-000000000000');
end
$$;

-- Copies tasks that stay. Locks them in id order, so that whoever changes one does it before, or after and then in step.
create function keep_tasks(ids uuid[]) returns integer language plpgsql as $$
declare
  kept integer;
begin
  execute format('insert into %I select t.* from tasks t where t.id = any($1) order by t.id for no key update of t
                  on conflict do nothing', (select target from task_retirements)) using ids;
  get diagnostics kept = row_count;
  return kept;
end
$$;

-- Takes tasks whose time is over out of the target: one that changed after the retirement began, and before it was judged, was put
-- there. Only erasing changes what is over, and that waits for its turn, so none comes back.
create function leave_tasks(ids uuid[]) returns void language plpgsql as $$
begin
  execute format('delete from %I where id = any($1)', (select target from task_retirements)) using ids;
end
$$;

-- Puts the target where the sources were, in one transaction that sees everybody else out first. Counts what is gone.
create function finish_task_retirement() returns void language plpgsql set lock_timeout = '100ms' as $$
declare
  r      task_retirements;
  source text;
  is_any boolean;
begin
  lock table only tasks in access exclusive mode;
  select * into strict r from task_retirements for update;
  if r.is_broken then raise exception 'the retirement of % is broken', r.sources; end if;
  foreach source in array r.sources loop
    execute format('alter table tasks detach partition %I', source);
    execute format('drop trigger follow_into_target on %I', source);
    insert into retired_partitions (name) values (source);
    delete from held_partitions where name = source;
  end loop;
  execute format('select exists (select from %I)', r.target) into is_any;
  if is_any then
    execute format('alter table tasks attach partition %I for values from (%L) to (%L)', r.target, r.lower_id, r.upper_id);
    execute format('alter table %I drop constraint retirement_range', r.target);
  else
    execute format('drop table %I', r.target);
  end if;
  insert into ledger_entries as l (hour, type, entry, backend, tasks)
  select hour, type, 'retired', pg_backend_pid(), tasks from task_retirement_counts where tasks > 0 order by 1, 2
  on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks;
  delete from task_retirement_counts;
  delete from task_retirements;
  perform unguard_default_partition();
end
$$;

-- Gives a retirement up: the sources stay as they are.
create function abandon_task_retirement() returns void language plpgsql set lock_timeout = '100ms' as $$
declare
  r      task_retirements;
  source text;
begin
  select * into r from task_retirements for update;
  if not found then return; end if;
  foreach source in array r.sources loop
    execute format('drop trigger if exists follow_into_target on %I', source);
  end loop;
  execute format('drop table if exists %I', r.target);
  delete from task_retirement_counts;
  delete from task_retirements;
end
$$;

-- Drops a partition that was taken out. Nobody looks for it any more.
create function drop_retired_partition(part text) returns void language plpgsql set lock_timeout = '2s' as $$
begin
  if exists (select from pg_inherits where inhrelid = to_regclass(quote_ident(part))) then
    raise exception '% is still a partition', part;
  end if;
  execute format('drop table if exists %I', part);
  delete from retired_partitions where name = part;
end
$$;

-- What is removed by age.
create index dead_letters_closed on dead_letters (closed_at) where closed_at is not null;
create index replays_finished on replays (finished_at) where finished_at is not null;
create index failure_group_hours_hour on failure_group_hours (hour);

-- Who had whose payloads erased.
create table erasures (
  id        uuid        primary key,
  at        timestamptz not null default clock_timestamp(),
  actor     text        not null,
  reason    text        not null,
  counts    jsonb       not null default '{}',
  ended_at  timestamptz
);

-- Tasks whose payloads were erased.
create table erased_tasks (
  task_id    uuid        primary key,
  erasure_id uuid        not null,
  erased_at  timestamptz not null default clock_timestamp()
);

alter table dead_letters add column erased_at timestamptz;
