/** What the checker reads of the tables of flows. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** All flows. */
export const listChaosFlows = statement<[]>()({
  name: 'chaos_list_flows',
  text: sql`
    select id, tags[1] as key, state::text as state, phase, on_failure, steps_total, steps_open, steps_failed,
           cancelled_by is not null as is_cancelled, finished_at is not null as has_ended
      from flows order by id`,
  columns: {
    id: 'uuid',
    key: 'text?',
    state: 'text',
    phase: 'text',
    on_failure: 'text',
    steps_total: 'int4',
    steps_open: 'int4',
    steps_failed: 'int4',
    is_cancelled: 'bool?',
    has_ended: 'bool?',
  },
});

/** All their steps. */
export const listChaosFlowSteps = statement<[]>()({
  name: 'chaos_list_flow_steps',
  text: sql`
    select flow_id, step, kind, name, task_id, earlier, next, level, on_failure, undo_of, signal, why
      from flow_steps order by flow_id, step`,
  columns: {
    flow_id: 'uuid',
    step: 'int4',
    kind: 'text',
    name: 'text',
    task_id: 'uuid?',
    earlier: 'uuid[]',
    next: 'int4[]',
    level: 'int4',
    on_failure: 'text?',
    undo_of: 'int4?',
    signal: 'text?',
    why: 'text?',
  },
});

/** Signals that came. */
export const listChaosSignals = statement<[]>()({
  name: 'chaos_list_signals',
  text: sql`select flow_id, name from flow_signals order by flow_id, name`,
  columns: { flow_id: 'uuid', name: 'text' },
});
