/** The statements that start attempts. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { oneById, specialQueues, traceOf, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/** Whether the lease of worker $3 stands. */
export const living: Sql = sql`
      select exists (select from leases where worker = $3::uuid) as has_lease`;

/** The tasks $1 that may be started in their generations $2, locked in id order; needs `living`. The rest of a `select … from`. */
export const claimable: Sql = sql`from (
          select w.id, w.generation from unnest($1::uuid[], $2::int4[]) as w (id, generation) order by w.id
        ) w
        cross join lateral ${oneById(
          sql`*`,
          sql`w.id`,
          sql`
          and state = 'pending' and generation = w.generation and (deadline is null or deadline > clock_timestamp())
          and (select has_lease from living)
          for no key update`,
        )} t
       where t.generation = w.generation -- said again for the planner: so few are looked up by their key when they are updated
`;

/** Starts an attempt of each task of `from` (`id`), which is locked, under the claim $4 of the worker $3. */
export const start = (from: Sql): Sql => sql`
      update tasks t
         set state = 'running', attempt = t.attempt + 1, claim_id = $4::uuid, worker = $3::uuid,
             started_at = clock_timestamp()
        from ${from} l
       where t.id = l.id and t.state = 'pending'
      returning t.id, t.type, t.attempt, t.failures, t.max_attempts, t.lost_attempts, t.input, t.input_file, t.concurrency_key,
                t.flow_id, t.business_key, ${traceOf(sql`t`)} as trace, t.failed_span,
                extract(epoch from t.started_at - coalesce(t.invited_at, t.accepted_at)) * 1000 as wait_ms`;

/** Writes down what a claim holds, extended where it is repeated. */
export const keepBatch: Sql = sql`
      insert into claims (id, worker, claimed_at, task_ids)
      select $4::uuid, $3::uuid, clock_timestamp(), array_agg(id) from claimed having count(*) > 0
      on conflict (id) do update set task_ids = claims.task_ids || excluded.task_ids`;

/** Says of flows of which nothing had started that they run. */
export const beginFlows: Sql = sql`
      update flows f
         set state = 'running', started_at = clock_timestamp()
       where f.id = any(array(select flow_id from claimed where flow_id is not null order by 1)) and f.state = 'pending'`;

/** What is answered of each claimed task `c`. */
export const shown: Sql = sql`c.id, c.type, c.attempt, c.failures, c.max_attempts, c.lost_attempts, c.input, c.input_file, c.concurrency_key,
           c.flow_id, c.business_key, c.trace, c.failed_span, c.wait_ms::float8 as wait_ms`;

/** Its columns; all null in the row that only says whether the lease stands. */
export const claimedColumns = {
  id: 'uuid?',
  type: 'text?',
  attempt: 'int4?',
  failures: 'int4?',
  max_attempts: 'int4?',
  lost_attempts: 'int2?',
  input: 'bytea?',
  input_file: 'uuid?',
  concurrency_key: 'text?',
  flow_id: 'uuid?',
  business_key: 'text?',
  trace: 'text?',
  failed_span: 'text?',
  wait_ms: 'float8?',
} as const;

/**
 * Starts an attempt of each task that is pending in the invited generation, provided that this worker's lease stands.
 * Locks the rows in id order. One row of `claims` for the batch, extended where a claim is repeated. Index: tasks primary key.
 * Always answers at least one row, which says whether the lease stands: without it a lost claim proves nothing; and which tasks
 * have limits or wait in a queue that is paused or fair: those are left as they are, for `claimRestricted`.
 */
export const claimTasks = statement<
  [ids: readonly string[], generations: readonly number[], worker: string, claimId: string]
>()({
  name: 'claim_tasks',
  text: sql`
    with living as (${living}
    ), special as (${specialQueues}
    ), locked as (
      select t.id,
             t.concurrency_key is not null or t.rate_key is not null or t.queue = any((select names || fair from special)::text[])
               as is_restricted
        ${claimable}
    ), claimed as (${start(sql`(select id from locked where not is_restricted)`)}
    ), batch as (${keepBatch}
    ), begun as (${beginFlows}
    )
    select v.has_lease, (select array_agg(id) from locked where is_restricted) as restricted,
           ${shown}
      from living v
      left join claimed c on true`,
  columns: {
    has_lease: 'bool',
    restricted: 'uuid[]?',
    ...claimedColumns,
  },
});

/** What a claim already holds: asked after a claim whose answer was lost, since it may have been committed. */
export const findClaimed = statement<[ids: readonly string[], claimId: string]>()({
  name: 'find_claimed',
  text: sql`
    select id, type, attempt, failures, max_attempts, lost_attempts, input, input_file, concurrency_key, flow_id, business_key,
           ${traceOf(sql`t`)} as trace, failed_span,
           (extract(epoch from started_at - coalesce(invited_at, accepted_at)) * 1000)::float8 as wait_ms
      from tasks t
     where id = any($1::uuid[]) and claim_id = $2::uuid and state = 'running'`,
  columns: {
    id: 'uuid',
    type: 'text',
    attempt: 'int4',
    failures: 'int4',
    max_attempts: 'int4',
    lost_attempts: 'int2',
    input: 'bytea',
    input_file: 'uuid?',
    concurrency_key: 'text?',
    flow_id: 'uuid?',
    business_key: 'text?',
    trace: 'text?',
    failed_span: 'text?',
    wait_ms: 'float8?',
  },
});

/**
 * Says of a claimed task, before its handler runs, that nothing else runs in its worker: should the worker be lost now, this
 * attempt counts as lost alone. Nothing where the claim or its lease is gone. Index: claims primary key.
 */
export const markAlone = statement<[id: string, attempt: number, claimId: string]>()({
  name: 'mark_alone',
  text: sql`
    update claims c
       set alone = $1::uuid
     where c.id = $3::uuid
       and exists (select from leases l where l.worker = c.worker)
       and exists (
         select from tasks t
          where t.id = $1::uuid and t.attempt = $2::int4 and t.claim_id = $3::uuid and t.state = 'running')
    returning c.id`,
  columns: { id: 'uuid' },
});

/** Puts off tasks whose type this worker does not know, before any claim, so that no attempt is spent. Locks in id order. */
export const deferUnknown = statement<[ids: readonly string[], generations: readonly number[], delayMs: number]>()({
  name: 'defer_unknown',
  text: sql`
    with locked as (
      select t.id
        from unnest($1::uuid[], $2::int4[]) as w (id, generation)
        join tasks t on t.id = w.id
       where t.state = 'pending' and t.generation = w.generation
       order by t.id
         for no key update of t
    ), deferred as (
      update tasks t
         set state = 'scheduled', invited_at = null, run_at = clock_timestamp() + $3::int4 * interval '1 ms'
        from locked l
       where t.id = l.id and t.state = 'pending'
      returning t.id, t.run_at, t.deadline
    )
    insert into due (task_id, at)
    select id, least(run_at, deadline) from deferred order by id
    on conflict (task_id) do update set at = excluded.at
    returning task_id`,
  columns: { task_id: 'uuid' },
});

/** Invites anew what this worker was handed and has not started, so that it need not go back to the head of its queue. */
export const inviteAgain = statement<[ids: readonly string[], generations: readonly number[]]>()({
  name: 'invite_again',
  text: sql`
    with waiting as (
      select t.id, t.type, t.queue, t.priority, t.generation
        from unnest($1::uuid[], $2::int4[]) as w (id, generation)
        join tasks t on t.id = w.id
       where t.state = 'pending' and t.generation = w.generation
    ), invited as (${writeOutbox(sql`waiting`)}
    )
    select w.id, w.type, w.queue, w.priority, w.generation, i.id as outbox_id from waiting w cross join invited i`,
  columns: { id: 'uuid', type: 'text', queue: 'text', priority: 'int2', generation: 'int4', outbox_id: 'int8' },
});
