/** What the checker judges flows by: what was submitted and done to them, and the tables. */
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { listChaosFlows, listChaosFlowSteps, listChaosSignals } from './flow-evidence.sql.ts';
import type { FlowSubmission } from './flow-load.ts';

/** A flow's row. */
export interface FlowRow {
  readonly id: string;
  /** Key of its submission. */
  readonly key: string | undefined;
  readonly state: string;
  readonly phase: string;
  readonly onFailure: string;
  readonly stepsTotal: number;
  readonly stepsOpen: number;
  readonly stepsFailed: number;
  readonly isCancelled: boolean;
  readonly hasEnded: boolean;
}

/** A step's row. */
export interface FlowStepRow {
  readonly flowId: string;
  readonly step: number;
  readonly kind: string;
  readonly name: string;
  readonly taskId: string | undefined;
  /** Tasks that it was before. */
  readonly earlier: readonly string[];
  /** Steps that wait for it. */
  readonly next: readonly number[];
  readonly level: number;
  readonly onFailure: string | undefined;
  readonly undoOf: number | undefined;
  readonly signal: string | undefined;
  /** Why its flow cancelled it. */
  readonly why: string | undefined;
}

/** All of it. */
export interface FlowEvidence {
  readonly submissions: readonly FlowSubmission[];
  readonly rows: readonly FlowRow[];
  readonly steps: readonly FlowStepRow[];
  /** Flows that were sent the signal. */
  readonly signalled: ReadonlySet<string>;
  /** Flows whose cancelling was asked for. */
  readonly cancelled: ReadonlySet<string>;
  /** Flows that somebody wanted to go on. */
  readonly retried: ReadonlySet<string>;
}

/** No flows. */
export const NO_FLOWS: FlowEvidence = {
  submissions: [],
  rows: [],
  steps: [],
  signalled: new Set(),
  cancelled: new Set(),
  retried: new Set(),
};

/** What a task is of its flow. */
export interface Part {
  readonly flow: FlowRow;
  readonly step: FlowStepRow;
  /** True where another task is in its place by now. */
  readonly isEarlier: boolean;
}

/** The tasks of flows, those included in whose place others came, or that left their flow. */
export function partsOf({ rows, steps }: FlowEvidence): ReadonlyMap<string, Part> {
  const flows = new Map(rows.map((row) => [row.id, row]));
  const parts = new Map<string, Part>();
  for (const step of steps) {
    const flow = flows.get(step.flowId);
    if (flow === undefined) continue;
    for (const taskId of step.earlier) parts.set(taskId, { flow, step, isEarlier: true });
    if (step.taskId !== undefined) parts.set(step.taskId, { flow, step, isEarlier: false });
  }
  return parts;
}

/** What stands in the tables. */
export async function readFlows(db: Database): Promise<Pick<FlowEvidence, 'rows' | 'steps' | 'signalled'>> {
  const rows = await run(db, listChaosFlows);
  const steps = await run(db, listChaosFlowSteps);
  const signals = await run(db, listChaosSignals);
  return {
    rows: rows.map((row) => ({
      id: row.id,
      key: row.key ?? undefined,
      state: row.state,
      phase: row.phase,
      onFailure: row.on_failure,
      stepsTotal: row.steps_total,
      stepsOpen: row.steps_open,
      stepsFailed: row.steps_failed,
      isCancelled: row.is_cancelled === true,
      hasEnded: row.has_ended === true,
    })),
    steps: steps.map((row) => ({
      flowId: row.flow_id,
      step: row.step,
      kind: row.kind,
      name: row.name,
      taskId: row.task_id ?? undefined,
      earlier: row.earlier,
      next: row.next,
      level: row.level,
      onFailure: row.on_failure ?? undefined,
      undoOf: row.undo_of ?? undefined,
      signal: row.signal ?? undefined,
      why: row.why ?? undefined,
    })),
    signalled: new Set(signals.map((row) => row.flow_id)),
  };
}
