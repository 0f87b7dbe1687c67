-- Who wants to be told how a task ended, and what happens to tasks for whoever listens.
-- breaking: no

-- One row a task that has such a wish: `callback` is a webhook or the queue of a publisher. Written with the task, and gone once all
-- is told that there can be: what is dead may be replayed, and end again, so its row stays, with `is_waiting` false until then.
-- `taken_until`: some producer is about to tell; after that instant another one may.
create table callbacks (
  task_id     uuid        primary key,
  callback    jsonb       not null,
  is_waiting  boolean     not null default true,
  taken_until timestamptz
) with (fillfactor = 70);
create index callbacks_waiting on callbacks (task_id) where is_waiting;

-- Transitions of tasks that are to be published: a row is what one statement moved. Empty unless events are switched on.
create table lifecycle_events (
  id       bigint      generated always as identity primary key,
  at       timestamptz not null default clock_timestamp(),
  retry_at timestamptz not null default clock_timestamp(),
  task_ids uuid[]      not null,
  types    text[]      not null,
  queues   text[]      not null,
  states   text[]      not null,
  attempts integer[]   not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create function note_acceptances() returns trigger language plpgsql as $$
begin
  insert into lifecycle_events (task_ids, types, queues, states, attempts)
  select array_agg(id), array_agg(type), array_agg(queue), array_agg(state::text), array_agg(attempt)
    from new_rows having count(*) > 0;
  return null;
end
$$;

-- Services plan without hash joins; here two sets of rows without an index meet.
create function note_transitions() returns trigger language plpgsql set enable_hashjoin = on set enable_seqscan = on as $$
begin
  insert into lifecycle_events (task_ids, types, queues, states, attempts)
  select array_agg(n.id), array_agg(n.type), array_agg(n.queue), array_agg(n.state::text), array_agg(n.attempt)
    from new_rows n
    join old_rows o on o.id = n.id
   where n.state <> o.state
  having count(*) > 0;
  return null;
end
$$;

-- Has the table of tasks write its transitions down, or no longer; answers what was before. A trigger that is there costs every
-- statement, so there is none while nobody wants events.
create function switch_lifecycle_events(is_on boolean) returns boolean language plpgsql as $$
declare
  was_on boolean;
begin
  perform pg_advisory_xact_lock(hashtext('warren lifecycle events'));
  was_on := exists (select from pg_trigger where tgname = 'tasks_note_updates' and tgrelid = 'tasks'::regclass);
  if is_on and not was_on then
    create trigger tasks_note_inserts after insert on tasks referencing new table as new_rows
      for each statement execute function note_acceptances();
    create trigger tasks_note_updates after update on tasks referencing old table as old_rows new table as new_rows
      for each statement execute function note_transitions();
  elsif was_on and not is_on then
    drop trigger tasks_note_inserts on tasks;
    drop trigger tasks_note_updates on tasks;
  end if;
  return was_on;
end
$$;
