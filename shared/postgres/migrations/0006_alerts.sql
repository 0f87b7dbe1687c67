-- Where each action was asked for, an audit that can only grow, and what operators were alerted of.
-- breaking: no

-- The address that the caller connected from; null for what a service did by itself.
alter table audit add column address text;
create index audit_at on audit (at, id);
create index audit_actor on audit (actor, at, id);
create index audit_action on audit (action, at, id);

-- A trigger and no revoked right: the role that migrates owns the table, and an owner can always grant itself what it lacks.
-- So nothing is changed by mistake or by a fault of a program; who may drop the trigger can still forge.
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end
$$;
create trigger audit_append_only before update or delete or truncate on audit
  for each statement execute function refuse_change();

-- Alerts that were found. `number` counts those of a kind and group, so that of replicas that find the same at once one writes it.
-- `group_id` is the nil UUID where no single group is meant. `retry_at`: not handed in again before.
create table alerts (
  id           uuid        primary key,
  kind         text        not null check (kind in ('new_group', 'growing_group', 'oldest_letter')),
  group_id     uuid        not null,
  number       integer     not null,
  found_at     timestamptz not null default clock_timestamp(),
  alert        jsonb       not null,
  retry_at     timestamptz not null default clock_timestamp(),
  handed_in_at timestamptz,
  unique (kind, group_id, number)
);
create index alerts_waiting on alerts (retry_at) where handed_in_at is null;
create index alerts_found_at on alerts (found_at);
