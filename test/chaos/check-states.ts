/** Invariant 6: only transitions of the table, times in order, nothing left over. */
import { isTransition, TASK_STATES } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import type { Violation } from './checker.ts';
import type { Evidence, Step, TaskRow } from './evidence.ts';
import { partsOf } from './flow-evidence.ts';
import { kindOf, MOST_AT_ONCE } from './kinds.ts';

/** Looks at transitions, times and leftovers. */
export function checkStates({ tasks, steps, left, submissions, cancelled, flows }: Evidence): readonly Violation[] {
  const parts = partsOf(flows);
  const alone = tasks.filter(({ id }) => !parts.has(id));
  const kinds = new Map(submissions.map(({ key, kind }) => [key, kind]));
  return [
    ...alone
      .filter(({ id, state }) => state === 'cancelled' && !cancelled.has(id))
      .map(
        ({ id }) => ({ invariant: 6, what: 'a task was cancelled that nobody wanted cancelled', about: id }) as const,
      ),
    ...alone
      .filter(({ state, key }) => state === 'expired' && !hasDeadline(kinds.get(key ?? '')))
      .map(({ id }) => ({ invariant: 6, what: 'a task expired that has no deadline', about: id }) as const),
    ...steps.flatMap(checkStep),
    ...tasks.flatMap(checkTimes),
    ...Object.entries(left)
      .filter(([, count]) => count > 0)
      .map(
        ([place, count]) => ({ invariant: 6, what: 'something is left over', about: `${place}: ${count}` }) as const,
      ),
  ];
}

function checkStep({ taskId, before, after, attemptBefore, attemptAfter, atOnce = 0 }: Step): readonly Violation[] {
  const about = `${taskId} from ${before} to ${after}, attempt ${attemptBefore} to ${attemptAfter}`;
  if (!isState(before) || !isState(after) || !isTransition(before, after)) {
    return [{ invariant: 6, what: 'a transition that is not in the table', about }];
  }
  if (atOnce > MOST_AT_ONCE) {
    return [{ invariant: 6, what: 'more tasks run at once than their limit allows', about: `${about}: ${atOnce}` }];
  }
  const rise = after === 'running' ? 1 : 0;
  if (attemptAfter === attemptBefore + rise) return [];
  return [{ invariant: 6, what: 'an attempt number that did not rise with its claim', about }];
}

function checkTimes({ id, state, acceptedAt, startedAt, finishedAt }: TaskRow): readonly Violation[] {
  const instants = [acceptedAt, startedAt, finishedAt]
    .filter((each) => each !== undefined)
    .map((each) => each.getTime());
  const isInOrder = instants.every((each, index) => index === 0 || (instants[index - 1] as number) <= each);
  if (isInOrder) return [];
  return [{ invariant: 6, what: 'times that are not in order', about: `${id} (${state})` }];
}

function hasDeadline(kind: string | undefined): boolean {
  return kind !== undefined && kindOf(kind).draw((least) => least).deadlineMs !== undefined;
}

function isState(text: string): text is TaskState {
  return (TASK_STATES as readonly string[]).includes(text);
}
