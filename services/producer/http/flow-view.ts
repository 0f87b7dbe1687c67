/** Flows as the API shows them. */
import type { FlowPlan, PlannedNested, PlannedStep } from '../../../shared/flows/planned-flow.ts';
import { renderWithRaw } from '../../../shared/tasks/json.ts';
import type { FlowRow, findFlow } from '../flows.ts';
import { withoutNull } from '../without-null.ts';

type Found = NonNullable<Awaited<ReturnType<typeof findFlow>>>;
type StepRow = Found['steps'][number];

/** A flow in a list. */
export function listedFlowOf(row: FlowRow): Record<string, unknown> {
  return withoutNull({
    id: row.id,
    name: row.name,
    parent: row.parent_id === null ? null : { id: row.parent_id, step: row.parent_step },
    businessType: row.business_type === '' ? null : row.business_type,
    businessKey: row.business_key,
    state: row.state,
    phase: row.phase,
    onFailure: row.on_failure,
    steps: { total: row.steps_total, open: row.steps_open ?? 0, failed: row.steps_failed },
    tags: row.tags,
    createdAt: row.created_at.toISOString(),
    createdBy: row.created_by === '' ? null : row.created_by,
    startedAt: row.started_at?.toISOString(),
    finishedAt: row.finished_at?.toISOString(),
    cancelledBy: row.cancelled_by,
    cancelReason: row.cancel_reason,
  });
}

/** A whole flow, as JSON text: results are written as they were stored. */
export function renderFlow({ flow, steps, edges, tasks, result }: Found): string {
  const after = new Map<string, string[]>();
  for (const { before, after: name } of edges) {
    const known = after.get(name);
    if (known === undefined) after.set(name, [before]);
    else known.push(before);
  }
  const graph = byStep(steps).map((rows) => stepOf(rows, after));
  return renderWithRaw({ ...listedFlowOf(flow), tasks, graph }, { result });
}

function stepOf(
  rows: readonly [StepRow, ...StepRow[]],
  after: ReadonlyMap<string, readonly string[]>,
): Record<string, unknown> {
  const [first] = rows;
  const { kind, name, is_group: isGroup, signal } = first;
  const shared = {
    name,
    kind,
    type: first.type,
    after: kind === 'step' ? (after.get(name ?? '') ?? []) : [],
    level: first.level,
    onFailure: first.on_failure,
    signal: signal === null ? null : { name: signal, isSent: first.is_signalled === true },
  };
  if (isGroup === true || rows.length > 1) {
    const states = Object.fromEntries(rows.map(({ state, tasks }) => [state ?? 'planned', tasks ?? 0]));
    return withoutNull({ ...shared, states });
  }
  return withoutNull({
    ...shared,
    state: first.state ?? 'planned',
    taskId: first.task_id,
    flow: flowOf(first),
    attempt: first.attempt,
    startedAt: first.started_at?.toISOString(),
    finishedAt: first.finished_at?.toISOString(),
    earlierTaskIds: first.earlier?.length === 0 ? null : first.earlier,
    deadLetterId: first.dead_letter_id,
    why: first.why,
  });
}

/** The flow that a step is, or undoes. */
function flowOf(row: StepRow): Record<string, unknown> | null {
  if (row.child_id === null) return null;
  const steps = { total: row.child_total, open: row.child_open, failed: row.child_failed };
  return { id: row.child_id, name: row.child_name, state: row.child_state, steps };
}

/** What a flow would be. The steps of one that is nested come after it, under `settle/check`. */
export function planOf({ steps, nested }: Extract<FlowPlan, { kind: 'ok' }>): Record<string, unknown> {
  const children = new Map(nested.map((each) => [each.id, each]));
  const tasks = [steps, ...nested.map((each) => each.steps)].flat().filter(isTask).length;
  return { dryRun: true, tasks, graph: graphOf(steps, children, undefined) };
}

function graphOf(
  steps: readonly PlannedStep[],
  children: ReadonlyMap<string, PlannedNested>,
  within: string | undefined,
): readonly Record<string, unknown>[] {
  const nameOf = (name: string | undefined): string => (within === undefined ? '' : `${within}/`) + (name ?? '');
  const names = new Map(steps.map(({ step, name }) => [step, name]));
  const after = new Map<string, Set<string>>();
  for (const { name, next, kind, member = 0 } of steps) {
    if (member > 0 || kind === 'begin') continue;
    for (const step of next) {
      const follower = names.get(step) ?? '';
      after.set(follower, (after.get(follower) ?? new Set()).add(nameOf(name)));
    }
  }
  return byStep(steps.filter(({ kind }) => kind !== 'begin')).flatMap((members) => {
    const [{ name, kind, level, task, child }] = members;
    const flow = child === undefined ? undefined : children.get(child);
    const node = {
      name: nameOf(name),
      kind,
      ...(task === undefined ? {} : { type: task.type, queue: task.queue }),
      ...(flow === undefined ? {} : { flow: flow.name }),
      ...(within === undefined ? {} : { within }),
      level,
      tasks: members.filter((each) => each.task !== undefined).length,
      after: [...(after.get(name) ?? [])],
    };
    return [node, ...(flow === undefined || kind !== 'step' ? [] : graphOf(flow.steps, children, nameOf(name)))];
  });
}

/** True for a task that is made with its flow. */
export function isTask({ kind, task }: PlannedStep): boolean {
  return kind === 'step' && task !== undefined;
}

/** What is of one step together, in the order in which the steps come first. */
function byStep<Row extends { readonly kind: string | null; readonly name: string | null }>(
  rows: readonly Row[],
): [Row, ...Row[]][] {
  const gathered = new Map<string, [Row, ...Row[]]>();
  for (const row of rows) {
    const key = `${row.kind}/${row.name}`;
    const known = gathered.get(key);
    if (known === undefined) gathered.set(key, [row]);
    else known.push(row);
  }
  return [...gathered.values()];
}
