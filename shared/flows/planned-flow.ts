/** A flow as it is stored: every task that it is, what waits for what, and what their inputs are made of. */
import type { SubmissionFault } from '../tasks/submission.ts';
import type { Catalog } from '../tasks/type-catalog.ts';
import type { PlannedGroup } from './empty-groups.ts';
import type { FlowBody, NestedFlowBody, StepBody } from './flow-body.ts';

/** Dependencies between tasks at most: two groups that follow each other have as many as the product of their sizes. */
export const MOST_EDGES = 200_000;

/** A reference as it is stored; `flow_reference` in `0024_nested_flows.sql` reads it. `up`: it is meant in the flow so many around this one. */
export type StoredReference = { readonly path?: readonly string[]; readonly up?: number } & (
  | { readonly step: number }
  /** The result of a step, where that is an object; else an object with it under the name. */
  | { readonly object: number; readonly name: string }
  | { readonly group: string }
  | { readonly signal: string }
  /** What failed. */
  | { readonly failed: true }
);

/** The task of a step. */
export interface PlannedTask {
  readonly type: string;
  readonly queue: string;
  /** 0 to 9. */
  readonly priority: number;
  readonly maxAttempts: number;
  /** JSON text; `{}` where the input is made of a template. */
  readonly input: string;
  readonly concurrencyKey?: string;
  readonly rateKey?: string;
}

/** A step as it is stored. What may be absent may be `undefined`: ten thousand are made at once, of one shape. */
export interface PlannedStep {
  /** Its number in the flow, from 0; that of `begin` is -1. */
  readonly step: number;
  /** `begin`: what the first steps of a nested flow wait for. */
  readonly kind: 'step' | 'undo' | 'failure' | 'begin';
  readonly name: string;
  /** Its place in its group. */
  readonly member?: number | undefined;
  /** Absent where it is a flow, and for `begin`. */
  readonly task?: PlannedTask;
  /** The flow that it is, or that it undoes. */
  readonly child?: string;
  readonly template?: { readonly pieces: readonly string[]; readonly refs: readonly StoredReference[] } | undefined;
  /** Tasks, and signals, that it waits for. */
  readonly waitsFor: number;
  readonly next: readonly number[];
  readonly level: number;
  readonly onFailure?: StepBody['onFailure'];
  readonly undoOf?: number;
  readonly delayMs?: number | undefined;
  readonly signal?: { readonly name: string; readonly timeoutMs?: number | undefined };
}

/** What one flow is made of. */
export interface PlannedTasks {
  readonly steps: readonly PlannedStep[];
  /** Its empty groups, by their names; absent where there are none. */
  readonly groups?: Readonly<Record<string, PlannedGroup>>;
}

/** A flow that is a step of another. */
export interface PlannedNested extends PlannedTasks {
  readonly id: string;
  readonly parentId: string;
  /** Number of the step that it is there. */
  readonly parentStep: number;
  readonly name: string;
  readonly onFailure: NestedFlowBody['onFailure'];
}

/** The steps of a flow and all that is nested in it, or what is wrong with it. */
export type FlowPlan =
  | (PlannedTasks & { readonly kind: 'ok'; readonly nested: readonly PlannedNested[] })
  | { readonly kind: 'refused'; readonly faults: readonly [SubmissionFault, ...SubmissionFault[]] };

/** Bounds. */
export interface FlowLimits {
  /** Characters of one input. */
  readonly messageBytes: number;
  readonly depth: number;
}

/** What the planners of one body share. */
export interface Shared {
  readonly catalog: Catalog;
  readonly limits: FlowLimits;
  readonly nestedId: () => string;
  /** What the outermost flow is about. */
  readonly about: Pick<FlowBody, 'businessType' | 'businessKey'>;
  readonly faults: SubmissionFault[];
  readonly nested: PlannedNested[];
  /** Of all flows together. */
  readonly counts: { tasks: number; nested: number; edges: number };
}

/** The same, seen from a flow that is nested in the one where it is meant. */
export function oneUp(ref: StoredReference): StoredReference {
  return { ...ref, up: (ref.up ?? 0) + 1 };
}
