-- What estimates are made from: what a running task says beside its step, how long runs take, how fast queues are drained.
-- breaking: no

alter table progress add column message text;

-- How long attempts of a type take that succeed. `weights[i]` is of runs that took up to 2^((i-1)/2) milliseconds, 64 of them; what
-- was counted earlier weighs half after an hour. One row a type, written every few seconds by each worker that runs it.
create table run_times (
  type       text        primary key,
  weights    float8[]    not null,
  weighed_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Attempts that were started out of a queue at a priority within five seconds: `slot` counts these since 1970. `newest` is the
-- greatest id among their tasks, which is a time: what is older than it and was to go first has been started. Kept for ten minutes.
create table queue_starts (
  queue    text     not null,
  priority smallint not null,
  slot     bigint   not null,
  attempts bigint   not null,
  newest   uuid     not null,
  primary key (queue, priority, slot)
) with (fillfactor = 50);
