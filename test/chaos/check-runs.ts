/** Invariants 2 and 3: one outcome, no run without a claim, no repetition without a cause. */
import type { JournalEntry } from '../support/tasks/journal.ts';
import type { Violation } from './checker.ts';
import type { AttemptRow, Evidence, Step, TaskRow } from './evidence.ts';
import { groupBy } from './grouped.ts';

/** Outcomes after which a handler may have been through all the same: its worker died, or was cut off, before it could say so. */
const CUT_OFF = ['lost', 'interrupted'];

/** Compares the log of runs with the history and the transitions. */
export function checkRuns(evidence: Evidence): readonly Violation[] {
  const { tasks, runs, attempts, steps, workers } = evidence;
  const runsOf = groupBy(runs, ({ taskId }) => taskId);
  const attemptsOf = groupBy(attempts, ({ taskId }) => taskId);
  const stepsOf = groupBy(steps, ({ taskId }) => taskId);
  const known = new Set(tasks.map(({ id }) => id));
  const cutOff = new Map(workers.map(({ workerId, wasCutOff }) => [workerId, wasCutOff]));
  return [
    ...[...runsOf.keys()]
      .filter((id) => !known.has(id))
      .map((id) => ({ invariant: 6, what: 'a run of a task that is not there', about: id }) as const),
    ...tasks.flatMap((task) => [
      ...checkOutcome(task, stepsOf.get(task.id) ?? []),
      ...checkTask(task, runsOf.get(task.id) ?? [], attemptsOf.get(task.id) ?? []),
    ]),
    ...attempts
      .filter(({ outcome, worker }) => outcome === 'lost' && cutOff.get(worker) === false)
      .map(({ taskId, attempt, worker }) => ({
        invariant: 3 as const,
        what: 'an attempt was taken for lost whose worker lived and was not cut off',
        about: `${taskId} attempt ${attempt}, worker ${worker}`,
      })),
  ];
}

function checkOutcome({ id }: TaskRow, steps: readonly Step[]): readonly Violation[] {
  const settles = steps.filter(({ after }) => after === 'succeeded');
  if (settles.length < 2) return [];
  const attempts = settles.map(({ attemptBefore }) => attemptBefore).join(', ');
  return [
    { invariant: 2, what: 'a task was settled as succeeded more than once', about: `${id} attempts ${attempts}` },
  ];
}

function checkTask(
  { id, state, attempt: last }: TaskRow,
  runs: readonly JournalEntry[],
  history: readonly AttemptRow[],
): readonly Violation[] {
  const faults: Violation[] = [];
  const started = runs.filter(({ event }) => event === 'started');
  const ended = new Set(runs.filter(({ event }) => event === 'ended').map(({ attempt }) => attempt));
  for (const [attempt, starts] of groupBy(started, (entry) => entry.attempt)) {
    const about = `${id} attempt ${attempt}`;
    if (starts.length > 1) {
      const pids = starts.map(({ pid }) => pid).join(', ');
      faults.push({ invariant: 2, what: 'an attempt started twice', about: `${about} in processes ${pids}` });
    }
    if (attempt > last) faults.push({ invariant: 2, what: 'a run without a claim', about: `${about} of ${last}` });
  }
  if (state === 'succeeded' && !ended.has(last)) {
    faults.push({ invariant: 2, what: 'succeeded without a run to its end', about: `${id} attempt ${last}` });
  }
  const recorded = new Map(history.map((row) => [row.attempt, row]));
  for (let attempt = 1; attempt <= last; attempt += 1) {
    const isOver = attempt < last || state === 'dead';
    const row = recorded.get(attempt);
    if (isOver && row === undefined) {
      faults.push({
        invariant: 3,
        what: 'an attempt is not in the history',
        about: `${id} attempt ${attempt} of ${last}`,
      });
    }
    if (row !== undefined && ended.has(attempt) && !CUT_OFF.includes(row.outcome)) {
      const about = `${id} attempt ${attempt}: ${row.outcome} ${row.error ?? ''}`;
      faults.push({ invariant: 3, what: 'a run that was through was repeated without a cause', about });
    }
    if (row !== undefined && attempt === last && state === 'succeeded') {
      faults.push({ invariant: 2, what: 'an attempt both succeeded and did not', about: `${id} attempt ${attempt}` });
    }
  }
  return faults;
}
