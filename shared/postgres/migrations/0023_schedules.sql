-- Schedules: tasks and flows that are started again and again, or once at an instant (docs/decisions/0031).
-- breaking: no
--
-- Order of locks: a schedule, then its occurrences, then what its runs are.

-- What is to be started when. `definition`: the JSON text that was asked for, which says all but what stands here.
--   source   code: defined beside task types, changed by `warren types apply` alone
--   next_at  the next instant of its calendar that has not been decided about; null where there is none any more
--   wake_at  when it is to be looked at: at the next instant (later by its jitter), or because something waits or runs; null while it is paused
create table schedules (
  id           uuid        primary key,
  name         text        not null,
  definition   text        not null,
  source       text        not null check (source in ('api', 'code')),
  created_at   timestamptz not null default clock_timestamp(),
  created_by   text        not null,
  updated_at   timestamptz not null default clock_timestamp(),
  updated_by   text        not null,
  paused_at    timestamptz,
  paused_by    text,
  pause_reason text,
  next_at      timestamptz,
  wake_at      timestamptz
) with (fillfactor = 50);
create unique index schedules_name on schedules (name);
create index schedules_wake_at on schedules (wake_at) where wake_at is not null;

-- What became of an instant of a schedule: there is one row of it, whoever decides, so that nothing is started twice.
--   is_manual  somebody asked for it, at that instant
--   from_at    the row stands for all instants from this one on
--   why        why it was skipped
--   run_id     the task, or the flow, that was started
--   is_open    its run has not been seen to have ended
--   outcome    the state in which its run ended
create table occurrences (
  schedule_id uuid        not null,
  at          timestamptz not null,
  is_manual   boolean     not null default false,
  state       text        not null check (state in ('waiting', 'started', 'skipped')),
  cause       text        not null check (cause in ('due', 'catchUp', 'manual')),
  from_at     timestamptz,
  why         text,
  detail      text,
  run_id      uuid,
  is_flow     boolean     not null default false,
  is_open     boolean     not null default false,
  outcome     text,
  asked_by    text,
  decided_at  timestamptz not null default clock_timestamp(),
  primary key (schedule_id, at, is_manual)
);
create index occurrences_open on occurrences (schedule_id, at) where is_open;
create index occurrences_waiting on occurrences (schedule_id, at) where state = 'waiting';
create index occurrences_decided_at on occurrences (decided_at);
