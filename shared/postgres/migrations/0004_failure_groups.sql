-- What dead letters are found by, and the groups of letters that died of the same.
-- breaking: no
--
-- The statement that makes a task dead writes its letter and nothing of this: the dead-letter-handler adds it when it takes note
-- of the letter, so that dying costs the worker no index more.

-- Ships with Postgres and is trusted: whoever may create in the database may create it.
create extension if not exists pg_trgm;

-- Letters that died of the same. The id is the fingerprint itself, so that a group is found without being looked up.
create table failure_groups (
  id            uuid        primary key,
  kind          text        not null check (kind in ('task', 'refused', 'foreign')),
  type          text,
  error_type    text,
  error_message text,
  frame         text,
  rule          text,
  state         text        not null default 'open' check (state in ('open', 'acknowledged', 'resolved', 'ignored')),
  note          text,
  assignee      text,
  version       integer     not null default 1,
  changed_at    timestamptz,
  changed_by    text,
  letters       bigint      not null,
  open_letters  bigint      not null,
  first_at      timestamptz not null,
  last_at       timestamptz not null,
  reopened_at   timestamptz,
  queues        text[]      not null default '{}',
  code_versions text[]      not null default '{}'
) with (fillfactor = 50);
create index failure_groups_last_at on failure_groups (last_at, id);

-- Letters of a group by the hour in which they died, in hours since 1970 in UTC.
create table failure_group_hours (
  group_id uuid    not null,
  hour     integer not null,
  letters  bigint  not null,
  primary key (group_id, hour)
) with (fillfactor = 50);

alter table dead_letters
  add column group_id     uuid,
  add column code_version text;
-- Letters that no group has taken in yet: what a crash left is found by the letter itself. One whose evidence is still to come
-- is left to whoever brings that; of a lost worker there is none.
create index dead_letters_ungrouped on dead_letters (id)
  where group_id is null and (recorded_at is not null or reason = 'worker_lost');
create index dead_letters_open_by_group on dead_letters (group_id, id) where state = 'open';
create index dead_letters_open_by_reason on dead_letters (reason, id) where state = 'open';
create index dead_letters_open_by_type on dead_letters (type, id) where state = 'open';

-- What a letter is searched by that is not in its row: the tags and the input of its task, and its error as text. `input` is null
-- where jsonb cannot hold it.
create table letter_facts (
  letter_id  uuid  primary key,
  tags       text[],
  error_text text,
  input      jsonb
);
create index letter_facts_tags on letter_facts using gin (tags) where tags is not null;
create index letter_facts_input on letter_facts using gin (input jsonb_path_ops);

-- Wherever the extension lies: another schema of the same database may have had it before.
do $$
begin
  execute format(
    'create index letter_facts_error on letter_facts using gin (error_text %I.gin_trgm_ops)',
    (select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'pg_trgm'));
end $$;
