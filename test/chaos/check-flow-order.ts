/** The order of steps: by the tables, and by what the handlers wrote down of what they were given. */
import type { JournalEntry } from '../support/tasks/journal.ts';
import type { Violation } from './checker.ts';
import type { Evidence, TaskRow } from './evidence.ts';
import { partsOf } from './flow-evidence.ts';
import type { FlowEvidence, FlowStepRow, Part } from './flow-evidence.ts';
import { groupBy } from './grouped.ts';

/** Every step started after what it waits for, with what that gave. */
export function checkFlowOrder({ flows, tasks, runs }: Evidence): readonly Violation[] {
  const parts = partsOf(flows);
  const tasksById = new Map(tasks.map((task) => [task.id, task]));
  const endedAtMs = new Map<string, number>();
  for (const { taskId, event, atMs } of runs) {
    if (event === 'ended') endedAtMs.set(taskId, Math.min(atMs, endedAtMs.get(taskId) ?? atMs));
  }
  const stepsOf = groupBy(flows.steps, ({ flowId }) => flowId);
  const ended = new Set(flows.rows.filter(({ hasEnded }) => hasEnded).map(({ id }) => id));
  return [
    ...[...stepsOf]
      .filter(([flowId]) => ended.has(flowId))
      .flatMap(([, steps]) => [...checkEdges(steps, tasksById, flows), ...checkUndoOrder(steps, tasksById)]),
    ...runs.flatMap((entry) => {
      const part = parts.get(entry.taskId);
      if (entry.event !== 'started' || part === undefined) return [];
      return checkGiven(entry, part, stepsOf.get(part.flow.id) ?? [], endedAtMs);
    }),
  ];
}

const wrong = (what: string, about: string): Violation => ({ invariant: 6, what, about });

/** By the rows: what a step waits for has succeeded before it started. Of what is ignored nothing is waited for but its first end. */
function checkEdges(
  steps: readonly FlowStepRow[],
  tasks: ReadonlyMap<string, TaskRow>,
  { signalled }: FlowEvidence,
): readonly Violation[] {
  const byNumber = new Map(steps.map((step) => [step.step, step]));
  const own = steps.filter(({ kind }) => kind === 'step');
  const early = own.flatMap((before) =>
    before.onFailure === 'ignore'
      ? []
      : before.next.flatMap((number) => {
          const after = byNumber.get(number);
          const [first, then] = [tasks.get(before.taskId ?? ''), tasks.get(after?.taskId ?? '')];
          if (then?.startedAt === undefined) return [];
          const isInTime =
            first?.state === 'succeeded' && first.finishedAt !== undefined && first.finishedAt <= then.startedAt;
          const about = `${then.id} (${after?.name}) of ${before.flowId}: ${before.name} is ${first?.state}`;
          return isInTime ? [] : [wrong('a step started before what it waits for had succeeded', about)];
        }),
  );
  const unasked = own
    .filter(({ signal, taskId = '' }) => signal !== undefined && tasks.get(taskId)?.startedAt !== undefined)
    .filter(({ flowId }) => !signalled.has(flowId))
    .map(({ flowId, name }) => wrong('a step started without its signal', `${name} of ${flowId}`));
  return [...early, ...unasked];
}

/** What is undone is undone from the deepest level up. */
function checkUndoOrder(steps: readonly FlowStepRow[], tasks: ReadonlyMap<string, TaskRow>): readonly Violation[] {
  const undoing = steps.filter(({ kind, taskId }) => kind === 'undo' && taskId !== undefined);
  return undoing.flatMap((undo) => {
    const startedAt = tasks.get(undo.taskId ?? '')?.startedAt;
    if (startedAt === undefined) return [];
    return undoing
      .filter(({ level }) => level > undo.level)
      .flatMap((deeper) => {
        const task = tasks.get(deeper.taskId ?? '');
        if (task?.state === 'succeeded' && task.finishedAt !== undefined && task.finishedAt <= startedAt) return [];
        return [wrong('a level was undone before the one below it', `${undo.flowId}: ${undo.name}, ${deeper.name}`)];
      });
  });
}

/** By the handlers: what a run was given is what a run of the step before wrote down as done before. */
function checkGiven(
  { taskId, attempt, atMs, note = '{}' }: JournalEntry,
  { flow, step }: Part,
  steps: readonly FlowStepRow[],
  endedAtMs: ReadonlyMap<string, number>,
): readonly Violation[] {
  const given = JSON.parse(note) as Readonly<Record<string, string | null | readonly (string | null)[]>>;
  return Object.entries(given).flatMap(([name, ids]) => {
    const members = steps.filter((each) => each.kind === 'step' && each.name === name);
    const isOne = step.kind === 'undo' || !Array.isArray(ids);
    const about = `${taskId} (${step.name}) attempt ${attempt} of ${flow.id}, of ${name}: ${JSON.stringify(ids)}`;
    if (!isOne && (ids as readonly unknown[]).length !== members.length) {
      return [wrong('a step was not given the results of the whole group', about)];
    }
    return [ids].flat().flatMap((id) => {
      if (id === null) {
        const isIgnored = members.some(({ onFailure }) => onFailure === 'ignore');
        return isIgnored ? [] : [wrong('a step was given nothing of what it waits for', about)];
      }
      const isOfStep = members.some((each) => each.taskId === id || each.earlier.includes(id));
      if (!isOfStep) return [wrong('a step was given what another gave', about)];
      const isDone = (endedAtMs.get(id) ?? Infinity) <= atMs;
      return isDone ? [] : [wrong('a step ran before what it waits for was through', about)];
    });
  });
}
