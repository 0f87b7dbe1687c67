/** Flows as the API shows them. */
import type { PlannedStep } from '../../../shared/flows/plan-flow.ts';
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
    businessType: row.business_type === '' ? null : row.business_type,
    businessKey: row.business_key,
    state: row.state,
    phase: row.phase,
    onFailure: row.on_failure,
    steps: { total: row.steps_total, open: row.steps_open, failed: row.steps_failed },
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
export function renderFlow({ flow, steps, edges, results }: Found): string {
  const after = new Map<string, string[]>();
  for (const { before, after: name } of edges) {
    const known = after.get(name);
    if (known === undefined) after.set(name, [before]);
    else known.push(before);
  }
  const graph = byStep(steps).map((rows) => stepOf(rows, after));
  const [only, ...others] = results;
  const members = results.map(({ name, result }) => `${JSON.stringify(name)}:${textOf(result)}`);
  const result = others.length > 0 ? `{${members.join(',')}}` : only === undefined ? undefined : textOf(only.result);
  return renderWithRaw({ ...listedFlowOf(flow), graph }, { result });
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
    attempt: first.attempt,
    startedAt: first.started_at?.toISOString(),
    finishedAt: first.finished_at?.toISOString(),
    earlierTaskIds: first.earlier?.length === 0 ? null : first.earlier,
    deadLetterId: first.dead_letter_id,
    why: first.why,
  });
}

/** What a flow would be. */
export function planOf(steps: readonly PlannedStep[]): Record<string, unknown> {
  const names = new Map(steps.map(({ step, name }) => [step, name]));
  const after = new Map<string, Set<string>>();
  for (const { name, next, member = 0 } of steps) {
    if (member > 0) continue;
    for (const step of next) {
      const follower = names.get(step) ?? '';
      after.set(follower, (after.get(follower) ?? new Set()).add(name));
    }
  }
  const graph = byStep(steps).map((members) => {
    const [{ name, kind, level, task }] = members;
    return {
      name,
      kind,
      type: task.type,
      queue: task.queue,
      level,
      tasks: members.length,
      after: [...(after.get(name) ?? [])],
    };
  });
  return { dryRun: true, tasks: steps.filter(({ kind }) => kind === 'step').length, graph };
}

function textOf(result: Buffer | null): string {
  return result === null ? 'null' : result.toString('utf8');
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
