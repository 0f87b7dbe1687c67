-- Where and since when a letter is on its way back through RabbitMQ, so that a replay that a crash cut off is finished.
-- breaking: no

alter table dead_letters
  add column replay_at          timestamptz,
  add column replay_exchange    text,
  add column replay_routing_key text,
  add check (state <> 'replaying' or (replay_at is not null and replay_exchange is not null and replay_routing_key is not null));

create index dead_letters_replaying on dead_letters (replay_at) where state = 'replaying';
create index audit_target on audit (target, id);
