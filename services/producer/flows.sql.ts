/** The statements of flows. What moves a flow stands in `0022_flows.sql`: whoever ends a step calls it. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { countInLedger, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/** Takes a business key where nobody has it; no row where somebody does. Waits for a transaction that takes the same. */
export const takeFlowKey = statement<[businessType: string, businessKey: string, flowId: string]>()({
  name: 'take_flow_key',
  text: sql`
    insert into flow_keys (business_type, business_key, flow_id) values ($1::text, $2::text, $3::uuid)
    on conflict do nothing
    returning flow_id`,
  columns: { flow_id: 'uuid' },
});

/** Takes a business key over from a flow that failed, was cancelled, or is no more; no row where another holds it. */
export const inheritFlowKey = statement<[businessType: string, businessKey: string, flowId: string]>()({
  name: 'inherit_flow_key',
  text: sql`
    update flow_keys k
       set flow_id = $3::uuid
     where k.business_type = $1::text and k.business_key = $2::text
       and not exists (select from flows f where f.id = k.flow_id and f.state not in ('failed', 'cancelled'))
    returning k.flow_id`,
  columns: { flow_id: 'uuid' },
});

/** Who holds a business key. */
export const findFlowKey = statement<[businessType: string, businessKey: string]>()({
  name: 'find_flow_key',
  text: sql`select flow_id from flow_keys where business_type = $1::text and business_key = $2::text`,
  columns: { flow_id: 'uuid' },
});

/**
 * Accepts a flow: its row, its steps, and a task for each of those that are made now. Those that wait for nothing are pending, with an outbox
 * row; all others are blocked. An empty flow has succeeded.
 */
export const acceptFlow = statement<
  [
    id: string,
    name: string,
    businessType: string | null,
    businessKey: string | null,
    onFailure: string,
    tags: readonly string[] | null,
    createdBy: string,
    steps: readonly number[],
    kinds: readonly string[],
    names: readonly string[],
    members: readonly (number | null)[],
    taskIds: readonly (string | null)[],
    types: readonly string[],
    queues: readonly string[],
    priorities: readonly number[],
    maxAttempts: readonly number[],
    inputs: readonly (Buffer | null)[],
    concurrencyKeys: readonly (string | null)[],
    rateKeys: readonly (string | null)[],
    waitsFor: readonly number[],
    next: readonly string[],
    levels: readonly number[],
    stepRules: readonly (string | null)[],
    undoOf: readonly (number | null)[],
    delaysMs: readonly (number | null)[],
    signals: readonly (string | null)[],
    signalsMs: readonly (number | null)[],
    pieces: readonly (string | null)[],
    refs: readonly (string | null)[],
    specs: readonly (string | null)[],
    startNow: readonly boolean[],
  ]
>()({
  name: 'accept_flow',
  text: sql`
    with wanted as (
      select *, clock_timestamp() as now
        from unnest($8::int4[], $9::text[], $10::text[], $11::int4[], $12::uuid[], $13::text[], $14::text[], $15::int2[], $16::int4[],
                    $17::bytea[], $18::text[], $19::text[], $20::int4[], $21::text[], $22::int4[], $23::text[], $24::int4[], $25::float8[],
                    $26::text[], $27::float8[], $28::text[], $29::text[], $30::text[], $31::bool[])
          as w (step, kind, name, member, task_id, type, queue, priority, max_attempts, input, concurrency_key, rate_key, waits_for, next,
                level, on_failure, undo_of, delay_ms, signal, signal_ms, pieces, refs, spec, starts)
    ), flow as (
      insert into flows (id, name, business_type, business_key, on_failure, steps_total, steps_open, tags, created_by, state, finished_at)
      select $1::uuid, $2::text, $3::text, $4::text, $5::text, n, n, $6::text[], $7::text,
             case when n = 0 then 'succeeded' else 'pending' end::flow_state, case when n = 0 then clock_timestamp() end
        from (select count(*)::int4 as n from wanted where task_id is not null) c
      returning id, state, created_at
    ), steps as (
      insert into flow_steps (flow_id, step, kind, name, member, task_id, waits_for, next, level, on_failure, undo_of, delay_ms, signal,
                              signal_ms, pieces, refs, spec)
      select $1::uuid, step, kind, name, member, task_id, waits_for, next::int4[], level, on_failure, undo_of, delay_ms, signal, signal_ms,
             pieces::text[], refs::jsonb, spec::jsonb
        from wanted
       order by step
    ), timed as (
      insert into flow_timers (flow_id, step, at)
      select $1::uuid, step, now + signal_ms * interval '1 ms' from wanted where signal_ms is not null and waits_for = 1 order by step
    ), accepted as (
      insert into tasks (id, accepted_at, invited_at, state, max_attempts, priority, type, queue, business_key, publisher, tags, input,
                         concurrency_key, rate_key, flow_id, flow_step)
      select task_id, now, case when starts then now end, case when starts then 'pending' else 'blocked' end::task_state, max_attempts,
             priority, type, queue, $4::text, $7::text, $6::text[], input, concurrency_key, rate_key, $1::uuid, step
        from wanted
       where task_id is not null
       order by task_id
      returning id, state, type, queue, priority, generation
    ), counted as (${countInLedger(sql`'accepted'`, sql`accepted`)}
    ), invited as (${writeOutbox(sql`accepted where state = 'pending'`)}
    )
    select f.id, f.state::text as state, f.created_at, (select id from invited) as outbox_id from flow f`,
  columns: { id: 'uuid', state: 'text', created_at: 'timestamptz', outbox_id: 'int8?' },
});

/** Starts steps of a flow whose turn has come; see `unblock_steps`. */
export const unblockSteps = statement<[flowId: string, steps: readonly number[]]>()({
  name: 'unblock_steps',
  text: sql`
    select task_id as id, type, queue, priority, generation, outbox_id
      from unblock_steps(array_fill($1::uuid, array[cardinality($2::int4[])]), $2::int4[], interval '10 s')`,
  columns: { id: 'uuid?', type: 'text?', queue: 'text?', priority: 'int2?', generation: 'int4?', outbox_id: 'int8?' },
});

/** A signal for a flow; see `signal_flow`. No row where there is no such flow, or it has ended. */
export const signalFlow = statement<[flowId: string, name: string, data: Buffer, sender: string]>()({
  name: 'signal_flow',
  text: sql`
    select s.is_new, s.task_id as id, s.type, s.queue, s.priority, s.generation, s.outbox_id
      from flows f
      cross join lateral signal_flow(f.id, $2::text, $3::bytea, $4::text) s
     where f.id = $1::uuid and f.finished_at is null`,
  columns: {
    is_new: 'bool?',
    id: 'uuid?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
  },
});

/** Ends steps whose signal has not come in time. */
export const expireFlowTimers = statement<[limit: number]>()({
  name: 'expire_flow_timers',
  text: sql`select expire_flow_timers($1::int4) as expired`,
  columns: { expired: 'int4?' },
});

/** Cancels a flow; see `cancel_flow`. Writes a line of the audit where it does anything. */
export const cancelFlow = statement<
  [id: string, actor: string, role: string, address: string | null, reason: string | null]
>()({
  name: 'cancel_flow',
  text: sql`
    with cancelled as (
      select cancel_flow($1::uuid, $2::text, $5::text) as under_way
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select uuid_v7(), $2::text, $3::text, $4::text, 'flow.cancel', $1::uuid::text, jsonb_strip_nulls(jsonb_build_object('reason', $5::text))
        from cancelled
       where under_way is not null
    )
    select under_way from cancelled`,
  columns: { under_way: 'uuid[]?' },
});
