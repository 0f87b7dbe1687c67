/** The statements that show flows. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { oneById } from '../../shared/tasks/beside.sql.ts';

const shown = sql`f.id, f.name, f.business_type, f.business_key, f.state::text as state, f.phase, f.on_failure, f.steps_total, f.steps_open,
           f.steps_failed, f.tags, f.created_at, f.created_by, f.started_at, f.finished_at, f.cancelled_by, f.cancel_reason`;

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
  steps_open: 'int4',
  steps_failed: 'int4',
  tags: 'text[]?',
  created_at: 'timestamptz',
  created_by: 'text?',
  started_at: 'timestamptz?',
  finished_at: 'timestamptz?',
  cancelled_by: 'text?',
  cancel_reason: 'text?',
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
const pageOfFlows = (where: Sql, order: Sql): Sql => sql`
    select ${shown},
           (f.name = $4::text or $4::text is null) and (f.state = any($5::text[]::flow_state[]) or $5::text[] is null)
             and (f.business_type = $6::text or $6::text is null) as fits
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

/** Along those about one thing (`$3`). Index: flows_business_key. */
export const pageFlowsByKey = statement<PageParams>()({
  name: 'page_flows_by_key',
  text: pageOfFlows(sql`f.business_key between $3::text and $3::text`, sql`f.business_key desc, f.id desc`),
  columns: pageColumns,
});

/** Along those in one state (`$3`), which is not `succeeded`. Index: flows_state. */
export const pageFlowsByState = statement<PageParams>()({
  name: 'page_flows_by_state',
  text: pageOfFlows(
    sql`f.state between $3::text::flow_state and $3::text::flow_state and f.state <> 'succeeded'`,
    sql`f.state desc, f.id desc`,
  ),
  columns: pageColumns,
});

/** Along those of one name (`$3`). Index: flows_name. */
export const pageFlowsByName = statement<PageParams>()({
  name: 'page_flows_by_name',
  text: pageOfFlows(sql`f.name between $3::text and $3::text`, sql`f.name desc, f.id desc`),
  columns: pageColumns,
});

/** Along all (`$3` is null). Index: primary key. */
export const pageFlows = statement<PageParams>()({
  name: 'page_flows',
  text: pageOfFlows(sql`$3::text is null`, sql`f.id desc`),
  columns: pageColumns,
});

/**
 * The steps of a flow with how their tasks stand: a row per step and state, so that a group of ten thousand is a few rows. The task, and
 * what is told of it alone, where it is one. `state` is null for what is not made yet.
 */
export const readFlowSteps = statement<[flowId: string]>()({
  name: 'read_flow_steps',
  text: sql`
    select s.kind, s.name, bool_or(s.member is not null) as is_group, t.state::text as state, count(*)::int4 as tasks, min(s.step) as first_step,
           max(s.level) as level, (array_agg(s.task_id))[1] as task_id, min(t.type) as type, max(t.attempt) as attempt, min(s.waits_for) as waits_for,
           min(s.on_failure) as on_failure, min(s.signal) as signal, bool_or(g.name is not null) as is_signalled, min(s.why) as why,
           (array_agg(s.earlier::text))[1]::uuid[] as earlier, min(t.started_at) as started_at, max(t.finished_at) as finished_at, (array_agg(d.id))[1] as dead_letter_id
      from flow_steps s
      left join lateral ${oneById(sql`*`, sql`s.task_id`)} t on true
      left join flow_signals g on g.flow_id = s.flow_id and g.name = s.signal
      left join lateral (
        select d.id from dead_letters d where d.task_id = s.task_id and d.state in ('open', 'replaying') and t.state = 'dead' limit 1
      ) d on true
     where s.flow_id = $1::uuid
     group by s.kind, s.name, t.state
     order by s.kind <> 'step', min(s.step), t.state`,
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

/** The results of the steps after which nothing comes, groups left out. */
export const readFlowResults = statement<[flowId: string]>()({
  name: 'read_flow_results',
  text: sql`
    select s.name, t.result
      from flow_steps s
      cross join lateral ${oneById(sql`result`, sql`s.task_id`, sql`and state = 'succeeded'`)} t
     where s.flow_id = $1::uuid and s.kind = 'step' and s.next = '{}' and s.member is null
     order by s.step
     limit 100`,
  columns: { name: 'text', result: 'bytea?' },
});
