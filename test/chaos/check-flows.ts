/** Flows: each ends as its policy says, every step once and after those that it waits for, and the books of flows are right. */
import { isTerminal } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { checkFlowOrder } from './check-flow-order.ts';
import type { Invariant, Violation } from './checker.ts';
import type { Evidence, Step, TaskRow } from './evidence.ts';
import { partsOf } from './flow-evidence.ts';
import type { FlowEvidence, FlowRow, FlowStepRow, Part } from './flow-evidence.ts';
import type { FlowSubmission } from './flow-load.ts';
import { ATTEMPTS, tasksOf } from './flow-shapes.ts';
import { groupBy } from './grouped.ts';

/** Compares the log of starts, the flows, their steps and the tasks that those are. */
export function checkFlows(evidence: Evidence): readonly Violation[] {
  const { flows, tasks, steps, letters } = evidence;
  const parts = partsOf(flows);
  const plans = new Map(flows.submissions.map((submission) => [submission.key, submission]));
  const tasksById = new Map(tasks.map((task) => [task.id, task]));
  const stepsOf = groupBy(flows.steps, ({ flowId }) => flowId);
  const replayed = letters
    .filter(({ state }) => state === 'replayed')
    .map(({ taskId = '' }) => parts.get(taskId)?.flow.id);
  const remade = new Set([...flows.retried, ...replayed.filter((id) => id !== undefined)]);
  const transitionsOf = groupBy(steps, ({ taskId }) => taskId);
  return [
    ...checkStarts(flows),
    ...flows.rows.flatMap((flow) => {
      const plan = plans.get(flow.key ?? '')?.plan;
      if (plan === undefined) return [broken(6, 'a flow that nobody started', flow.id)];
      if (!flow.hasEnded) return [broken(1, 'a flow has not ended', `${flow.id} is ${flow.state} (${flow.phase})`)];
      const own = stepsOf.get(flow.id) ?? [];
      return checkFlow(flow, own, tasksById, { steps: tasksOf(plan), wasRetried: flows.retried.has(flow.id) });
    }),
    ...tasks.flatMap((task) => {
      const part = parts.get(task.id);
      if (part === undefined) return [];
      return [
        ...checkEndsOnce(task, transitionsOf.get(task.id) ?? []),
        ...checkCauses(task, part, plans.get(part.flow.key ?? ''), { evidence, remade }),
      ];
    }),
    ...checkFlowOrder(evidence),
  ];
}

const broken = (invariant: Invariant, what: string, about: string): Violation => ({ invariant, what, about });

function checkStarts({ submissions, rows }: FlowEvidence): readonly Violation[] {
  const byKey = groupBy(rows, ({ key }) => key);
  return submissions.flatMap(({ key, shape, answer, flowId }) => {
    const about = `${key} (${shape}, ${answer})${flowId === undefined ? '' : ` flow ${flowId}`}`;
    const [flow, ...others] = byKey.get(key) ?? [];
    if (others.length > 0) return [broken(6, 'one start became several flows', about)];
    if (answer === 'refused') return [broken(6, 'a sound start was refused', about)];
    if (answer === 'unknown') return [];
    if (flow === undefined) return [broken(1, 'an accepted flow is not there', about)];
    return flow.id === flowId ? [] : [broken(1, 'another flow than was answered', about)];
  });
}

function checkFlow(
  flow: FlowRow,
  steps: readonly FlowStepRow[],
  tasks: ReadonlyMap<string, TaskRow>,
  { steps: planned, wasRetried }: { readonly steps: number; readonly wasRetried: boolean },
): readonly Violation[] {
  const { id, state, stepsOpen, stepsFailed, stepsTotal, onFailure } = flow;
  const faults: Violation[] = [];
  const taskOf = ({ taskId }: FlowStepRow): TaskRow | undefined => tasks.get(taskId ?? '');
  const own = steps.filter(({ kind }) => kind === 'step');
  const made = steps.filter((step) => taskOf(step) !== undefined);
  if (stepsOpen !== 0) faults.push(broken(6, 'a flow that has ended counts steps as open', `${id}: ${stepsOpen}`));
  if (stepsTotal !== planned || own.length !== planned || own.some((step) => taskOf(step) === undefined)) {
    faults.push(broken(6, 'a flow has not the steps that it was given', `${id}: ${stepsTotal}, not ${planned}`));
  }
  for (const step of made.filter((each) => taskOf(each)?.state === 'blocked')) {
    faults.push(broken(6, 'a task is blocked whose flow has ended', `${step.taskId} (${step.name}) of ${id}`));
  }
  // A dead step that was replayed by itself has left its flow: for that it stays a failure, unless the flow was retried later.
  const hasLeft = (step: FlowStepRow): boolean => taskOf(step)?.flowId === undefined;
  if (wasRetried && own.some(hasLeft)) return faults;
  const failed = own.filter(
    (step) => step.onFailure !== 'ignore' && step.why === undefined && (hasLeft(step) || hasFailed(taskOf(step))),
  );
  const stops = failed.some((step) => (step.onFailure ?? onFailure) !== 'continue');
  const due = flow.isCancelled ? 'cancelled' : stops ? 'failed' : failed.length > 0 ? 'partial' : 'succeeded';
  const names = failed.map(({ name }) => name).join(', ');
  if (state !== due) {
    faults.push(broken(6, 'a flow ended otherwise than its policy says', `${id} is ${state}, not ${due}: ${names}`));
  }
  if (stepsFailed !== failed.length) {
    faults.push(broken(6, 'a flow counts its failures wrong', `${id}: ${stepsFailed}, not ${failed.length}: ${names}`));
  }
  const withoutReason = own.filter(
    (step) => hasFailed(taskOf(step)) && step.why !== undefined && state === 'succeeded',
  );
  for (const { name } of withoutReason) {
    faults.push(broken(6, 'a flow succeeded without a step that it had cancelled', `${id} ${name}`));
  }
  return [...faults, ...checkAfterwards(flow, steps, tasks)];
}

/** What is made only when it comes to that: the undoing, and the step for failures. */
function checkAfterwards(
  { id, state, onFailure }: FlowRow,
  steps: readonly FlowStepRow[],
  tasks: ReadonlyMap<string, TaskRow>,
): readonly Violation[] {
  const faults: Violation[] = [];
  const byNumber = new Map(steps.map((step) => [step.step, step]));
  const undoing = steps.filter(({ kind }) => kind === 'undo');
  const begun = undoing.filter(({ taskId }) => taskId !== undefined);
  const stuck = begun.filter(({ taskId = '' }) => tasks.get(taskId)?.state !== 'succeeded');
  const isUndone = onFailure === 'compensate' && (state === 'failed' || state === 'cancelled');
  if (!isUndone && begun.length > 0)
    faults.push(broken(6, 'a flow undid what it had no reason to', `${id} is ${state}`));
  for (const undo of undoing) {
    const of = tasks.get(byNumber.get(undo.undoOf ?? -1)?.taskId ?? '');
    const isDue = isUndone && stuck.length === 0 && of?.state === 'succeeded' && of.flowId !== undefined;
    if (isDue && undo.taskId === undefined)
      faults.push(broken(6, 'what succeeded was not undone', `${id} ${undo.name}`));
    if (undo.taskId !== undefined && of?.state !== 'succeeded') {
      faults.push(broken(6, 'what did not succeed was undone', `${id} ${undo.name}`));
    }
  }
  const failure = steps.find(({ kind }) => kind === 'failure');
  if (failure !== undefined && failure.taskId === undefined && (state === 'failed' || state === 'partial')) {
    faults.push(broken(6, 'a flow failed and its step for failures was not made', id));
  }
  return faults;
}

const hasFailed = (task: TaskRow | undefined): boolean =>
  task?.state === 'dead' || task?.state === 'expired' || task?.state === 'cancelled';

/** A step is ended once, and once more after each replay. */
function checkEndsOnce({ id, state }: TaskRow, transitions: readonly Step[]): readonly Violation[] {
  if (!isTerminal(state as TaskState)) return [];
  const ends = transitions.filter(({ after }) => isTerminal(after as TaskState)).length;
  const returns = transitions.filter(({ before, after }) => before === 'dead' && after !== 'dead').length;
  if (ends === returns + 1) return [];
  return [
    broken(2, 'a step of a flow did not end once', `${id} is ${state}: ended ${ends} times, back ${returns} times`),
  ];
}

/** Nothing of a flow was cancelled, expired, died or was made anew without somebody or something that wanted it so. */
function checkCauses(
  { id, state }: TaskRow,
  { flow, step, isEarlier }: Part,
  submission: FlowSubmission | undefined,
  { evidence, remade }: { readonly evidence: Evidence; readonly remade: ReadonlySet<string> },
): readonly Violation[] {
  const { flows, letters } = evidence;
  const about = `${id} (${step.name}) of ${flow.id}`;
  if (isEarlier) {
    // Why it was cancelled is forgotten where another came in its place.
    if (remade.has(flow.id)) return [];
    return [broken(6, 'a step was made anew that nobody asked for', about)];
  }
  if (state === 'cancelled' && step.why === undefined && !flows.cancelled.has(flow.id)) {
    return [broken(6, 'a step was cancelled that nobody wanted cancelled', about)];
  }
  if (state === 'expired' && step.signal === undefined) {
    return [broken(6, 'a step expired that waits for no signal', about)];
  }
  const { failures = 0 } = step.kind === 'step' ? (submission?.plan.steps[step.name] ?? {}) : {};
  const reasons = letters.filter(({ taskId, reason }) => taskId === id && reason !== 'worker_lost');
  if (failures >= ATTEMPTS || reasons.length === 0) return [];
  return [broken(6, 'a step died that had no reason to', `${about} ${reasons.map(({ reason }) => reason).join(', ')}`)];
}
