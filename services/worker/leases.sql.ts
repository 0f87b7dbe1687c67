/** The statements of a worker's proof of life. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { oneById, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/** Takes a lease for a new worker id. */
export const openLease = statement<
  [
    worker: string,
    host: string,
    pid: number,
    codeVersion: string,
    queues: string,
    taskTypes: readonly string[],
    slots: number,
  ]
>()({
  name: 'open_lease',
  text: sql`
    insert into leases (worker, host, pid, code_version, queues, task_types, slots)
    values ($1::uuid, $2::text, $3::int4, $4::text, $5::text::jsonb, $6::text[], $7::int4)
    on conflict (worker) do nothing
    returning worker`,
  columns: { worker: 'uuid' },
});

/**
 * The tasks of the worker $1 whose cancelling was asked for: of what its claims name, so that requests for the rest of the fleet
 * cost it nothing. Indexes: claims_worker, cancel_requests primary key.
 */
const cancelsOfWorker = sql`
      case when exists (select from cancel_requests) then array(
        select u.id
          from claims c
          cross join unnest(c.task_ids) as u (id)
          join cancel_requests r on r.task_id = u.id
         where c.worker = $1::uuid
      ) else '{}' end`;

/**
 * Renews the lease and answers, in the same round trip, which of the worker's tasks are to be cancelled and which claims name it
 * for longer than `settledInMs`. No row: the lease was reaped, and everything that this worker runs is no longer its own.
 */
export const renewLease = statement<
  [
    worker: string,
    inFlight: number,
    cpuFraction: number,
    memoryBytes: number,
    settledInMs: number,
    loads: string,
    isDraining: boolean,
  ]
>()({
  name: 'renew_lease',
  text: sql`
    update leases
       set renewed_at = clock_timestamp(), in_flight = $2::int4, cpu_fraction = $3::float8,
           memory_bytes = $4::float8::int8, loads = $6::text::jsonb, is_draining = $7::boolean
     where worker = $1::uuid
    returning ${cancelsOfWorker} as cancels,
              array(
                select id from claims
                 where worker = $1::uuid and claimed_at < clock_timestamp() - $5::float8 * interval '1 ms'
              ) as claims`,
  columns: { cancels: 'uuid[]', claims: 'uuid[]' },
});

/** The worker's tasks whose cancelling was asked for, between two renewals: asked when it was notified that there are some. */
export const readCancels = statement<[worker: string]>()({
  name: 'read_cancels',
  text: sql`select ${cancelsOfWorker} as cancels`,
  columns: { cancels: 'uuid[]' },
});

/** Gives the lease up. */
export const closeLease = statement<[worker: string]>()({
  name: 'close_lease',
  text: sql`delete from leases where worker = $1::uuid returning worker`,
  columns: { worker: 'uuid' },
});

/**
 * Hands back what claims of this worker hold and nobody runs: a claim whose answer never arrived. The attempt is kept as
 * interrupted and costs no budget. Locks the rows in id order.
 */
export const handBackClaims = statement<[worker: string, claimIds: readonly string[]]>()({
  name: 'hand_back_claims',
  text: sql`
    with stranded as (
      select id, task_ids from claims where worker = $1::uuid and id = any($2::uuid[]) order by id for update
    ), locked as (
      select t.id, t.attempt, t.worker, t.invited_at, t.started_at, clock_timestamp() as at
        from (
          select s.id as claim_id, u.id from stranded s cross join unnest(s.task_ids) as u (id) order by u.id
        ) s
        cross join lateral ${oneById(
          sql`id, attempt, claim_id, worker, invited_at, started_at`,
          sql`s.id`,
          sql`and state = 'running' and claim_id = s.claim_id for no key update`,
        )} t
       where t.claim_id = s.claim_id and t.worker = $1::uuid -- said for the planner: so few are looked up by their key when updated
    ), freed as (
      update tasks t
         set state = 'pending', invited_at = l.at
        from locked l
       where t.id = l.id and t.attempt = l.attempt and t.state = 'running'
      returning t.id, t.type, t.queue, t.priority, t.generation, t.deadline
    ), history as (
      insert into attempts (task_id, attempt, worker, invited_at, started_at, finished_at, outcome, error_type, error_message)
      select id, attempt, worker, invited_at, started_at, at, 'interrupted', 'HandedBack', 'The claim was won but its answer was lost.'
        from locked order by id
      on conflict (task_id, attempt) do nothing -- counted anew by hand: what is on record stays
    ), waiting as (
      insert into due (task_id, at)
      select id, deadline from freed where deadline is not null order by id
      on conflict (task_id) do update set at = excluded.at
    ), invited as (${writeOutbox(sql`freed`)}
    ), gone as (
      delete from claims c using stranded s where c.id = s.id
    )
    select f.id, f.type, f.queue, f.priority, f.generation, i.id as outbox_id from freed f cross join invited i`,
  columns: { id: 'uuid', type: 'text', queue: 'text', priority: 'int2', generation: 'int4', outbox_id: 'int8' },
});
