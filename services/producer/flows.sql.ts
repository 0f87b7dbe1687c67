/** The statements of flows. What moves a flow stands in `0022_flows.sql`, `0024_nested_flows.sql` and `0030_flows_begin_first.sql`: whoever ends a step calls it. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { countInLedger, isAmong, writeOutbox } from '../../shared/tasks/beside.sql.ts';

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
 * Accepts flows: their rows, their steps, and a task for each step that is made now. Of those that wait for nothing, the ones that `start` are
 * pending, with an outbox row; those that are `late` (a delay, a queue that holds back, an input to be made) go the way of any step whose turn has
 * come, and all others are blocked. A nested flow comes with the one around it; a step -1 of it is open until its turn has come. A flow without tasks has succeeded. A flow whose business key another holds is left out of the answer, which
 * has a row per flow, and a row per task of the late ones that was invited. Inserts in key order.
 */
export const acceptFlows = statement<
  [
    ids: readonly string[],
    flowNames: readonly string[],
    businessTypes: readonly (string | null)[],
    businessKeys: readonly (string | null)[],
    rules: readonly string[],
    tags: readonly (string | null)[],
    creators: readonly string[],
    flowIds: readonly string[],
    steps: readonly number[],
    kinds: readonly string[],
    names: readonly string[],
    members: readonly (number | null)[],
    taskIds: readonly (string | null)[],
    types: readonly string[],
    queues: readonly string[],
    priorities: readonly number[],
    maxAttempts: readonly number[],
    inputs: readonly (string | null)[],
    concurrencyKeys: readonly (string | null)[] | null,
    rateKeys: readonly (string | null)[] | null,
    waitsFor: readonly number[],
    next: readonly string[],
    levels: readonly number[],
    stepRules: readonly (string | null)[] | null,
    undoOf: readonly (number | null)[] | null,
    delaysMs: readonly (number | null)[] | null,
    signals: readonly (string | null)[] | null,
    signalsMs: readonly (number | null)[] | null,
    pieces: readonly (string | null)[] | null,
    refs: readonly (string | null)[] | null,
    specs: readonly (string | null)[] | null,
    begins: readonly (string | null)[],
    publishers: readonly string[],
    taskKeys: readonly (string | null)[] | null,
    taskTags: readonly (string | null)[] | null,
    groups: readonly (string | null)[],
    parentIds: readonly (string | null)[] | null,
    parentSteps: readonly (number | null)[] | null,
    rootIds: readonly (string | null)[] | null,
    children: readonly (string | null)[] | null,
    traces: readonly (string | null)[] | null,
  ]
>()({
  name: 'accept_flows',
  text: sql`
    with asked as (
      select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $36::text[], $37::uuid[],
                           $38::int4[], $39::uuid[], $41::text[])
        as w (id, name, business_type, business_key, on_failure, tags, created_by, groups, parent_id, parent_step, root_id, trace)
    ), keyed as (
      insert into flow_keys as k (business_type, business_key, flow_id)
      select business_type, business_key, id from asked where business_key is not null and parent_id is null order by 1, 2
      on conflict (business_type, business_key) do update set flow_id = excluded.flow_id where k.flow_id = excluded.flow_id
      returning flow_id as id
    ), fresh as (
      select * from asked where business_key is null or ${isAmong(sql`coalesce(asked.root_id, asked.id)`, sql`keyed`)}
    ), wanted as (
      select *, clock_timestamp() as now
        from unnest($8::uuid[], $9::int4[], $10::text[], $11::text[], $12::int4[], $13::uuid[], $14::text[], $15::text[], $16::int2[],
                    $17::int4[], $18::text[], $19::text[], $20::text[], $21::int4[], $22::text[], $23::int4[], $24::text[], $25::int4[],
                    $26::float8[], $27::text[], $28::float8[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[],
                    $35::text[], $40::uuid[])
          as w (flow_id, step, kind, name, member, task_id, type, queue, priority, max_attempts, input, concurrency_key, rate_key, waits_for,
                next, level, on_failure, undo_of, delay_ms, signal, signal_ms, pieces, refs, spec, begins,
                publisher, business_key, tags, child_id)
       where ${isAmong(sql`w.flow_id`, sql`fresh`)}
    ), counts as (
      select flow_id, count(*) filter (where kind = 'step')::int4 as n, count(*) filter (where kind in ('step', 'begin'))::int4 as open
        from wanted
       group by flow_id
    ), flow as (
      insert into flows (id, name, business_type, business_key, on_failure, steps_total, steps_open, tags, created_by, groups, state,
                         finished_at, parent_id, parent_step, root_id, is_awaited, trace)
      select f.id, f.name, f.business_type, f.business_key, f.on_failure, coalesce(c.n, 0), coalesce(c.open, 0), f.tags::text[], f.created_by,
             f.groups::jsonb, case when c.open > 0 then 'pending' else 'succeeded' end::flow_state,
             case when c.open > 0 then null else clock_timestamp() end, f.parent_id, f.parent_step, f.root_id, f.parent_id is not null, f.trace
        from fresh f
        left join lateral (select n, open from counts where flow_id = f.id) c on true
       order by f.id
      returning id, state, created_at
    ), steps as (
      insert into flow_steps (flow_id, step, kind, name, member, task_id, waits_for, next, level, on_failure, undo_of, delay_ms, signal,
                              signal_ms, pieces, refs, spec, child_id)
      select flow_id, step, kind, name, member, task_id, waits_for, next::int4[], level, on_failure, undo_of, delay_ms, signal, signal_ms,
             pieces::text[], refs::jsonb, spec::jsonb, child_id
        from wanted
       order by flow_id, step
      returning 1 as n
    ), timed as (
      insert into flow_timers (flow_id, step, at)
      select flow_id, step, now + signal_ms * interval '1 ms'
        from wanted
       where $28::float8[] is not null and signal_ms is not null and waits_for = 1
       order by flow_id, step
    ), accepted as (
      insert into tasks (id, accepted_at, invited_at, state, max_attempts, priority, type, queue, business_key, publisher, tags, input,
                         concurrency_key, rate_key, flow_id, flow_step)
      select w.task_id, w.now, case when w.begins = 'start' then w.now end,
             case when w.begins = 'start' then 'pending' else 'blocked' end::task_state, w.max_attempts, w.priority, w.type, w.queue,
             w.business_key, w.publisher, w.tags::text[], convert_to(w.input, 'UTF8'), w.concurrency_key, w.rate_key, w.flow_id, w.step
        from wanted w
       where w.task_id is not null
       order by w.task_id
      returning id, state, type, queue, priority, generation
    ), counted as (${countInLedger(sql`'accepted'`, sql`accepted`)}
    ), invited as (${writeOutbox(sql`accepted where state = 'pending'`)}
    ), late as (
      -- once the rows are there that the function looks for
      select array_agg(flow_id) as flows, array_agg(step) as steps
        from wanted
       where begins = 'late' and (select count(*) from steps) + (select count(*) from accepted) + (select count(*) from flow) > 0
    )
    select f.id as flow_id, f.state::text as state, f.created_at, (select id from invited) as invited_by, null::uuid as id, null as type,
           null as queue, null::int2 as priority, null::int4 as generation, null::int8 as outbox_id
      from flow f
    union all
    select null, null, null, null, u.task_id, u.type, u.queue, u.priority, u.generation, u.outbox_id
      from late l
      cross join lateral start_steps(l.flows, l.steps, interval '10 s') u
     where l.flows is not null`,
  columns: {
    flow_id: 'uuid?',
    state: 'text?',
    created_at: 'timestamptz?',
    invited_by: 'int8?',
    id: 'uuid?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
  },
});

/** A signal for a flow; see `signal_flow`. No row where there is no such flow, or it has ended without that. */
export const signalFlow = statement<[flowId: string, name: string, data: Buffer, sender: string]>()({
  name: 'signal_flow',
  text: sql`
    select s.is_new, s.task_id as id, s.type, s.queue, s.priority, s.generation, s.outbox_id
      from flows f
      cross join lateral signal_flow(f.id, $2::text, $3::bytea, $4::text) s
     where f.id = $1::uuid and f.finished_at is null
    union all
    select false, null, null, null, null, null, null
      from flow_signals g
      join flows f on f.id = g.flow_id
     where g.flow_id = $1::uuid and g.name = $2::text and f.finished_at is not null`,
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

/** Has a flow that has ended go on; see `retry_flow`. Writes a line of the audit where it does anything. */
export const retryFlow = statement<
  [id: string, fromStep: string | null, actor: string, role: string, address: string | null, reason: string | null]
>()({
  name: 'retry_flow',
  text: sql`
    with retried as (
      select retry_flow($1::uuid, $2::text, $3::text, $6::text) as made
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select uuid_v7(), $3::text, $4::text, $5::text, 'flow.retry', $1::uuid::text,
             jsonb_strip_nulls(jsonb_build_object('reason', $6::text, 'from', $2::text, 'tasks', made))
        from retried
       where made > 0
    )
    select made from retried`,
  columns: { made: 'int4?' },
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
