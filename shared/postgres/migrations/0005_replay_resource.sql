-- A replay is a thing of its own: which letters, in which waves, and what became of each.
-- breaking: no

create table replays (
  id               uuid        primary key,
  version          integer     not null default 1,
  state            text        not null check (state in ('waiting', 'running', 'paused', 'stopped', 'cancelled', 'finished')),
  state_reason     text,
  created_at       timestamptz not null default clock_timestamp(),
  created_by       text        not null,
  role             text        not null,
  reason           text,
  finished_at      timestamptz,
  -- What was asked for: {"ids": 3}, {"group": id} or {"filter": text}.
  selection        jsonb       not null,
  items            integer     not null,
  waves            jsonb       not null,
  stop_after       integer     check (stop_after >= 1),
  wave_timeout_ms  integer     check (wave_timeout_ms >= 1),
  rate             float8      check (rate > 0),
  queue            text,
  priority         smallint    check (priority between 0 and 9),
  patch            bytea,
  wait_for_version text,
  types            text[],
  -- The wave under way and the numbers of its first and last item; item `next_n` is sent next.
  wave             integer     not null default 0,
  wave_start       integer     not null default 1,
  wave_end         integer     not null default 0,
  next_n           integer     not null default 1,
  wave_sent_at     timestamptz,
  -- False where the rest of the wave is no longer waited for.
  awaits           boolean     not null default true,
  -- Failures up to this instant were seen when somebody said to go on.
  judged_from      timestamptz not null default '-infinity',
  -- The instant up to which the rate is used up.
  paced_at         timestamptz not null default clock_timestamp(),
  -- When a runner looks at it next, null where nothing is left to do; a runner that works on it has moved this ahead.
  look_at          timestamptz default clock_timestamp(),
  check ((finished_at is not null) = (state in ('cancelled', 'finished')))
) with (fillfactor = 50);
create index replays_look_at on replays (look_at) where look_at is not null;

-- The frozen selection. `attempt`: the task's attempt when it was sent; each greater one is of this replay.
create table replay_items (
  replay_id     uuid        not null,
  n             integer     not null,
  letter_id     uuid        not null,
  state         text        not null default 'waiting'
                            check (state in ('waiting', 'sent', 'succeeded', 'dead', 'ended', 'returned', 'skipped')),
  wave          integer,
  task_id       uuid,
  attempt       integer,
  sent_at       timestamptz,
  -- The first new attempt: when it was judged, and of which failure it was where it failed.
  judged_at     timestamptz,
  fingerprint   uuid,
  is_same       boolean,
  error_type    text,
  error_message text,
  new_letter_id uuid,
  code          text,
  why           text,
  primary key (replay_id, n)
) with (fillfactor = 50);
create unique index replay_items_letter on replay_items (letter_id, replay_id);
create index replay_items_sent on replay_items (replay_id, n) where state = 'sent';
create index replay_items_unjudged on replay_items (replay_id, n) where state = 'sent' and judged_at is null;
create index replay_items_failed on replay_items (replay_id, wave) where fingerprint is not null;

-- Inputs as they were before a replay mended them, by the letter that was replayed.
create table mended_inputs (
  letter_id uuid        primary key,
  replay_id uuid        not null,
  input     bytea       not null,
  mended_at timestamptz not null default clock_timestamp()
);

-- The replay that closed the letter.
alter table dead_letters add column replay_id uuid;
