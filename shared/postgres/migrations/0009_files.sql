-- Files that handlers hand over, and results too large for a row. The bytes are in the store, a row says whose they are.
-- breaking: no

-- First part of the name of every object in the store, so that the sweeper of one database never takes the objects of another
-- for left behind where two share a bucket or a folder.
alter table installation add column store_id uuid not null default gen_random_uuid();

-- A row is written before the first byte is stored, so a crash leaves no object that no row names. `stored_at`: all bytes
-- are there. `doomed_at`: the bytes are being deleted; from then on nobody gets them. `sweep_at`: when the sweeper looks next.
create table files (
  id              uuid        primary key,
  task_id         uuid        not null,
  attempt         integer     not null,
  kind            text        not null check (kind in ('saved', 'result')),
  name            text        not null check (length(name) between 1 and 255),
  content_type    text        not null check (length(content_type) between 3 and 200),
  key             text        not null,
  bytes           bigint      check (bytes >= 0),
  sha256          bytea       check (length(sha256) = 32),
  created_at      timestamptz not null default clock_timestamp(),
  stored_at       timestamptz,
  link_expires_at timestamptz,
  doomed_at       timestamptz,
  sweep_at        timestamptz not null,
  check ((stored_at is null) = (bytes is null)),
  check ((stored_at is null) = (sha256 is null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index files_task on files (task_id, attempt);
create index files_sweep_at on files (sweep_at);
