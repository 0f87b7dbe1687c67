/** Flows as the parameters of `acceptFlows`: read in one pass, since ten thousand steps times forty columns hold up every other request. */
import type { PlannedNested, PlannedStep, PlannedTasks } from '../../shared/flows/planned-flow.ts';
import { arrayLiteral } from '../../shared/postgres/statement.ts';
import type { ParamsOf } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { Invitation } from '../../shared/tasks/invitation.ts';
import type { PlannedFlow } from './flow-starter.ts';
import type { acceptFlows } from './flows.sql.ts';

/** What is written of flows, and the invitations of what is pending at once. */
export interface FlowColumns {
  readonly params: ParamsOf<typeof acceptFlows>;
  readonly invitations: readonly Invitation[];
}

/** A flow, or one that is nested in it. */
type Part = Pick<PlannedNested, 'id' | 'name' | 'onFailure' | 'steps'> & {
  readonly parentId?: string;
  readonly parentStep?: number;
  readonly groups?: PlannedTasks['groups'];
};

/** Numbers the tasks of flows and writes them in columns. `isHeld`: true for a queue from which nothing is invited at once. */
export function columnsOf(flows: readonly PlannedFlow[], isHeld: (queue: string) => boolean): FlowColumns {
  const parts = flows.flatMap((flow) => partsOf(flow).map((part) => ({ part, flow })));
  const steps = new StepColumns(isHeld);
  for (const { flow, part } of parts) {
    const tags = tagsOf(flow);
    for (const step of part.steps) steps.add(flow, tags, part.id, step);
  }
  const nested = <T>(read: (part: (typeof parts)[number]) => T | undefined): (T | null)[] | null =>
    parts.length === flows.length ? null : parts.map((part) => read(part) ?? null);
  const params: FlowColumns['params'] = [
    parts.map(({ part }) => part.id),
    parts.map(({ part }) => part.name),
    parts.map(({ flow: { body } }) => body.businessType ?? (body.businessKey === undefined ? null : '')),
    parts.map(({ flow }) => flow.body.businessKey ?? null),
    parts.map(({ part }) => part.onFailure),
    parts.map(({ flow }) => tagsOf(flow) ?? null),
    parts.map(({ flow }) => flow.createdBy),
    steps.flowIds,
    steps.numbers,
    steps.kinds,
    steps.names,
    steps.members,
    steps.taskIds,
    steps.types,
    steps.queues,
    steps.priorities,
    steps.maxAttempts,
    steps.inputs,
    steps.concurrencyKeys.values,
    steps.rateKeys.values,
    steps.waitsFor,
    steps.next,
    steps.levels,
    steps.onFailure.values,
    steps.undoOf.values,
    steps.delaysMs.values,
    steps.signals.values,
    steps.signalsMs.values,
    steps.pieces.values,
    steps.refs.values,
    steps.specs.values,
    steps.begins,
    steps.publishers,
    steps.businessKeys.values,
    steps.tags.values,
    parts.map(({ part: { groups } }) => (groups === undefined ? null : JSON.stringify(groups))),
    nested(({ part }) => part.parentId),
    nested(({ part }) => part.parentStep),
    nested(({ part, flow }) => (part.parentId === undefined ? undefined : flow.id)),
    steps.children.values,
    flows.some(({ trace }) => trace !== undefined)
      ? parts.map(({ part, flow }) => (part.parentId === undefined ? (flow.trace ?? null) : null))
      : null,
  ];
  return { params, invitations: steps.invitations };
}

function partsOf({ id, body: { name, onFailure }, steps, groups, nested }: PlannedFlow): readonly Part[] {
  return [{ id, name, onFailure, steps, ...(groups === undefined ? {} : { groups }) }, ...nested];
}

/** A column that is null as a whole while no row has anything in it, so that it costs nothing. */
class RareColumn<T> {
  #values: (T | null)[] | null = null;
  #count = 0;

  get values(): (T | null)[] | null {
    return this.#values;
  }

  add(value: T | undefined): void {
    if (value !== undefined) this.#values ??= Array.from({ length: this.#count }, () => null);
    this.#values?.push(value ?? null);
    this.#count += 1;
  }
}

class StepColumns {
  readonly flowIds: string[] = [];
  readonly numbers: number[] = [];
  readonly kinds: string[] = [];
  readonly names: string[] = [];
  readonly members: (number | null)[] = [];
  readonly taskIds: (string | null)[] = [];
  readonly types: string[] = [];
  readonly queues: string[] = [];
  readonly priorities: number[] = [];
  readonly maxAttempts: number[] = [];
  readonly inputs: (string | null)[] = [];
  readonly concurrencyKeys = new RareColumn<string>();
  readonly rateKeys = new RareColumn<string>();
  readonly waitsFor: number[] = [];
  readonly next: string[] = [];
  readonly levels: number[] = [];
  readonly onFailure = new RareColumn<string>();
  readonly undoOf = new RareColumn<number>();
  readonly delaysMs = new RareColumn<number>();
  readonly signals = new RareColumn<string>();
  readonly signalsMs = new RareColumn<number>();
  readonly pieces = new RareColumn<string>();
  readonly refs = new RareColumn<string>();
  readonly specs = new RareColumn<string>();
  readonly begins: (string | null)[] = [];
  readonly publishers: string[] = [];
  readonly businessKeys = new RareColumn<string>();
  readonly tags = new RareColumn<string>();
  readonly children = new RareColumn<string>();
  readonly invitations: Invitation[] = [];
  readonly #isHeld: (queue: string) => boolean;

  constructor(isHeld: (queue: string) => boolean) {
    this.#isHeld = isHeld;
  }

  add(flow: PlannedFlow, tags: string | undefined, flowId: string, planned: PlannedStep): void {
    const { kind, task, signal, template } = planned;
    const taskId = kind === 'step' && task !== undefined ? newId() : undefined;
    const begins = this.#beginOf(planned);
    if (begins === 'start' && task !== undefined && taskId !== undefined) {
      this.invitations.push({ taskId, type: task.type, queue: task.queue, priority: task.priority, generation: 1 });
    }
    this.flowIds.push(flowId);
    this.numbers.push(planned.step);
    this.kinds.push(kind);
    this.names.push(planned.name);
    this.members.push(planned.member ?? null);
    this.taskIds.push(taskId ?? null);
    this.types.push(task?.type ?? '');
    this.queues.push(task?.queue ?? '');
    this.priorities.push(task?.priority ?? 0);
    this.maxAttempts.push(task?.maxAttempts ?? 1);
    this.inputs.push(task?.input ?? null);
    this.concurrencyKeys.add(task?.concurrencyKey);
    this.rateKeys.add(task?.rateKey);
    this.waitsFor.push(planned.waitsFor);
    this.next.push(`{${planned.next.join(',')}}`);
    this.levels.push(planned.level);
    this.onFailure.add(planned.onFailure);
    this.undoOf.add(planned.undoOf);
    this.delaysMs.add(planned.delayMs);
    this.signals.add(signal?.name);
    this.signalsMs.add(signal?.timeoutMs);
    this.pieces.add(template === undefined ? undefined : arrayLiteral(template.pieces));
    this.refs.add(template === undefined ? undefined : JSON.stringify(template.refs));
    // What is made a task only when its turn comes is kept as it was planned.
    this.specs.add(kind === 'step' || task === undefined ? undefined : JSON.stringify(task));
    this.begins.push(begins ?? null);
    this.publishers.push(flow.createdBy);
    this.businessKeys.add(flow.body.businessKey);
    this.tags.add(tags);
    this.children.add(planned.child);
  }

  /** `start`: its task is pending at once; `late`: its turn has come, and Postgres finds out what that means. */
  #beginOf({ kind, waitsFor, delayMs, template, task }: PlannedStep): 'start' | 'late' | undefined {
    if (kind !== 'step' || waitsFor > 0) return undefined;
    const isLate = delayMs !== undefined || template !== undefined || task === undefined || this.#isHeld(task.queue);
    return isLate ? 'late' : 'start';
  }
}

function tagsOf({ body: { tags = [] } }: PlannedFlow): string | undefined {
  return tags.length === 0 ? undefined : arrayLiteral(tags);
}
