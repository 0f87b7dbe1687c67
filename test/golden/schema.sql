-- The schema after all migrations, for reading and for comparing. Written by `make golden`; it is not meant to be run.

create type task_state as enum ('pending', 'scheduled', 'blocked', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired');
create function task_hour(id uuid) returns integer language sql; -- source md5 b6713342e74f19ec947f55622eb12c76
create function uuid_v7() returns uuid language sql; -- source md5 9bd290949ffd22c04a6664ec3c6c4e98

create table attempts;
  task_id uuid not null
  attempt integer not null
  worker uuid not null
  started_at timestamp with time zone not null
  finished_at timestamp with time zone not null
  outcome text not null
  error_type text
  error_code text
  error_message text
  error_stack text
  code_version text
  constraint attempts_outcome_check CHECK ((outcome = ANY (ARRAY['failed'::text, 'timeout'::text, 'deferred'::text, 'interrupted'::text, 'cancelled'::text, 'lost'::text])))
  constraint attempts_pkey PRIMARY KEY (task_id, attempt)

create table audit;
  id uuid not null
  at timestamp with time zone not null default clock_timestamp()
  actor text not null
  role text not null
  action text not null
  target text not null
  detail jsonb not null default '{}'::jsonb
  constraint audit_pkey PRIMARY KEY (id)
  CREATE INDEX audit_target ON audit USING btree (target, id);

create table cancel_requests;
  task_id uuid not null
  requested_at timestamp with time zone not null default clock_timestamp()
  requested_by text not null
  constraint cancel_requests_pkey PRIMARY KEY (task_id)

create table claims with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
  id uuid not null
  worker uuid not null
  claimed_at timestamp with time zone not null
  task_ids uuid[] not null
  alone uuid
  constraint claims_pkey PRIMARY KEY (id)
  CREATE INDEX claims_worker ON claims USING btree (worker);

create table dead_letters;
  id uuid not null
  kind text not null
  task_id uuid
  state text not null default 'open'::text
  reason text not null
  type text
  queue text
  attempt integer
  died_at timestamp with time zone not null default clock_timestamp()
  recorded_at timestamp with time zone
  error_type text
  error_code text
  error_message text
  error_stack text
  exchange text
  routing_key text
  body bytea
  properties jsonb
  headers jsonb
  x_death jsonb
  evidence_key bytea
  closed_at timestamp with time zone
  closed_by text
  close_reason text
  replay_at timestamp with time zone
  replay_exchange text
  replay_routing_key text
  constraint dead_letters_check CHECK (((kind = 'task'::text) = ((task_id IS NOT NULL) AND (body IS NULL))))
  constraint dead_letters_check1 CHECK (((closed_at IS NOT NULL) = (state = ANY (ARRAY['replayed'::text, 'discarded'::text]))))
  constraint dead_letters_check2 CHECK (((state <> 'replaying'::text) OR ((replay_at IS NOT NULL) AND (replay_exchange IS NOT NULL) AND (replay_routing_key IS NOT NULL))))
  constraint dead_letters_kind_check CHECK ((kind = ANY (ARRAY['task'::text, 'refused'::text, 'foreign'::text])))
  constraint dead_letters_pkey PRIMARY KEY (id)
  constraint dead_letters_state_check CHECK ((state = ANY (ARRAY['open'::text, 'replaying'::text, 'replayed'::text, 'discarded'::text])))
  CREATE UNIQUE INDEX dead_letters_evidence ON dead_letters USING btree (evidence_key) WHERE (evidence_key IS NOT NULL);
  CREATE INDEX dead_letters_open ON dead_letters USING btree (id) WHERE (state = 'open'::text);
  CREATE UNIQUE INDEX dead_letters_open_task ON dead_letters USING btree (task_id) WHERE (state = ANY (ARRAY['open'::text, 'replaying'::text]));
  CREATE INDEX dead_letters_replaying ON dead_letters USING btree (replay_at) WHERE (state = 'replaying'::text);
  CREATE INDEX dead_letters_task ON dead_letters USING btree (task_id, id);
  CREATE INDEX dead_letters_unrecorded ON dead_letters USING btree (died_at) WHERE ((kind = 'task'::text) AND (recorded_at IS NULL));

create table due with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000);
  task_id uuid not null
  at timestamp with time zone not null
  constraint due_pkey PRIMARY KEY (task_id)
  CREATE INDEX due_at ON due USING btree (at);

create table installation;
  is_only_row boolean not null default true
  prefix text not null
  created_at timestamp with time zone not null default now()
  constraint installation_is_only_row_check CHECK (is_only_row)
  constraint installation_pkey PRIMARY KEY (is_only_row)

create table leases with (fillfactor=50);
  worker uuid not null
  started_at timestamp with time zone not null default clock_timestamp()
  renewed_at timestamp with time zone not null default clock_timestamp()
  host text not null
  pid integer not null
  code_version text not null
  queues jsonb not null
  task_types text[] not null
  slots integer not null
  in_flight integer not null default 0
  cpu_fraction real not null default 0
  memory_bytes bigint not null default 0
  constraint leases_pkey PRIMARY KEY (worker)

create table ledger_audits;
  hour integer not null
  type text not null
  succeeded bigint not null
  dead bigint not null
  cancelled bigint not null
  expired bigint not null
  in_progress bigint not null
  difference bigint not null
  compared_at timestamp with time zone not null default clock_timestamp()
  constraint ledger_audits_pkey PRIMARY KEY (hour, type)
  CREATE INDEX ledger_audits_differing ON ledger_audits USING btree (hour) WHERE (difference <> 0);

create table ledger_entries with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
  hour integer not null
  type text not null
  entry text not null
  backend integer not null
  tasks bigint not null
  constraint ledger_entries_entry_check CHECK ((entry = ANY (ARRAY['accepted'::text, 'succeeded'::text, 'dead'::text, 'revived'::text, 'cancelled'::text, 'expired'::text, 'retired'::text])))
  constraint ledger_entries_pkey PRIMARY KEY (hour, type, entry, backend)
  CREATE INDEX ledger_entries_unfolded ON ledger_entries USING btree (hour) WHERE (backend <> 0);

create table message_ids;
  publisher text not null
  type text not null
  message_id text not null
  task_id uuid not null
  digest bytea not null
  accepted_at timestamp with time zone not null default now()
  constraint message_ids_pkey PRIMARY KEY (publisher, type, message_id)
  CREATE INDEX message_ids_accepted_at ON message_ids USING btree (accepted_at);

create table migrations;
  name text not null
  checksum text not null
  breaking boolean not null
  applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (name)

create table origins;
  task_id uuid not null
  exchange text not null
  routing_key text not null
  properties jsonb not null
  headers jsonb not null
  constraint origins_pkey PRIMARY KEY (task_id)

create table outbox with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
  id bigint not null generated as identity
  retry_at timestamp with time zone not null
  task_ids uuid[] not null
  types text[] not null
  queues text[] not null
  priorities smallint[] not null
  generations integer[] not null
  constraint outbox_pkey PRIMARY KEY (id)

create table progress with (fillfactor=50);
  task_id uuid not null
  attempt integer not null
  fraction real not null
  step text
  updated_at timestamp with time zone not null default clock_timestamp()
  constraint progress_fraction_check CHECK (((fraction >= (0)::double precision) AND (fraction <= (1)::double precision)))
  constraint progress_pkey PRIMARY KEY (task_id)

create table queues;
  name text not null
  created_at timestamp with time zone not null default now()
  constraint queues_name_check CHECK (((name ~ '^[a-z][a-z0-9]*([._-][a-z0-9]+)*$'::text) AND (length(name) <= 100)))
  constraint queues_pkey PRIMARY KEY (name)

create table task_types;
  name text not null
  queue text not null
  priority smallint not null
  timeout_ms bigint not null
  max_attempts integer not null
  description jsonb not null
  input_schema jsonb
  code_version text not null
  announced_at timestamp with time zone not null default clock_timestamp()
  constraint task_types_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 100)))
  constraint task_types_pkey PRIMARY KEY (name)
  constraint task_types_priority_check CHECK (((priority >= 0) AND (priority <= 9)))
  constraint task_types_queue_fkey FOREIGN KEY (queue) REFERENCES queues(name)
  constraint task_types_timeout_ms_check CHECK ((timeout_ms > 0))

create table tasks partition by RANGE (id);
  id uuid not null
  claim_id uuid
  worker uuid
  accepted_at timestamp with time zone not null default clock_timestamp()
  invited_at timestamp with time zone
  started_at timestamp with time zone
  finished_at timestamp with time zone
  run_at timestamp with time zone
  deadline timestamp with time zone
  state task_state not null
  generation integer not null default 1
  attempt integer not null default 0
  failures integer not null default 0
  max_attempts integer not null
  lost_attempts smallint not null default 0
  lost_alone smallint not null default 0
  priority smallint not null
  type text not null
  queue text not null
  business_key text
  external_id text
  publisher text
  correlation_id text
  tags text[]
  input bytea not null
  result bytea
  constraint tasks_check CHECK (((finished_at IS NOT NULL) = (state = ANY (ARRAY['succeeded'::task_state, 'dead'::task_state, 'cancelled'::task_state, 'expired'::task_state]))))
  constraint tasks_check1 CHECK (((state <> 'running'::task_state) OR ((claim_id IS NOT NULL) AND (worker IS NOT NULL) AND (started_at IS NOT NULL))))
  constraint tasks_check2 CHECK (((state <> ALL (ARRAY['scheduled'::task_state, 'retrying'::task_state])) OR (run_at IS NOT NULL)))
  constraint tasks_pkey PRIMARY KEY (id)
  constraint tasks_priority_check CHECK (((priority >= 0) AND (priority <= 9)))
  CREATE INDEX tasks_business_key ON ONLY tasks USING btree (business_key, id) WHERE (business_key IS NOT NULL);
  CREATE INDEX tasks_external_id ON ONLY tasks USING btree (external_id, id) WHERE (external_id IS NOT NULL);
  CREATE INDEX tasks_tags ON ONLY tasks USING gin (tags) WHERE (tags IS NOT NULL);

create table tasks_default with (fillfactor=30);
  partition of tasks DEFAULT
