/** The statements that show flows. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { oneById } from '../../shared/tasks/beside.sql.ts';

const shown = sql`f.id, f.name, f.business_type, f.business_key, f.state::text as state, f.phase, f.on_failure, f.steps_total,
           f.steps_failed, f.tags, f.created_at, f.created_by, f.started_at, f.finished_at, f.cancelled_by, f.cancel_reason, f.parent_id,
           (select s.name from flow_steps s where s.flow_id = f.parent_id and s.step = f.parent_step) as parent_step,
           -- that its turn has not come is none of its tasks
           f.steps_open - (f.parent_id is not null and f.state = 'pending')::int4 as steps_open`;

/** Columns of a flow. */
export const flowColumns = {
  id: 'uuid',
  name: 'text',
  business_type: 'text?',
  business_key: 'text?',
  state: 'text',
  phase: 'text',
  on_failure: 'text',
  steps_total: 'int4',
  steps_failed: 'int4',
  tags: 'text[]?',
  created_at: 'timestamptz',
  created_by: 'text?',
  started_at: 'timestamptz?',
  finished_at: 'timestamptz?',
  cancelled_by: 'text?',
  cancel_reason: 'text?',
  parent_id: 'uuid?',
  parent_step: 'text?',
  steps_open: 'int4?',
} as const;

/** One flow. Index: primary key. */
export const readFlow = statement<[id: string]>()({
  name: 'read_flow',
  text: sql`select ${shown} from flows f where f.id = $1::uuid`,
  columns: flowColumns,
});

/**
 * The next flows below an id along one index, newest first, at most `$2`; those that fit what else is asked for say so. Null asks for anything.
 * What the index is asked for is `between` itself and itself: where a thing is thought to be common, Postgres would walk along the ids for it.
 */
const pageOfFlows = (where: Sql, order: Sql, isNested: Sql = sql`false`): Sql => sql`
    select ${shown},
           (f.name = $4::text or $4::text is null) and (f.state = any($5::text[]::flow_state[]) or $5::text[] is null)
             and (f.business_type = $6::text or $6::text is null) and (f.parent_id is null or ${isNested}) as fits
      from flows f
     where f.id < $1::uuid and ${where}
     order by ${order}
     limit $2::int4`;

type PageParams = [
  below: string,
  lookAt: number,
  key: string | null,
  name: string | null,
  states: readonly string[] | null,
  businessType: string | null,
];

const pageColumns = { ...flowColumns, fits: 'bool?' } as const;

/** Along those that are nested in one (`$3`). Index: flows_parent. */
export const pageFlowsByParent = statement<PageParams>()({
  name: 'page_flows_by_parent',
  text: pageOfFlows(sql`f.parent_id = $3::text::uuid`, sql`f.parent_id desc, f.id desc`, sql`true`),
  columns: pageColumns,
});

/** Along those about one thing (`$3`), the outermost as everywhere below. Index: flows_business_key. */
export const pageFlowsByKey = statement<PageParams>()({
  name: 'page_flows_by_key',
  text: pageOfFlows(
    sql`f.business_key between $3::text and $3::text and f.parent_id is null`,
    sql`f.business_key desc, f.id desc`,
  ),
  columns: pageColumns,
});

/** Along those in one state (`$3`), which is not `succeeded`. Index: flows_state. */
export const pageFlowsByState = statement<PageParams>()({
  name: 'page_flows_by_state',
  text: pageOfFlows(
    sql`f.state between $3::text::flow_state and $3::text::flow_state and f.state <> 'succeeded' and f.parent_id is null`,
    sql`f.state desc, f.id desc`,
  ),
  columns: pageColumns,
});

/** Along those of one name (`$3`). Index: flows_name. */
export const pageFlowsByName = statement<PageParams>()({
  name: 'page_flows_by_name',
  text: pageOfFlows(sql`f.name between $3::text and $3::text and f.parent_id is null`, sql`f.name desc, f.id desc`),
  columns: pageColumns,
});

/** Along all (`$3` is null). Index: primary key. */
export const pageFlows = statement<PageParams>()({
  name: 'page_flows',
  text: pageOfFlows(sql`$3::text is null`, sql`f.id desc`),
  columns: pageColumns,
});

/** The tasks of a flow and of all that is nested in it. `open`: those that have not ended, with those that undo. Index: flows_parent. */
export const countFlowTasks = statement<[id: string]>()({
  name: 'count_flow_tasks',
  text: sql`
    select sum(f.steps_total)::int4 - (count(*) - 1)::int4 as total,
           sum(f.steps_open - f.is_awaited::int4 - (f.parent_id is not null and f.state = 'pending')::int4)::int4
             + sum((f.id = $1::uuid and f.is_awaited)::int4)::int4 as open
      from unnest(flows_within(array[$1::uuid])) as n (id)
      cross join lateral (select * from flows w where w.id = n.id offset 0) f`,
  columns: { total: 'int4?', open: 'int4?' },
});

/**
 * The steps of a flow with how their tasks stand: a row per step and state, so that a group of ten thousand is a few rows. The task, or the flow,
 * and what is told of it alone, where it is one. `state` is null for what is not made yet.
 */
export const readFlowSteps = statement<[flowId: string]>()({
  name: 'read_flow_steps',
  text: sql`
    select s.kind, s.name, bool_or(s.member is not null) as is_group, v.state, count(*)::int4 as tasks, min(s.step) as first_step,
           max(s.level) as level, (array_agg(s.task_id))[1] as task_id, min(t.type) as type, max(t.attempt) as attempt, min(s.waits_for) as waits_for,
           min(s.on_failure) as on_failure, min(s.signal) as signal, bool_or(g.name is not null) as is_signalled, min(s.why) as why,
           (array_agg(s.earlier::text))[1]::uuid[] as earlier, min(coalesce(t.started_at, c.started_at)) as started_at,
           max(coalesce(t.finished_at, c.finished_at)) as finished_at, (array_agg(d.id))[1] as dead_letter_id, (array_agg(c.id))[1] as child_id,
           min(c.name) as child_name, min(c.state::text) as child_state, min(c.steps_total) as child_total,
           min(c.steps_open - (c.state = 'pending')::int4) as child_open, min(c.steps_failed) as child_failed
      from flow_steps s
      left join lateral ${oneById(sql`*`, sql`s.task_id`)} t on true
      left join lateral (select * from flows w where w.id = s.child_id offset 0) c on true
      cross join lateral (
        select case
                 when s.child_id is null then t.state::text
                 when s.kind = 'step' then case c.state when 'pending' then 'blocked' else c.state::text end
                 when c.is_undoing then case when c.undone_at is not null then 'succeeded' when c.steps_open > 0 then 'running' else 'dead' end
               end as state
      ) v
      left join flow_signals g on g.flow_id = s.flow_id and g.name = s.signal
      left join lateral (
        select d.id from dead_letters d where d.task_id = s.task_id and d.state in ('open', 'replaying') and t.state = 'dead' limit 1
      ) d on true
     where s.flow_id = $1::uuid and s.kind <> 'begin'
     group by s.kind, s.name, v.state
     order by s.kind <> 'step', min(s.step), v.state`,
  columns: {
    kind: 'text?',
    name: 'text?',
    is_group: 'bool?',
    state: 'text?',
    tasks: 'int4?',
    first_step: 'int4?',
    level: 'int4?',
    task_id: 'uuid?',
    type: 'text?',
    attempt: 'int4?',
    waits_for: 'int4?',
    on_failure: 'text?',
    signal: 'text?',
    is_signalled: 'bool?',
    why: 'text?',
    earlier: 'uuid[]?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    dead_letter_id: 'uuid?',
    child_id: 'uuid?',
    child_name: 'text?',
    child_state: 'text?',
    child_total: 'int4?',
    child_open: 'int4?',
    child_failed: 'int4?',
  },
});

/** Which step waits for which, by their names: the members of a group have the same ones after them, but for what is added as they run. */
export const readFlowEdges = statement<[flowId: string]>()({
  name: 'read_flow_edges',
  text: sql`
    select distinct s.name as before, n.name as after
      from flow_steps s
      cross join unnest(s.next) as u (step)
      cross join lateral (select f.name from flow_steps f where f.flow_id = $1::uuid and f.step = u.step offset 0) n
     where s.flow_id = $1::uuid and s.kind = 'step'
       and (coalesce(s.member, 0) = 0 or s.added_by is not null
            or s.step in (select a.added_by from flow_steps a where a.flow_id = $1::uuid and a.added_by is not null))`,
  columns: { before: 'text', after: 'text' },
});

/** What a flow gave, as JSON text; see `flow_result`. */
export const readFlowResult = statement<[flowId: string]>()({
  name: 'read_flow_result',
  text: sql`select flow_result($1::uuid) as result`,
  columns: { result: 'text?' },
});
