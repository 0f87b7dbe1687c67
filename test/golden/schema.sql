-- The schema after all migrations, for reading and for comparing. Written by `make golden`; it is not meant to be run.

create type flow_state as enum ('pending', 'running', 'succeeded', 'failed', 'partial', 'cancelled');
create type task_state as enum ('pending', 'scheduled', 'blocked', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired');
create function abandon_task_retirement() returns void language plpgsql; -- source md5 a690750ba8cfcb93412b230ecf054211
create function add_steps(of_task uuid, of_attempt integer, of_claim uuid, step_name text, spec jsonb, inputs text[], pieces text[], refs text[], most_steps integer, most_edges integer) returns record language plpgsql; -- source md5 b8c86d6f012c7518e6586461557794e3
create function add_task_partition(part text, lower_id uuid, upper_id uuid) returns void language plpgsql; -- source md5 7f7ba544e04a3ed719a3029166164787
create function announced_type(of_name text, asked_queue text) returns task_types language plpgsql; -- source md5 ae7014d75d46b840219079045b4b5f2e
create function begin_task_retirement(new_target text, of_sources text[], from_id uuid, to_id uuid) returns void language plpgsql; -- source md5 d8cc328260e7c1469c693e3d01954264
create function cancel_blocked(of_flow uuid, after_steps integer[], because text) returns integer language plpgsql; -- source md5 0e9aefcc3c45e0f941bed187a0bf5aba
create function cancel_flow(of_flow uuid, by_actor text, why text) returns uuid[] language plpgsql; -- source md5 b08ff811891928fdc87555422171e482
create function close_letters(of_tasks uuid[], by_actor text, because text) returns void language sql; -- source md5 596fd4c763eb9ca06e1444e82e0e258b
create function close_phase(of_flow uuid) returns integer[] language plpgsql; -- source md5 a723ad0c85a2da92160ad791462362a2
create function count_in_ledger(entry text, ids uuid[], types text[]) returns void language sql; -- source md5 46ea2a28f787ef51d83fcd8963fcf028
create function drop_flows(of_flows uuid[], because text, by_actor text) returns void language plpgsql; -- source md5 fd3ae1f9c16b601940efe5895193b4aa
create function drop_retired_partition(part text) returns void language plpgsql; -- source md5 5d6c20b24b43df5a2ff758ebe0087bd7
create function end_steps(of_flows uuid[], of_steps integer[], of_states text[], swept_in interval) returns record language plpgsql; -- source md5 e593831f30ee9c61a9d85439aa316862
create function enqueue(type text, input jsonb, options jsonb) returns uuid language plpgsql; -- source md5 88b8768c510d710c4cc8fb18c7359edf
create function enqueue(type text, input text, options jsonb) returns uuid language plpgsql; -- source md5 13c81ffe53092cdb5534a43922404e90
create function enqueue_task(type text, input text, options jsonb, OUT id uuid, OUT duplicate boolean) returns record language plpgsql; -- source md5 fdbd24cb60d5161727bc691cb6773147
create function expire_flow_timers(most integer) returns integer language plpgsql; -- source md5 0e03028982e4fa9fac0b2c586177a6d3
create function finish_task_retirement() returns void language plpgsql; -- source md5 bfb2d2f84c18eccd0fb3f5baf31b1020
create function flow_begins(f flows, step integer) returns boolean language sql; -- source md5 bbb2a9737aaf8761842cf784bdc1946d
create function flow_input(of_flow uuid, of_step integer) returns bytea language plpgsql; -- source md5 6aba5df31cf8ed3bc3018ef365d4f711
create function flow_is_plain(f flows) returns boolean language sql; -- source md5 2f43a5e4e33953a85b1a434e8f701f6b
create function flow_reference(of_flow uuid, ref jsonb) returns text language plpgsql; -- source md5 ed81d66c38a69ff4cd74893247095d4c
create function flow_result(of_flow uuid) returns text language plpgsql; -- source md5 76d2f305976a7b3bea8920727536102d
create function flows_within(of_flows uuid[]) returns uuid[] language sql; -- source md5 fb2e024ace30d898506f71cc8b9faf60
create function follow_into_target() returns trigger language plpgsql; -- source md5 c3212a1b52d8845f84d02e64fda8a2eb
create function gin_extract_query_trgm(text, internal, smallint, internal, internal, internal, internal) returns internal language c; -- source md5 bcc3d1b35e67c79fdd7743051b5bb54e
create function gin_extract_value_trgm(text, internal) returns internal language c; -- source md5 c75ed6efb95d6922885e652c3b1ae63f
create function gin_trgm_consistent(internal, smallint, text, integer, internal, internal, internal, internal) returns boolean language c; -- source md5 5db4c0b82b674e49a7e2b5ec62344817
create function gin_trgm_triconsistent(internal, smallint, text, integer, internal, internal, internal) returns "char" language c; -- source md5 044f4596e56bfba7eaae6e7c7b35c380
create function group_result(of_flow uuid, of_name text, path text[], most integer) returns text language plpgsql; -- source md5 babebaee50111abdf35764cab5e6a976
create function gtrgm_compress(internal) returns internal language c; -- source md5 a0c88e9a79ba5f6cb387b51457e3f567
create function gtrgm_consistent(internal, text, smallint, oid, internal) returns boolean language c; -- source md5 0eaeef0b916f99506a5e0ec3953547ee
create function gtrgm_decompress(internal) returns internal language c; -- source md5 1e6e1425e63e58f446f2a285205aada3
create function gtrgm_distance(internal, text, smallint, oid, internal) returns double precision language c; -- source md5 94da78a7c71beb6f1824f7598f910521
create function gtrgm_in(cstring) returns gtrgm language c; -- source md5 af406f0d6fd3f9f056beb474dc267883
create function gtrgm_options(internal) returns void language c; -- source md5 4995c26b394cefc327edc9bcdd3cc238
create function gtrgm_out(gtrgm) returns cstring language c; -- source md5 809b516b4474d75b7ea2606e56263a8b
create function gtrgm_penalty(internal, internal, internal) returns internal language c; -- source md5 78a76e7fec267214504a675b59c13d82
create function gtrgm_picksplit(internal, internal) returns internal language c; -- source md5 4db74098c31e243cbad5eb4c29e67387
create function gtrgm_same(gtrgm, gtrgm, internal) returns internal language c; -- source md5 33426e0fbb8272974ddba55eb3574f70
create function gtrgm_union(internal, internal) returns gtrgm language c; -- source md5 ac59a0687df15075468862ca946ee148
create function guard_default_partition(lower_id uuid, upper_id uuid) returns void language plpgsql; -- source md5 18732e415cb22a43dd1d04b82832a4f1
create function has_step(of_flow uuid, of_name text) returns boolean language sql; -- source md5 4738b8471d0649ef4a3193becbad4928
create function hold_blocked(of_tasks uuid[]) returns uuid[] language plpgsql; -- source md5 e656c028f3c606ebc6762b3ab8ccdbee
create function id_instant(id uuid) returns timestamp with time zone language sql; -- source md5 2145725f5b84d9a8c0549b3f78faf46d
create function input_fault(input json) returns text[] language plpgsql; -- source md5 9dbea68045bdd9504dcf12161434637b
create function input_json(input bytea) returns jsonb language plpgsql; -- source md5 03d0e8d629dc455d71ecf28b9aee240d
create function input_text(input bytea) returns text language plpgsql; -- source md5 be2918ea7634073d55ce35aa76888962
create function json_as_written(value json) returns text language plpgsql; -- source md5 19d1c4c244702de3475b23cccbc81e21
create function keep_tasks(ids uuid[]) returns integer language plpgsql; -- source md5 306e4c65d29fe07e39d2c1c553020bf2
create function leave_tasks(ids uuid[]) returns void language plpgsql; -- source md5 640b42a8956a0598f1f4ee16048b2e59
create function limit_key(path text, input json) returns text language plpgsql; -- source md5 015ce81d4409807c324ee04fa3273db3
create function lock_flows(of_flows uuid[]) returns void language plpgsql; -- source md5 153b3247848deb4fffd6601e09e954e5
create function made_limit_key(rule jsonb, input bytea) returns text language plpgsql; -- source md5 54bef970b788648b67a9629db34fb217
create function make_step_tasks(of_flow uuid, of_steps integer[]) returns void language plpgsql; -- source md5 2950f803804a48e9b129838b8736e247
create function note_acceptances() returns trigger language plpgsql; -- source md5 367cc76e0dfda73614e73e9eb2b03447
create function note_transitions() returns trigger language plpgsql; -- source md5 cca9ffebb4c1fa6857cb1ddf71ded58f
create function number_fault(literal text) returns text language plpgsql; -- source md5 2836236317c6ab027b61f44083e4b5da
create function omitted_results(of_flow uuid, ref jsonb, bytes bigint) returns text language sql; -- source md5 9dabe14de101453e7fabce394e78854b
create function option_instant(options jsonb, name text) returns timestamp with time zone language plpgsql; -- source md5 ea66f39968d65d3a7ad269dbaeb79da1
create function option_integer(options jsonb, name text, lowest bigint, highest bigint, prefix text) returns bigint language plpgsql; -- source md5 b5776e885f780bbf70104baf00b9fa9b
create function option_tags(options jsonb) returns text[] language plpgsql; -- source md5 abf4a4134c583e88c4c2f8732500d9f8
create function option_text(options jsonb, name text, longest integer, prefix text) returns text language plpgsql; -- source md5 c9ec1ace77866336992d51ace4b7f3af
create function option_webhook(options jsonb) returns jsonb language plpgsql; -- source md5 fc0805381d0bb7cd40f05fcf9bf51f9e
create function page_step_results(of_flow uuid, of_name text, after_step integer, most integer, most_bytes integer) returns record language sql; -- source md5 606e63152163c8787b558bd0901a67c0
create function quiet_partition(part text) returns void language plpgsql; -- source md5 a9a8113e7a6596515333c24fbf5afa45
create function read_trace(traceparent text, tracestate text) returns text language plpgsql; -- source md5 3a6fc1d76a0c493a3e288f6c12505482
create function refuse_change() returns trigger language plpgsql; -- source md5 7d55b5e5c7d8ca525cd100b9eb3ac352
create function refuse_submission(code text, field text, reason text) returns void language plpgsql; -- source md5 8208e0a7297d1e6db400e6bcbd26340a
create function refuse_unknown_members(value jsonb, known text[], prefix text, what text) returns void language plpgsql; -- source md5 e7070bd05892a628468d73ec1642249c
create function refuse_unreadable(input text, state text) returns void language plpgsql; -- source md5 27bd72f09638f96cc817269c85a81fb7
create function rejoin_flow(c flows) returns void language plpgsql; -- source md5 57e342b271fc071e2b451737ac6a89c1
create function remake_steps(of_flow uuid, picked integer[], forced integer[], by_actor text, because text) returns integer language plpgsql; -- source md5 c8cea89f5aea773644afd5a1fb646a21
create function reopen_flow(of_flow uuid, revived integer, steps integer) returns void language plpgsql; -- source md5 a85f86a6e076c0082f80091d0e69c044
create function restart_flow(of_flow uuid, by_actor text, because text) returns integer language plpgsql; -- source md5 a55a57d5262405f1c7ac157d8e8273da
create function result_text(of_task uuid) returns text language sql; -- source md5 a463ed8bc60dc0bb3ee8342e64cb7aaf
create function resume_flow(of_flow uuid, picked integer[], forced integer[], by_actor text, because text) returns integer language plpgsql; -- source md5 51691211627d3eb9a9cbd293a44ee431
create function retry_flow(of_flow uuid, from_step text, by_actor text, why text) returns integer language plpgsql; -- source md5 baa6a953580bc02be49d42b4047f5bd2
create function revive_steps(of_tasks uuid[]) returns integer language plpgsql; -- source md5 8254a2127ea57f2486231b2e7b6fb4aa
create function set_limit(real) returns real language c; -- source md5 e703e2830656de576714f6ae6e6644c4
create function show_limit() returns real language c; -- source md5 4fb4f2157846949abff275fdd919e00f
create function show_trgm(text) returns text[] language c; -- source md5 5fa460cd3dddaea4458897488664413b
create function signal_flow(of_flow uuid, signal_name text, payload bytea, sender text, swept_in interval) returns record language plpgsql; -- source md5 39f2a7daf77e4edcbddacba4d03070b4
create function similarity(text, text) returns real language c; -- source md5 0739eaf3c5c05c6e8fa34eb7c5ef5a96
create function similarity_dist(text, text) returns real language c; -- source md5 7ebb37e4139c772fe4e70dfbd55576cc
create function similarity_op(text, text) returns boolean language c; -- source md5 8ca8555e9f0dbbb6a57da0713341ba61
create function sink_steps(of_flow uuid, of_steps integer[], below integer) returns void language plpgsql; -- source md5 5359577a567953cc2143df2c122e4f65
create function start_steps(of_flows uuid[], of_steps integer[], swept_in interval) returns record language plpgsql; -- source md5 3670ce5978d09c68554d592bd3c1e606
create function state_of_step(of_task uuid, of_child uuid) returns text language sql; -- source md5 b1f721c0b25105be3a78bf42e1883442
create function step_result(of_flow uuid, of_step integer, path text[]) returns text language plpgsql; -- source md5 6ef2b95c17c29049c8205b174ea99fda
create function steps_of_name(of_flow uuid, of_name text, after_step integer, most integer) returns record language plpgsql; -- source md5 70b4120996e4d126154cbbadd917a590
create function steps_to_retry(of_flow uuid, from_step text) returns integer[] language sql; -- source md5 75b5761a7307fbbec16b85f676ff8e2c
create function strict_word_similarity(text, text) returns real language c; -- source md5 047be0674d6c8e19b0e5a3c3243be6ed
create function strict_word_similarity_commutator_op(text, text) returns boolean language c; -- source md5 84911a6d7876cdc309b990eef6644b60
create function strict_word_similarity_dist_commutator_op(text, text) returns real language c; -- source md5 4708a05e741a502b27ac79af985b95e9
create function strict_word_similarity_dist_op(text, text) returns real language c; -- source md5 f154f714e649b472555839dc6c7de09e
create function strict_word_similarity_op(text, text) returns boolean language c; -- source md5 3158a67e538b4a391322cba6a43ab2bf
create function switch_lifecycle_events(is_on boolean) returns boolean language plpgsql; -- source md5 d97c1da361113f6a976f8da76dbd122f
create function task_hour(id uuid) returns integer language sql; -- source md5 b6713342e74f19ec947f55622eb12c76
create function trace_of_flow(of_flow uuid) returns text language sql; -- source md5 82af51e0f2d8bdbf334a5f2aa0fd8414
create function turn_key(queue text, input bytea) returns text language plpgsql; -- source md5 13f4bd8d2447cbbdc69e3753d680e5ac
create function unblock_steps(of_flows uuid[], of_steps integer[], swept_in interval) returns record language plpgsql; -- source md5 6805eee0c1d44466fa94f93c59c3587f
create function unguard_default_partition() returns void language plpgsql; -- source md5 20d09637623b60e69b3acb5b7df04ed2
create function uuid_v7() returns uuid language sql; -- source md5 9bd290949ffd22c04a6664ec3c6c4e98
create function word_similarity(text, text) returns real language c; -- source md5 1000076619664645ae70e7e908f13ed3
create function word_similarity_commutator_op(text, text) returns boolean language c; -- source md5 64550738eaf8228a376fb7816c9d6728
create function word_similarity_dist_commutator_op(text, text) returns real language c; -- source md5 be45b7ad2f1942ec7e70dbd70ff80592
create function word_similarity_dist_op(text, text) returns real language c; -- source md5 e97ecc30425f39c69b6b473abde3c04a
create function word_similarity_op(text, text) returns boolean language c; -- source md5 d83512053e7581442d60d7ad35ff8ace

create table alerts;
  id uuid not null
  kind text not null
  group_id uuid not null
  number integer not null
  found_at timestamp with time zone not null default clock_timestamp()
  alert jsonb not null
  retry_at timestamp with time zone not null default clock_timestamp()
  handed_in_at timestamp with time zone
  constraint alerts_kind_check CHECK ((kind = ANY (ARRAY['new_group'::text, 'growing_group'::text, 'oldest_letter'::text])))
  constraint alerts_kind_group_id_number_key UNIQUE (kind, group_id, number)
  constraint alerts_pkey PRIMARY KEY (id)
  CREATE INDEX alerts_found_at ON alerts USING btree (found_at);
  CREATE INDEX alerts_waiting ON alerts USING btree (retry_at) WHERE (handed_in_at IS NULL);

create table attempt_logs;
  task_id uuid not null
  attempt integer not null
  lines text not null
  dropped integer not null
  constraint attempt_logs_dropped_check CHECK ((dropped >= 0))
  constraint attempt_logs_pkey PRIMARY KEY (task_id, attempt)

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
  invited_at timestamp with time zone
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
  address text
  constraint audit_pkey PRIMARY KEY (id)
  CREATE INDEX audit_action ON audit USING btree (action, at, id);
  CREATE INDEX audit_actor ON audit USING btree (actor, at, id);
  CREATE INDEX audit_at ON audit USING btree (at, id);
  CREATE INDEX audit_target ON audit USING btree (target, id);

create table callbacks with (fillfactor=70);
  task_id uuid not null
  callback jsonb not null
  is_waiting boolean not null default true
  taken_until timestamp with time zone
  constraint callbacks_pkey PRIMARY KEY (task_id)
  CREATE INDEX callbacks_waiting ON callbacks USING btree (task_id) WHERE is_waiting;

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

create table concurrency_groups with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
  type text not null
  key text not null
  places text[] not null default '{}'::text[]
  constraint concurrency_groups_pkey PRIMARY KEY (type, key)

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
  group_id uuid
  code_version text
  replay_id uuid
  erased_at timestamp with time zone
  constraint dead_letters_check CHECK (((kind = 'task'::text) = ((task_id IS NOT NULL) AND (body IS NULL))))
  constraint dead_letters_check1 CHECK (((closed_at IS NOT NULL) = (state = ANY (ARRAY['replayed'::text, 'discarded'::text]))))
  constraint dead_letters_check2 CHECK (((state <> 'replaying'::text) OR ((replay_at IS NOT NULL) AND (replay_exchange IS NOT NULL) AND (replay_routing_key IS NOT NULL))))
  constraint dead_letters_kind_check CHECK ((kind = ANY (ARRAY['task'::text, 'refused'::text, 'foreign'::text])))
  constraint dead_letters_pkey PRIMARY KEY (id)
  constraint dead_letters_state_check CHECK ((state = ANY (ARRAY['open'::text, 'replaying'::text, 'replayed'::text, 'discarded'::text])))
  CREATE INDEX dead_letters_closed ON dead_letters USING btree (closed_at) WHERE (closed_at IS NOT NULL);
  CREATE UNIQUE INDEX dead_letters_evidence ON dead_letters USING btree (evidence_key) WHERE (evidence_key IS NOT NULL);
  CREATE INDEX dead_letters_open ON dead_letters USING btree (id) WHERE (state = 'open'::text);
  CREATE INDEX dead_letters_open_by_group ON dead_letters USING btree (group_id, id) WHERE (state = 'open'::text);
  CREATE INDEX dead_letters_open_by_reason ON dead_letters USING btree (reason, id) WHERE (state = 'open'::text);
  CREATE INDEX dead_letters_open_by_type ON dead_letters USING btree (type, id) WHERE (state = 'open'::text);
  CREATE UNIQUE INDEX dead_letters_open_task ON dead_letters USING btree (task_id) WHERE (state = ANY (ARRAY['open'::text, 'replaying'::text]));
  CREATE INDEX dead_letters_replaying ON dead_letters USING btree (replay_at) WHERE (state = 'replaying'::text);
  CREATE INDEX dead_letters_task ON dead_letters USING btree (task_id, id) INCLUDE (type);
  CREATE INDEX dead_letters_ungrouped ON dead_letters USING btree (id) WHERE ((group_id IS NULL) AND ((recorded_at IS NOT NULL) OR (reason = 'worker_lost'::text)));
  CREATE INDEX dead_letters_unrecorded ON dead_letters USING btree (died_at) WHERE ((kind = 'task'::text) AND (recorded_at IS NULL));

create table due with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000);
  task_id uuid not null
  at timestamp with time zone not null
  constraint due_pkey PRIMARY KEY (task_id)
  CREATE INDEX due_at ON due USING btree (at);

create table erased_tasks;
  task_id uuid not null
  erasure_id uuid not null
  erased_at timestamp with time zone not null default clock_timestamp()
  constraint erased_tasks_pkey PRIMARY KEY (task_id)

create table erasures;
  id uuid not null
  at timestamp with time zone not null default clock_timestamp()
  actor text not null
  reason text not null
  counts jsonb not null default '{}'::jsonb
  ended_at timestamp with time zone
  constraint erasures_pkey PRIMARY KEY (id)

create table failure_group_hours with (fillfactor=50);
  group_id uuid not null
  hour integer not null
  letters bigint not null
  constraint failure_group_hours_pkey PRIMARY KEY (group_id, hour)
  CREATE INDEX failure_group_hours_hour ON failure_group_hours USING btree (hour);

create table failure_groups with (fillfactor=50);
  id uuid not null
  kind text not null
  type text
  error_type text
  error_message text
  frame text
  rule text
  state text not null default 'open'::text
  note text
  assignee text
  version integer not null default 1
  changed_at timestamp with time zone
  changed_by text
  letters bigint not null
  open_letters bigint not null
  first_at timestamp with time zone not null
  last_at timestamp with time zone not null
  reopened_at timestamp with time zone
  queues text[] not null default '{}'::text[]
  code_versions text[] not null default '{}'::text[]
  constraint failure_groups_kind_check CHECK ((kind = ANY (ARRAY['task'::text, 'refused'::text, 'foreign'::text])))
  constraint failure_groups_pkey PRIMARY KEY (id)
  constraint failure_groups_state_check CHECK ((state = ANY (ARRAY['open'::text, 'acknowledged'::text, 'resolved'::text, 'ignored'::text])))
  CREATE INDEX failure_groups_last_at ON failure_groups USING btree (last_at, id);

create table fair_turns with (fillfactor=50);
  queue text not null
  last_key text not null default ''::text
  served integer not null default 0
  releases bigint not null default 0
  constraint fair_turns_pkey PRIMARY KEY (queue)
  constraint fair_turns_queue_fkey FOREIGN KEY (queue) REFERENCES queues(name) ON DELETE CASCADE

create table files with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000);
  id uuid not null
  task_id uuid not null
  attempt integer not null
  kind text not null
  name text not null
  content_type text not null
  key text not null
  bytes bigint
  sha256 bytea
  created_at timestamp with time zone not null default clock_timestamp()
  stored_at timestamp with time zone
  link_expires_at timestamp with time zone
  doomed_at timestamp with time zone
  sweep_at timestamp with time zone not null
  constraint files_bytes_check CHECK ((bytes >= 0))
  constraint files_check CHECK (((stored_at IS NULL) = (bytes IS NULL)))
  constraint files_check1 CHECK (((stored_at IS NULL) = (sha256 IS NULL)))
  constraint files_content_type_check CHECK (((length(content_type) >= 3) AND (length(content_type) <= 200)))
  constraint files_kind_check CHECK ((kind = ANY (ARRAY['saved'::text, 'result'::text, 'input'::text])))
  constraint files_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255)))
  constraint files_pkey PRIMARY KEY (id)
  constraint files_sha256_check CHECK ((length(sha256) = 32))
  CREATE INDEX files_sweep_at ON files USING btree (sweep_at);
  CREATE INDEX files_task ON files USING btree (task_id, attempt);

create table fleet_figures with (fillfactor=50);
  name text not null
  shown_by uuid not null
  shown_until timestamp with time zone not null
  counted_to timestamp with time zone
  constraint fleet_figures_pkey PRIMARY KEY (name)

create table flow_keys;
  business_type text not null
  business_key text not null
  flow_id uuid not null
  constraint flow_keys_pkey PRIMARY KEY (business_type, business_key)

create table flow_signals;
  flow_id uuid not null
  name text not null
  data bytea not null
  sent_at timestamp with time zone not null default clock_timestamp()
  sent_by text not null
  constraint flow_signals_pkey PRIMARY KEY (flow_id, name)

create table flow_steps with (fillfactor=60);
  flow_id uuid not null
  step integer not null
  kind text not null default 'step'::text
  name text not null
  member integer
  task_id uuid
  waits_for integer not null default 0
  next integer[] not null default '{}'::integer[]
  level integer not null default 0
  on_failure text
  undo_of integer
  delay_ms double precision
  signal text
  signal_ms double precision
  pieces text[]
  refs jsonb
  spec jsonb
  why text
  earlier uuid[] not null default '{}'::uuid[]
  child_id uuid
  added_by integer
  added_as bytea
  constraint flow_steps_kind_check CHECK ((kind = ANY (ARRAY['step'::text, 'undo'::text, 'failure'::text, 'begin'::text])))
  constraint flow_steps_on_failure_check CHECK ((on_failure = ANY (ARRAY['stop'::text, 'continue'::text, 'ignore'::text])))
  constraint flow_steps_pkey PRIMARY KEY (flow_id, step)
  constraint flow_steps_waits_for_check CHECK ((waits_for >= 0))

create table flow_timers;
  flow_id uuid not null
  step integer not null
  at timestamp with time zone not null
  constraint flow_timers_pkey PRIMARY KEY (flow_id, step)
  CREATE INDEX flow_timers_at ON flow_timers USING btree (at);

create table flows with (fillfactor=50);
  id uuid not null
  name text not null
  business_type text
  business_key text
  state flow_state not null default 'pending'::flow_state
  phase text not null default 'steps'::text
  on_failure text not null
  steps_total integer not null
  steps_open integer not null
  steps_failed integer not null default 0
  is_stopped boolean not null default false
  tags text[]
  created_at timestamp with time zone not null default clock_timestamp()
  created_by text
  started_at timestamp with time zone
  finished_at timestamp with time zone
  cancelled_by text
  cancel_reason text
  parent_id uuid
  parent_step integer
  root_id uuid
  is_awaited boolean not null default false
  is_undoing boolean not null default false
  undone_at timestamp with time zone
  groups jsonb
  trace text
  constraint flows_check CHECK (((finished_at IS NOT NULL) = (state = ANY (ARRAY['succeeded'::flow_state, 'failed'::flow_state, 'partial'::flow_state, 'cancelled'::flow_state]))))
  constraint flows_on_failure_check CHECK ((on_failure = ANY (ARRAY['stop'::text, 'continue'::text, 'compensate'::text])))
  constraint flows_phase_check CHECK ((phase = ANY (ARRAY['steps'::text, 'undo'::text, 'failure'::text])))
  constraint flows_pkey PRIMARY KEY (id)
  constraint flows_steps_open_check CHECK ((steps_open >= 0))
  CREATE INDEX flows_business_key ON flows USING btree (business_key, id) WHERE ((business_key IS NOT NULL) AND (parent_id IS NULL));
  CREATE INDEX flows_finished_at ON flows USING btree (finished_at) WHERE ((finished_at IS NOT NULL) AND (parent_id IS NULL));
  CREATE INDEX flows_name ON flows USING btree (name, id) WHERE (parent_id IS NULL);
  CREATE INDEX flows_parent ON flows USING btree (parent_id, id) WHERE (parent_id IS NOT NULL);
  CREATE INDEX flows_state ON flows USING btree (state, id) WHERE ((state <> 'succeeded'::flow_state) AND (parent_id IS NULL));

create table held_back with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
  task_id uuid not null
  reason text not null
  scope text not null
  key text not null default ''::text
  priority smallint not null
  held_at timestamp with time zone not null default clock_timestamp()
  constraint held_back_pkey PRIMARY KEY (task_id)
  constraint held_back_reason_check CHECK ((reason = ANY (ARRAY['concurrency'::text, 'rate'::text, 'paused'::text, 'draining'::text, 'turn'::text, 'turn_given'::text])))
  CREATE INDEX held_back_in_turn ON held_back USING btree (reason, scope, key, priority DESC, task_id);

create table held_partitions;
  name text not null
  till timestamp with time zone not null
  constraint held_partitions_pkey PRIMARY KEY (name)

create table idempotency_keys;
  actor text not null
  key text not null
  task_id uuid not null
  digest bytea not null
  became text not null default 'accepted'::text
  accepted_at timestamp with time zone not null default now()
  constraint idempotency_keys_became_check CHECK ((became = ANY (ARRAY['accepted'::text, 'existing'::text, 'replaced'::text, 'batch'::text])))
  constraint idempotency_keys_pkey PRIMARY KEY (actor, key)
  CREATE INDEX idempotency_keys_accepted_at ON idempotency_keys USING btree (accepted_at);

create table installation;
  is_only_row boolean not null default true
  prefix text not null
  created_at timestamp with time zone not null default now()
  store_id uuid not null default gen_random_uuid()
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
  loads jsonb not null default '{}'::jsonb
  is_draining boolean not null default false
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

create table letter_facts;
  letter_id uuid not null
  tags text[]
  error_text text
  input jsonb
  constraint letter_facts_pkey PRIMARY KEY (letter_id)
  CREATE INDEX letter_facts_error ON letter_facts USING gin (error_text gin_trgm_ops);
  CREATE INDEX letter_facts_input ON letter_facts USING gin (input jsonb_path_ops);
  CREATE INDEX letter_facts_tags ON letter_facts USING gin (tags) WHERE (tags IS NOT NULL);

create table lifecycle_events with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
  id bigint not null generated as identity
  at timestamp with time zone not null default clock_timestamp()
  retry_at timestamp with time zone not null default clock_timestamp()
  task_ids uuid[] not null
  types text[] not null
  queues text[] not null
  states text[] not null
  attempts integer[] not null
  traces text[]
  constraint lifecycle_events_pkey PRIMARY KEY (id)

create table mended_inputs;
  letter_id uuid not null
  replay_id uuid not null
  input bytea not null
  mended_at timestamp with time zone not null default clock_timestamp()
  input_file uuid
  constraint mended_inputs_pkey PRIMARY KEY (letter_id)
  CREATE INDEX mended_inputs_file ON mended_inputs USING btree (input_file) WHERE (input_file IS NOT NULL);

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

create table occurrences;
  schedule_id uuid not null
  at timestamp with time zone not null
  is_manual boolean not null default false
  state text not null
  cause text not null
  from_at timestamp with time zone
  why text
  detail text
  run_id uuid
  is_flow boolean not null default false
  is_open boolean not null default false
  outcome text
  asked_by text
  decided_at timestamp with time zone not null default clock_timestamp()
  constraint occurrences_cause_check CHECK ((cause = ANY (ARRAY['due'::text, 'catchUp'::text, 'manual'::text])))
  constraint occurrences_pkey PRIMARY KEY (schedule_id, at, is_manual)
  constraint occurrences_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'started'::text, 'skipped'::text])))
  CREATE INDEX occurrences_decided_at ON occurrences USING btree (decided_at);
  CREATE INDEX occurrences_open ON occurrences USING btree (schedule_id, at) WHERE is_open;
  CREATE INDEX occurrences_waiting ON occurrences USING btree (schedule_id, at) WHERE (state = 'waiting'::text);

create table once_runs;
  task_id uuid not null
  key text not null
  run_id uuid not null
  attempt integer not null
  started_at timestamp with time zone not null default clock_timestamp()
  finished_at timestamp with time zone
  result bytea
  constraint once_runs_check CHECK (((finished_at IS NOT NULL) OR (result IS NULL)))
  constraint once_runs_pkey PRIMARY KEY (task_id, key)

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
  message text
  constraint progress_fraction_check CHECK (((fraction >= (0)::double precision) AND (fraction <= (1)::double precision)))
  constraint progress_pkey PRIMARY KEY (task_id)

create table queue_starts with (fillfactor=50);
  queue text not null
  priority smallint not null
  slot bigint not null
  attempts bigint not null
  newest uuid not null
  constraint queue_starts_pkey PRIMARY KEY (queue, priority, slot)

create table queues;
  name text not null
  created_at timestamp with time zone not null default now()
  mode text not null default 'open'::text
  mode_reason text
  mode_by text
  mode_since timestamp with time zone
  fair_by text
  fair_weights jsonb not null default '{}'::jsonb
  fair_depth integer not null default 100
  constraint queues_fair_depth_check CHECK (((fair_depth >= 1) AND (fair_depth <= 1000)))
  constraint queues_mode_check CHECK ((mode = ANY (ARRAY['open'::text, 'paused'::text, 'draining'::text])))
  constraint queues_name_check CHECK (((name ~ '^[a-z][a-z0-9]*([._-][a-z0-9]+)*$'::text) AND (length(name) <= 100)))
  constraint queues_pkey PRIMARY KEY (name)
  CREATE INDEX queues_special ON queues USING btree (name) WHERE ((mode <> 'open'::text) OR (fair_by IS NOT NULL));

create table rate_groups with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
  type text not null
  key text not null
  starts timestamp with time zone[] not null default '{}'::timestamp with time zone[]
  admitted integer not null default 0
  constraint rate_groups_pkey PRIMARY KEY (type, key)

create table replay_items with (fillfactor=50);
  replay_id uuid not null
  n integer not null
  letter_id uuid not null
  state text not null default 'waiting'::text
  wave integer
  task_id uuid
  attempt integer
  sent_at timestamp with time zone
  judged_at timestamp with time zone
  fingerprint uuid
  is_same boolean
  error_type text
  error_message text
  new_letter_id uuid
  code text
  why text
  constraint replay_items_pkey PRIMARY KEY (replay_id, n)
  constraint replay_items_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'sent'::text, 'succeeded'::text, 'dead'::text, 'ended'::text, 'returned'::text, 'skipped'::text])))
  CREATE INDEX replay_items_failed ON replay_items USING btree (replay_id, wave) WHERE (fingerprint IS NOT NULL);
  CREATE UNIQUE INDEX replay_items_letter ON replay_items USING btree (letter_id, replay_id);
  CREATE INDEX replay_items_sent ON replay_items USING btree (replay_id, n) WHERE (state = 'sent'::text);
  CREATE INDEX replay_items_unjudged ON replay_items USING btree (replay_id, n) WHERE ((state = 'sent'::text) AND (judged_at IS NULL));

create table replays with (fillfactor=50);
  id uuid not null
  version integer not null default 1
  state text not null
  state_reason text
  created_at timestamp with time zone not null default clock_timestamp()
  created_by text not null
  role text not null
  reason text
  finished_at timestamp with time zone
  selection jsonb not null
  items integer not null
  waves jsonb not null
  stop_after integer
  wave_timeout_ms integer
  rate double precision
  queue text
  priority smallint
  patch bytea
  wait_for_version text
  types text[]
  wave integer not null default 0
  wave_start integer not null default 1
  wave_end integer not null default 0
  next_n integer not null default 1
  wave_sent_at timestamp with time zone
  awaits boolean not null default true
  judged_from timestamp with time zone not null default '-infinity'::timestamp with time zone
  paced_at timestamp with time zone not null default clock_timestamp()
  look_at timestamp with time zone default clock_timestamp()
  constraint replays_check CHECK (((finished_at IS NOT NULL) = (state = ANY (ARRAY['cancelled'::text, 'finished'::text]))))
  constraint replays_pkey PRIMARY KEY (id)
  constraint replays_priority_check CHECK (((priority >= 0) AND (priority <= 9)))
  constraint replays_rate_check CHECK ((rate > (0)::double precision))
  constraint replays_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'running'::text, 'paused'::text, 'stopped'::text, 'cancelled'::text, 'finished'::text])))
  constraint replays_stop_after_check CHECK ((stop_after >= 1))
  constraint replays_wave_timeout_ms_check CHECK ((wave_timeout_ms >= 1))
  CREATE INDEX replays_finished ON replays USING btree (finished_at) WHERE (finished_at IS NOT NULL);
  CREATE INDEX replays_look_at ON replays USING btree (look_at) WHERE (look_at IS NOT NULL);
  CREATE INDEX replays_open ON replays USING btree (state) WHERE (finished_at IS NULL);

create table retired_partitions;
  name text not null
  retired_at timestamp with time zone not null default clock_timestamp()
  constraint retired_partitions_pkey PRIMARY KEY (name)

create table run_times with (fillfactor=50);
  type text not null
  weights double precision[] not null
  weighed_at timestamp with time zone not null default clock_timestamp()
  constraint run_times_pkey PRIMARY KEY (type)

create table schedules with (fillfactor=50);
  id uuid not null
  name text not null
  definition text not null
  source text not null
  created_at timestamp with time zone not null default clock_timestamp()
  created_by text not null
  updated_at timestamp with time zone not null default clock_timestamp()
  updated_by text not null
  paused_at timestamp with time zone
  paused_by text
  pause_reason text
  next_at timestamp with time zone
  wake_at timestamp with time zone
  constraint schedules_pkey PRIMARY KEY (id)
  constraint schedules_source_check CHECK ((source = ANY (ARRAY['api'::text, 'code'::text])))
  CREATE UNIQUE INDEX schedules_name ON schedules USING btree (name);
  CREATE INDEX schedules_wake_at ON schedules USING btree (wake_at) WHERE (wake_at IS NOT NULL);

create table task_retirement_counts with (fillfactor=50);
  hour integer not null
  type text not null
  tasks bigint not null
  constraint task_retirement_counts_pkey PRIMARY KEY (hour, type)

create table task_retirements with (fillfactor=50);
  is_only_row boolean not null default true
  target text not null
  sources text[] not null
  lower_id uuid not null
  upper_id uuid not null
  walked_to uuid not null
  kept bigint not null default 0
  retired bigint not null default 0
  is_broken boolean not null default false
  began_at timestamp with time zone not null default clock_timestamp()
  constraint task_retirements_is_only_row_check CHECK (is_only_row)
  constraint task_retirements_pkey PRIMARY KEY (is_only_row)

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
  concurrency_key text
  rate_key text
  input_file uuid
  flow_id uuid
  flow_step integer
  trace text
  failed_span text
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

create table unique_keys with (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000);
  type text not null
  key text not null
  task_id uuid not null
  hold text not null
  held_at timestamp with time zone not null default clock_timestamp()
  until timestamp with time zone
  constraint unique_keys_check CHECK (((hold = 'window'::text) = (until IS NOT NULL)))
  constraint unique_keys_hold_check CHECK ((hold = ANY (ARRAY['waiting'::text, 'unfinished'::text, 'window'::text])))
  constraint unique_keys_pkey PRIMARY KEY (type, key)
