-- What of each queue a worker runs, and holds without having started it, and whether it is on its way out: what a fleet is scaled by
-- (docs/scaling.md). Deliveries that wait in a worker for a slot are in no count of RabbitMQ's ready messages, and a task that
-- was acked when it was claimed is in none at all.
-- breaking: no
--
-- An older worker does not say it: it counts by its claims alone until it is replaced.

alter table leases
  add column loads jsonb not null default '{}',
  add column is_draining boolean not null default false;
