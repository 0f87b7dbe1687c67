-- Limits of task types: how many tasks of a type run at once, and how many start within a time, per key of their input.
-- breaking: yes
--
-- A worker that does not know limits would start tasks beyond them, so older ones must not start any more.

-- Null: the type of the task had no such limit when the task was accepted, and its claim asks nobody.
alter table tasks
  add column concurrency_key text,
  add column rate_key        text;

-- Who runs under a concurrency limit: `<task id>/<claim id>` per place. Whoever claims adds itself, while the row is locked; a place
-- whose claim no longer runs is free, and is taken out by whoever next looks for free places.
create table concurrency_groups (
  type   text   not null,
  key    text   not null,
  places text[] not null default '{}',
  primary key (type, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The latest starts under a rate limit, as many as the limit. `admitted`: how many the last claim added.
create table rate_groups (
  type     text          not null,
  key      text          not null,
  starts   timestamptz[] not null default '{}',
  admitted integer       not null default 0,
  primary key (type, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Tasks that are pending and invited by nobody on purpose. `scope`: the task type, for the reasons that are limits of one, else
-- the queue. A row whose task no longer waits so means nothing.
create table held_back (
  task_id  uuid        primary key,
  reason   text        not null check (reason in ('concurrency', 'rate', 'paused', 'draining', 'fair')),
  scope    text        not null,
  key      text        not null default '',
  priority smallint    not null,
  held_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index held_back_in_turn on held_back (reason, scope, key, priority desc, task_id);
