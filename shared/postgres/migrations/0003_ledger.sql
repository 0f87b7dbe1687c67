-- The books: how many tasks were accepted and how each ended, counted by the statements that cause it, and what the last look
-- at the tasks themselves found.
-- breaking: yes
--
-- A program that does not count makes the books wrong, so older ones must not start any more.

-- The hour in which an id was made, in hours since 1970 in UTC: a UUIDv7 begins with 48 bits of Unix milliseconds. So a task is
-- accepted and ends in the same line of the books, and one hour's tasks are one range of the primary key.
-- 0.2 µs; by way of the id's text 0.8 (2026-11).
create function task_hour(id uuid) returns integer language sql immutable parallel safe as $$
  select (('x' || encode(substring(uuid_send(id) from 1 for 6), 'hex'))::bit(48)::bigint / 3600000)::integer
$$;

-- What happened to tasks of one hour and type, counted by one session: `backend` is its process id, so that sessions never wait
-- for each other's rows. An id that comes again adds up. 0: folded, of whatever session.
-- `revived`: dead tasks that were replayed. `retired`: ended tasks whose rows were removed on purpose.
-- No count ever falls: so a look at the tasks that takes many statements knows between what it may have fallen.
create table ledger_entries (
  hour    integer not null,
  type    text    not null,
  entry   text    not null check (
    entry in ('accepted', 'succeeded', 'dead', 'revived', 'cancelled', 'expired', 'retired')),
  backend integer not null,
  tasks   bigint  not null,
  primary key (hour, type, entry, backend)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index ledger_entries_unfolded on ledger_entries (hour) where backend <> 0;

-- The last comparison of an hour's tasks of a type with their entries. `difference`: of how many tasks, at the least, row or
-- count must be wrong.
create table ledger_audits (
  hour        integer     not null,
  type        text        not null,
  succeeded   bigint      not null,
  dead        bigint      not null,
  cancelled   bigint      not null,
  expired     bigint      not null,
  in_progress bigint      not null,
  difference  bigint      not null,
  compared_at timestamptz not null default clock_timestamp(),
  primary key (hour, type)
);
create index ledger_audits_differing on ledger_audits (hour) where difference <> 0;

-- Tasks that are there already.
insert into ledger_entries (hour, type, entry, backend, tasks)
select task_hour(id), type, 'accepted', 0, count(*) from tasks group by 1, 2
union all
select task_hour(id), type, state::text, 0, count(*)
  from tasks where state in ('succeeded', 'dead', 'cancelled', 'expired') group by 1, 2, 3;
