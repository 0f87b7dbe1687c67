/** Invariants 4 and 5: one dead letter for each death, one new run for each replay. */
import type { Violation } from './checker.ts';
import type { Evidence, LetterRow, Step, TaskRow } from './evidence.ts';
import { partsOf } from './flow-evidence.ts';
import { groupBy } from './grouped.ts';
import { kindOf } from './kinds.ts';
import type { Press } from './operator.ts';

/** Compares dead letters with the transitions, and the operator's presses with the replays. */
export function checkDeaths(evidence: Evidence): readonly Violation[] {
  const { tasks, letters, steps, presses, submissions } = evidence;
  const parts = partsOf(evidence.flows);
  const ofTasks = letters.filter(({ kind }) => kind === 'task');
  const lettersOf = groupBy(ofTasks, ({ taskId }) => taskId);
  const stepsOf = groupBy(steps, ({ taskId }) => taskId);
  const kinds = new Map(submissions.map(({ key, kind }) => [key, kind]));
  const known = new Set<string | undefined>(tasks.map(({ id }) => id));
  return [
    ...ofTasks
      .filter(({ taskId }) => !known.has(taskId))
      .map(({ id }) => ({ invariant: 4, what: 'a dead letter of no task', about: id }) as const),
    ...letters
      .filter(({ kind }) => kind === 'foreign')
      .map(
        ({ id, reason }) =>
          ({ invariant: 4, what: 'a foreign letter that nobody sent', about: `${id} ${reason}` }) as const,
      ),
    ...letters
      .filter(({ isRecorded }) => !isRecorded)
      .map(({ id }) => ({ invariant: 4, what: 'a dead letter that no handler took note of', about: id }) as const),
    ...tasks.flatMap((task) =>
      checkTask(task, stepsOf.get(task.id) ?? [], lettersOf.get(task.id) ?? [], parts.get(task.id)?.isEarlier === true),
    ),
    ...tasks.flatMap((task) => checkReason(task, kinds.get(task.key ?? ''), lettersOf.get(task.id) ?? [])),
    ...checkPresses(presses, ofTasks),
  ];
}

function checkTask(
  { id, state }: TaskRow,
  steps: readonly Step[],
  letters: readonly LetterRow[],
  isRemade: boolean,
): readonly Violation[] {
  const faults: Violation[] = [];
  const deaths = steps.filter(({ after }) => after === 'dead').map(({ attemptAfter }) => attemptAfter);
  const lettered = letters.map(({ attempt }) => attempt ?? 0);
  if (inOrder(deaths) !== inOrder(lettered)) {
    const about = `${id} died of attempts [${inOrder(deaths)}], letters are of attempts [${inOrder(lettered)}]`;
    faults.push({ invariant: 4, what: 'not one dead letter for each death', about });
  }
  const open = letters.filter((letter) => letter.state === 'open');
  // Whoever has a flow go on closes the letters of the steps that are made anew.
  const isClosed = isRemade && letters.some((letter) => letter.state === 'discarded');
  if (open.length !== (state === 'dead' && !isClosed ? 1 : 0)) {
    const about = `${id} is ${state} and has ${open.length} open letters`;
    faults.push({ invariant: 4, what: 'a task and its open letters do not fit', about });
  }
  for (const letter of letters.filter(({ hasError }) => !hasError)) {
    faults.push({ invariant: 4, what: 'a dead letter without its error', about: `${letter.id} of ${id}` });
  }
  const replays = letters.filter((letter) => letter.state === 'replayed').length;
  const returns = steps.filter(({ before, after }) => before === 'dead' && after !== 'dead').length;
  if (replays !== returns) {
    const about = `${id} has ${replays} replayed letters and came back ${returns} times`;
    faults.push({ invariant: 5, what: 'not one new run for each replay', about });
  }
  return faults;
}

/** A handler that never fails can only lose its worker. */
function checkReason({ id }: TaskRow, kind: string | undefined, letters: readonly LetterRow[]): readonly Violation[] {
  if (kind === undefined || kindOf(kind).ends === 'dead') return [];
  return letters
    .filter(({ reason }) => reason !== 'worker_lost')
    .map(({ reason }) => ({
      invariant: 6,
      what: 'a task died that had no reason to',
      about: `${id} (${kind}) ${reason}`,
    }));
}

function checkPresses(presses: readonly Press[], letters: readonly LetterRow[]): readonly Violation[] {
  const states = new Map(letters.map(({ id, state }) => [id, state]));
  const faults: Violation[] = [];
  for (const [letterId, all] of groupBy(presses, (press) => press.letterId)) {
    const won = all.filter(({ status }) => status === 200 || status === 202).length;
    const isUnsure = all.some(({ status }) => status === undefined || status >= 500);
    const about = `${letterId}, answered ${all.map(({ status }) => status ?? 'nothing').join(', ')}`;
    if (won > 1) faults.push({ invariant: 5, what: 'a letter was replayed more than once', about });
    const isReplayed = states.get(letterId) === 'replayed';
    if (won === 1 && !isReplayed)
      faults.push({ invariant: 5, what: 'a replay was answered and did not happen', about });
    if (won === 0 && !isUnsure && isReplayed) {
      faults.push({ invariant: 5, what: 'a replay happened that was refused', about });
    }
  }
  return faults;
}

function inOrder(numbers: readonly number[]): string {
  return numbers.toSorted((one, other) => one - other).join(', ');
}
