-- Queues that an operator has paused, or drains.
-- breaking: yes
--
-- A worker that does not know of it would go on with a paused queue, so older ones must not start any more.

alter table queues
  add column mode        text        not null default 'open' check (mode in ('open', 'paused', 'draining')),
  add column mode_reason text,
  add column mode_by     text,
  add column mode_since  timestamptz;

-- Asked by every claim and every look for due tasks, so that in the usual case it is empty.
create index queues_not_open on queues (name) where mode <> 'open';
