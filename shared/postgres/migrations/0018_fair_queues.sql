-- Queues that are fair by a key of the input: tasks wait for their turn in Postgres, and a few at a time are invited.
-- breaking: yes
--
-- An older worker would not take a started task off the number that is invited, and the queue would stand still.

alter table queues
  add column fair_by      text,
  add column fair_weights jsonb   not null default '{}',
  add column fair_depth   integer not null default 100 check (fair_depth between 1 and 1000);

-- Where the round stands: the key that had the last turn, and how much of it. Whoever releases holds its lock, and counts up `releases`: a
-- statement that sees another number than the locked row has was begun before the last release ended, and must not count by what it sees.
create table fair_turns (
  queue    text    primary key references queues (name) on delete cascade,
  last_key text    not null default '',
  served   integer not null default 0,
  releases bigint  not null default 0
) with (fillfactor = 50);

-- Asked by every claim and every look for due tasks, so that in the usual case it is empty.
drop index queues_not_open;
create index queues_special on queues (name) where mode <> 'open' or fair_by is not null;

-- turn: waits for its turn. turn_given: had it, and has not been started yet. Behind the other reasons in the order of the index, so that
-- whoever looks through those need not look through the lines of a fair queue.
alter table held_back
  drop constraint held_back_reason_check,
  add constraint held_back_reason_check
    check (reason in ('concurrency', 'rate', 'paused', 'draining', 'turn', 'turn_given'));

-- The key under which a task waits for its turn in a queue; null where the queue is not fair. An input that cannot be read, changed by hand
-- or erased, has the empty key: it must not hold up those that become due with it.
create function turn_key(queue text, input bytea) returns text language plpgsql stable as $$
declare
  path text := (select q.fair_by from queues q where q.name = queue);
begin
  if path is null then return null; end if;
  begin
    return coalesce(limit_key(path, convert_from(input, 'UTF8')::json), '');
  exception when data_exception then
    return '';
  end;
end $$;
