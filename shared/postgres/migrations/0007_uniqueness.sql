-- Keys under which a task is the only one, and keys of HTTP requests that may come twice.
-- breaking: no

-- Who holds a unique key of a task type. How long it is held is not written down by whatever moves the task: whoever comes next
-- looks at the holder. So the key costs nothing but at submission. `hold`: while the task waits, while it has not ended, or until
-- `until` whatever becomes of it.
create table unique_keys (
  type    text        not null,
  key     text        not null,
  task_id uuid        not null,
  hold    text        not null check (hold in ('waiting', 'unfinished', 'window')),
  held_at timestamptz not null default clock_timestamp(),
  until   timestamptz,
  primary key (type, key),
  check ((hold = 'window') = (until is not null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- Idempotency-Keys of requests, so that a request repeated within seven days makes no second task. `became`: what was answered.
create table idempotency_keys (
  actor       text        not null,
  key         text        not null,
  task_id     uuid        not null,
  digest      bytea       not null,
  became      text        not null default 'accepted' check (became in ('accepted', 'existing', 'replaced', 'batch')),
  accepted_at timestamptz not null default now(),
  primary key (actor, key)
);
create index idempotency_keys_accepted_at on idempotency_keys (accepted_at);
