-- Lines that attempts logged, and side effects that tasks do once.
-- breaking: no
--
-- Beside the hot rows: a task that logs nothing that is kept, and does nothing once, has a row in neither.

-- What an attempt logged, bounded. `lines` is a JSON array, oldest first; between its first and its last lines `dropped` are left
-- out. As text, since jsonb cannot hold U+0000.
create table attempt_logs (
  task_id uuid    not null,
  attempt integer not null,
  lines   text    not null,
  dropped integer not null check (dropped >= 0),
  primary key (task_id, attempt)
);

-- A side effect of a task: begun, and finished with its result. One that is begun and not finished by an attempt that is over was
-- cut in the middle. `run_id` is random per run, so that a start whose answer was lost is known again.
create table once_runs (
  task_id     uuid        not null,
  key         text        not null,
  run_id      uuid        not null,
  attempt     integer     not null,
  started_at  timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  result      bytea,
  primary key (task_id, key),
  check (finished_at is not null or result is null)
);
