/** The statements that end attempts. Each names id, attempt and claim: the fence that a worker without its claim cannot pass. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { countInLedger, endSteps, ofThisDeath, oneById, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/** The task of a row of `done` (`d`) where it is this attempt's, locked. */
const mine = (columns: Sql): Sql =>
  oneById(
    columns,
    sql`d.id`,
    sql`and state = 'running' and attempt = d.attempt and claim_id = d.claim_id for no key update`,
  );

/** Said again for the planner, which then takes `locked` for so few that it looks each up by its key when they are updated. */
const fewAreMine = sql`t.attempt = d.attempt and t.claim_id = d.claim_id`;

/**
 * Ends attempts that succeeded, and counts them in the ledger. Locks the rows in id order. `finishedClaims` are claims of
 * which nothing runs any more. Answers what it settled: two attempts of one task can meet in a batch, so match on both; and, without an
 * attempt, the steps of flows that may start now, whose outbox row the sweeper takes after `sweptInMs`.
 */
export const settleSucceeded = statement<
  [
    ids: readonly string[],
    attempts: readonly number[],
    claimIds: readonly string[],
    results: readonly (Buffer | null)[],
    finishedClaims: readonly string[],
    sweptInMs: number,
  ]
>()({
  name: 'settle_succeeded',
  text: sql`
    with done as (
      select * from unnest($1::uuid[], $2::int4[], $3::uuid[], $4::bytea[]) as d (id, attempt, claim_id, result)
    ), locked as (
      select t.id, t.attempt, t.claim_id, d.result
        from (select * from done order by id) d
        cross join lateral ${mine(sql`id, attempt, claim_id`)} t
       where ${fewAreMine}
    ), gone as (
      delete from claims where id = any($5::uuid[])
    ), settled as (
      update tasks t
         set state = 'succeeded', finished_at = clock_timestamp(), result = l.result
        from locked l
       where t.id = l.id and t.attempt = l.attempt and t.claim_id = l.claim_id and t.state = 'running'
      returning t.id, t.attempt, t.type, t.flow_id, t.flow_step, t.state
    ), counted as (${countInLedger(sql`'succeeded'`, sql`settled`)}
    )
    select id, attempt, null as type, null as queue, null::int2 as priority, null::int4 as generation, null::int8 as outbox_id from settled
    union all
    select task_id, null, type, queue, priority, generation, outbox_id
      from (${endSteps(sql`settled`, sql`$6::float8 * interval '1 ms'`)}) freed`,
  columns: {
    id: 'uuid?',
    attempt: 'int4?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
  },
});

/**
 * Ends attempts in any other way: each row names the state that it wants. Past its deadline a retry is `dead` instead, and
 * where cancelling was asked for nothing waits again. The same statement writes the attempt's history, what is due, the
 * dead letter, the ledger's entries and, for what is pending again, the outbox row. Answers also, without an attempt, steps of flows that
 * may start now. Locks the rows in id order.
 */
export const settleOthers = statement<
  [
    ids: readonly string[],
    attempts: readonly number[],
    claimIds: readonly string[],
    states: readonly string[],
    failures: readonly number[],
    delaysMs: readonly number[],
    outcomes: readonly string[],
    reasons: readonly string[],
    letterIds: readonly string[],
    errorTypes: readonly (string | null)[],
    errorCodes: readonly (string | null)[],
    errorMessages: readonly (string | null)[],
    errorStacks: readonly (string | null)[],
    codeVersion: string,
    finishedClaims: readonly string[],
    spans: readonly (string | null)[] | null,
  ]
>()({
  name: 'settle_others',
  text: sql`
    with done as (
      select *
        from unnest($1::uuid[], $2::int4[], $3::uuid[], $4::text[], $5::int4[], $6::float8[], $7::text[], $8::text[],
                    $9::uuid[], $10::text[], $11::text[], $12::text[], $13::text[], $16::text[])
          as d (id, attempt, claim_id, wanted, failed, delay_ms, outcome, reason, letter_id,
                error_type, error_code, error_message, error_stack, span)
    ), locked as (
      select d.*, t.worker, t.invited_at, t.started_at,
             case
               when d.wanted in ('retrying', 'scheduled', 'pending')
                 and exists (select from cancel_requests c where c.task_id = t.id) then 'cancelled'
               when d.wanted = 'retrying' and t.deadline <= clock_timestamp() then 'dead'
               else d.wanted
             end::task_state as state,
             clock_timestamp() as at
        from (select * from done order by id) d
        cross join lateral ${mine(sql`id, attempt, claim_id, worker, invited_at, started_at, deadline`)} t
       where ${fewAreMine}
    ), settled as (
      update tasks t
         set state = l.state,
             failures = t.failures + l.failed,
             run_at = case when l.state in ('retrying', 'scheduled') then l.at + l.delay_ms * interval '1 ms' end,
             invited_at = case when l.state = 'pending' then l.at else t.invited_at end,
             finished_at = case when l.state in ('dead', 'cancelled') then l.at end,
             failed_span = coalesce(l.span, t.failed_span)
        from locked l
       where t.id = l.id and t.attempt = l.attempt and t.claim_id = l.claim_id and t.state = 'running'
      returning t.id, t.attempt, t.state, t.run_at, t.deadline, t.type, t.queue, t.priority, t.generation, t.flow_id, t.flow_step,
                l.letter_id, l.reason, l.error_type, l.error_code, l.error_message, l.error_stack
    ), counted as (${countInLedger(sql`state::text`, sql`settled where state in ('dead', 'cancelled')`)}
    ), history as (
      insert into attempts (task_id, attempt, worker, invited_at, started_at, finished_at, outcome, error_type, error_code,
                            error_message, error_stack, code_version)
      select l.id, l.attempt, l.worker, l.invited_at, l.started_at, l.at,
             case when l.state = 'cancelled' then 'cancelled' else l.outcome end,
             l.error_type, l.error_code, l.error_message, l.error_stack, $14::text
        from locked l
       order by l.id
      on conflict (task_id, attempt) do nothing -- counted anew by hand: what is on record stays
    ), waiting as (
      insert into due (task_id, at)
      select id, least(run_at, deadline)
        from settled
       where state in ('retrying', 'scheduled') or (state = 'pending' and deadline is not null)
       order by id
      on conflict (task_id) do update set at = excluded.at
    ), letters as (
      insert into dead_letters (id, kind, task_id, reason, type, queue, attempt, error_type, error_code, error_message,
                                error_stack)
      select s.letter_id, 'task', s.id, s.reason, s.type, s.queue, s.attempt, s.error_type, s.error_code, s.error_message,
             s.error_stack
        from settled s
       where s.state = 'dead'${ofThisDeath}
    ), invited as (${writeOutbox(sql`settled where state = 'pending'`)}
    ), forgotten as (
      delete from cancel_requests c using settled s where c.task_id = s.id and s.state in ('dead', 'cancelled')
    ), gone as (
      delete from claims where id = any($15::uuid[])
    )
    select s.id, s.attempt, s.state::text as state, s.type, s.queue, s.priority, s.generation,
           case when s.state = 'pending' then (select id from invited) end as outbox_id
      from settled s
    union all
    select task_id, null, null, type, queue, priority, generation, outbox_id
      from (${endSteps(sql`(select * from settled where state in ('dead', 'cancelled')) over`)}) freed`,
  columns: {
    id: 'uuid?',
    attempt: 'int4?',
    state: 'text?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
  },
});

/** What became of tasks whose settle won nothing: the answer to the first try may have been lost after its commit. */
export const readSettled = statement<[ids: readonly string[]]>()({
  name: 'read_settled',
  text: sql`select id, attempt, claim_id, state::text as state from tasks where id = any($1::uuid[])`,
  columns: { id: 'uuid', attempt: 'int4', claim_id: 'uuid?', state: 'text' },
});

/**
 * Whether a task's row can be had at once, or is no longer this attempt's: what a transaction of its handler does with it is
 * decided then.
 */
export const probeSettled = statement<[id: string, attempt: number, claimId: string]>()({
  name: 'probe_settled',
  text: sql`
    with mine as (
      select id from tasks where id = $1::uuid and attempt = $2::int4 and claim_id = $3::uuid and state = 'running'
    ), free as (
      select t.id from tasks t join mine m on m.id = t.id for no key update of t skip locked
    )
    select exists (select from free) or not exists (select from mine) as is_decided`,
  columns: { is_decided: 'bool' },
});

/** Forgets claims of which nothing runs any more, where no later settle came by to do it. */
export const forgetClaims = statement<[claimIds: readonly string[]]>()({
  name: 'forget_claims',
  text: sql`delete from claims where id = any($1::uuid[]) returning id`,
  columns: { id: 'uuid' },
});
