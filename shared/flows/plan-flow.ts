/** Checks a flow and plans it, with all that is nested in it. Pure. */
import { readTree } from '../tasks/json-tree.ts';
import type { SubmissionFault } from '../tasks/submission.ts';
import type { Catalog } from '../tasks/type-catalog.ts';
import { MOST_NESTED, MOST_STEPS } from './flow-body.ts';
import type { FlowBody } from './flow-body.ts';
import { FlowPlanner } from './flow-planner.ts';
import type { FlowLimits, FlowPlan, Shared } from './planned-flow.ts';

const MOST_FAULTS = 20;

/**
 * Plans the flow `id`. `raw`: the text of its body, whose grammar `parseExact` has judged; `nestedId` makes the id of a flow that is nested in it.
 * Never throws.
 */
export function planFlow(
  body: FlowBody,
  raw: string,
  catalog: Catalog,
  limits: FlowLimits,
  ids: { readonly id: string; readonly nestedId: () => string },
): FlowPlan {
  const { businessType, businessKey } = body;
  const shared: Shared = {
    catalog,
    limits,
    nestedId: ids.nestedId,
    about: { businessType, businessKey },
    faults: [],
    nested: [],
    counts: { tasks: 0, nested: 0, edges: 0 },
  };
  const planner = new FlowPlanner(shared, { id: ids.id, body, node: readTree(raw), at: [], around: undefined });
  const planned = planner.draft() && isBounded(shared) && planner.place() ? planner.plan() : { steps: [] };
  const [first, ...others] = shared.faults;
  return first === undefined
    ? { kind: 'ok', ...planned, nested: shared.nested }
    : { kind: 'refused', faults: [first, ...others].slice(0, MOST_FAULTS) as [SubmissionFault] };
}

function isBounded({ counts: { tasks, nested }, faults }: Shared): boolean {
  const refuse = (reason: string): void => void faults.push({ code: 'field-invalid', field: 'steps', reason });
  if (tasks > MOST_STEPS) refuse(`are ${tasks} tasks; a flow has ${MOST_STEPS} at most`);
  if (nested > MOST_NESTED) refuse(`are ${nested} nested flows; a flow has ${MOST_NESTED} at most`);
  return faults.length === 0;
}
