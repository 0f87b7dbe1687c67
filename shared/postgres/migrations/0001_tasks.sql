-- The task and all that stands beside it.
-- breaking: yes
--
-- Hot rows stay small and their updates HOT: no index, and no index predicate, names a column that a transition writes.
-- What must be found by state lives beside: `due` (has an instant to wait for), `claims` (is running), `dead_letters`.

create type task_state as enum (
  'pending', 'scheduled', 'blocked', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired'
);

-- A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits, for rows that a statement makes by itself.
create function uuid_v7() returns uuid language sql volatile parallel safe as $$
  select encode(
    set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid())
              placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
      52, 1), 53, 1), 'hex')::uuid
$$;

-- The installation that this database belongs to: one row, written by the first process that comes.
create table installation (
  is_only_row boolean     primary key default true check (is_only_row),
  prefix      text        not null,
  created_at  timestamptz not null default now()
);

-- Queues that exist, from configuration and from announced task types.
create table queues (
  name       text        primary key check (name ~ '^[a-z][a-z0-9]*([._-][a-z0-9]+)*$' and length(name) <= 100),
  created_at timestamptz not null default now()
);

-- Task types as workers announced them; the last announcement stands.
create table task_types (
  name         text        primary key,
  queue        text        not null references queues (name),
  priority     smallint    not null check (priority between 0 and 9),
  timeout_ms   bigint      not null check (timeout_ms > 0),
  max_attempts integer     not null check (max_attempts between 1 and 100),
  description  jsonb       not null,
  input_schema jsonb,
  code_version text        not null,
  announced_at timestamptz not null default clock_timestamp()
);

-- One unit of work. The id is a UUIDv7, so a range of ids is a range of time.
create table tasks (
  id             uuid        not null,
  claim_id       uuid,
  worker         uuid,
  accepted_at    timestamptz not null default clock_timestamp(),
  invited_at     timestamptz,
  started_at     timestamptz,
  finished_at    timestamptz,
  run_at         timestamptz,
  deadline       timestamptz,
  state          task_state  not null,
  generation     integer     not null default 1,
  attempt        integer     not null default 0,
  failures       integer     not null default 0,
  max_attempts   integer     not null,
  lost_attempts  smallint    not null default 0,
  lost_alone     smallint    not null default 0,
  priority       smallint    not null check (priority between 0 and 9),
  type           text        not null,
  queue          text        not null,
  business_key   text,
  external_id    text,
  publisher      text,
  correlation_id text,
  tags           text[],
  input          bytea       not null,
  result         bytea,
  primary key (id),
  check ((finished_at is not null) = (state in ('succeeded', 'dead', 'cancelled', 'expired'))),
  check (state <> 'running' or (claim_id is not null and worker is not null and started_at is not null)),
  check (state not in ('scheduled', 'retrying') or run_at is not null)
) partition by range (id);

-- Room on each page for both updates of every plain task on it, so that they stay there (HOT) without waiting for a prune:
-- 100 % of updates at 30, 70 % at 45, 62 % at 60 (200-byte inputs, two cores, 2026-11).
create table tasks_default partition of tasks default with (fillfactor = 30);

create index tasks_business_key on tasks (business_key, id) where business_key is not null;
create index tasks_external_id on tasks (external_id, id) where external_id is not null;
create index tasks_tags on tasks using gin (tags) where tags is not null;

-- What an AMQP publisher sent beside the input, kept for dead letters; only where there was anything.
create table origins (
  task_id     uuid  primary key,
  exchange    text  not null,
  routing_key text  not null,
  properties  jsonb not null,
  headers     jsonb not null
);

-- Message ids already accepted, so that a publish repeated within seven days makes no second task.
create table message_ids (
  publisher   text        not null,
  type        text        not null,
  message_id  text        not null,
  task_id     uuid        not null,
  digest      bytea       not null,
  accepted_at timestamptz not null default now(),
  primary key (publisher, type, message_id)
);
create index message_ids_accepted_at on message_ids (accepted_at);

-- Every attempt that did not succeed at once.
create table attempts (
  task_id       uuid        not null,
  attempt       integer     not null,
  worker        uuid        not null,
  started_at    timestamptz not null,
  finished_at   timestamptz not null,
  outcome       text        not null check (outcome in ('failed', 'timeout', 'deferred', 'interrupted', 'cancelled', 'lost')),
  error_type    text,
  error_code    text,
  error_message text,
  error_stack   text,
  code_version  text,
  primary key (task_id, attempt)
);

-- Invitations that the broker has not confirmed. A row is a batch: what one transaction made claimable together.
create table outbox (
  id          bigint      generated always as identity primary key,
  retry_at    timestamptz not null,
  task_ids    uuid[]      not null,
  types       text[]      not null,
  queues      text[]      not null,
  priorities  smallint[]  not null,
  generations integer[]   not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Tasks with an instant to wait for: their run_at, or their deadline while they wait.
create table due (
  task_id uuid        primary key,
  at      timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index due_at on due (at);

-- What is running: a row per claim, which is a batch. Goes when the last of its tasks is settled. `alone` is the task of it that
-- its worker started with nothing beside it.
create table claims (
  id         uuid        primary key,
  worker     uuid        not null,
  claimed_at timestamptz not null,
  task_ids   uuid[]      not null,
  alone      uuid
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index claims_worker on claims (worker);

-- Running tasks whose cancelling was asked for; their worker learns it with its next renewal.
create table cancel_requests (
  task_id      uuid        primary key,
  requested_at timestamptz not null default clock_timestamp(),
  requested_by text        not null
);

-- A worker's proof of life. Deleted by the reaper once it lapsed, or by the worker when it leaves.
create table leases (
  worker       uuid        primary key,
  started_at   timestamptz not null default clock_timestamp(),
  renewed_at   timestamptz not null default clock_timestamp(),
  host         text        not null,
  pid          integer     not null,
  code_version text        not null,
  queues       jsonb       not null,
  task_types   text[]      not null,
  slots        integer     not null,
  in_flight    integer     not null default 0,
  cpu_fraction real        not null default 0,
  memory_bytes bigint      not null default 0
) with (fillfactor = 50);

-- How far running tasks are, as their handlers say; only of those that say it.
create table progress (
  task_id    uuid        primary key,
  attempt    integer     not null,
  fraction   real        not null check (fraction between 0 and 1),
  step       text,
  updated_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- What died. `kind` task: the task row is the message. Otherwise the message never became a task: raw bytes are here.
create table dead_letters (
  id            uuid        primary key,
  kind          text        not null check (kind in ('task', 'refused', 'foreign')),
  task_id       uuid,
  state         text        not null default 'open' check (state in ('open', 'replaying', 'replayed', 'discarded')),
  reason        text        not null,
  type          text,
  queue         text,
  attempt       integer,
  died_at       timestamptz not null default clock_timestamp(),
  recorded_at   timestamptz,
  error_type    text,
  error_code    text,
  error_message text,
  error_stack   text,
  exchange      text,
  routing_key   text,
  body          bytea,
  properties    jsonb,
  headers       jsonb,
  x_death       jsonb,
  evidence_key  bytea,
  closed_at     timestamptz,
  closed_by     text,
  close_reason  text,
  check ((kind = 'task') = (task_id is not null and body is null)),
  check ((closed_at is not null) = (state in ('replayed', 'discarded')))
);
create unique index dead_letters_open_task on dead_letters (task_id) where state in ('open', 'replaying');
create unique index dead_letters_evidence on dead_letters (evidence_key) where evidence_key is not null;
create index dead_letters_task on dead_letters (task_id, id);
create index dead_letters_unrecorded on dead_letters (died_at) where kind = 'task' and recorded_at is null;
create index dead_letters_open on dead_letters (id) where state = 'open';

-- Who did what. Append only.
create table audit (
  id        uuid        primary key,
  at        timestamptz not null default clock_timestamp(),
  actor     text        not null,
  role      text        not null,
  action    text        not null,
  target    text        not null,
  detail    jsonb       not null default '{}'
);
