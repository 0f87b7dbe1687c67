/** Invariant 1: whatever was accepted has ended, or died as a message. Nothing is there that nobody submitted. */
import type { Violation } from './checker.ts';
import type { Evidence, TaskRow } from './evidence.ts';
import { partsOf } from './flow-evidence.ts';
import { groupBy } from './grouped.ts';
import { kindOf } from './kinds.ts';
import type { Submission } from './submissions.ts';

/** Compares the log of submissions with the tasks and the refused messages. */
export function checkEnds(evidence: Evidence): readonly Violation[] {
  const { tasks, submissions, letters } = evidence;
  const parts = partsOf(evidence.flows);
  const scheduled = new Set(evidence.schedules.taskIds);
  const alone = tasks.filter(({ id }) => !parts.has(id) && !scheduled.has(id));
  const byKey = groupBy(alone, ({ key }) => key);
  const refused = groupBy(
    letters.filter(({ kind }) => kind === 'refused'),
    ({ messageId }) => messageId,
  );
  const known = new Set(submissions.map(({ key }) => key));
  return [
    ...tasks.filter(({ finishedAt }) => finishedAt === undefined).map(notEnded),
    ...alone
      .filter(({ key }) => key === undefined || !known.has(key))
      .map(({ id }) => ({ invariant: 6, what: 'a task that nobody submitted', about: id }) as const),
    ...submissions.flatMap((submission) => {
      const letterCount = refused.get(submission.key)?.length ?? 0;
      return checkSubmission(submission, byKey.get(submission.key) ?? [], letterCount, evidence.mayLoseRefused);
    }),
  ];
}

function notEnded({ id, state, attempt }: TaskRow): Violation {
  return { invariant: 1, what: 'a task has not ended', about: `${id} is ${state} after attempt ${attempt}` };
}

function checkSubmission(
  submission: Submission,
  tasks: readonly TaskRow[],
  letterCount: number,
  mayLoseRefused: boolean,
): readonly Violation[] {
  const { key, kind, door, answer, taskId, times } = submission;
  const about = `${key} (${kind}, ${door}, ${answer})${taskId === undefined ? '' : ` task ${taskId}`}`;
  if (tasks.length > 1) return [{ invariant: 6, what: 'one submission became several tasks', about }];
  const [task] = tasks;
  if (kindOf(kind).ends === 'refused') {
    if (task !== undefined) return [{ invariant: 6, what: 'a malformed message became a task', about }];
    if (letterCount > times) return [{ invariant: 4, what: 'a refused message has several dead letters', about }];
    if (letterCount > 0 || answer !== 'accepted' || mayLoseRefused) return [];
    return [{ invariant: 1, what: 'a confirmed message that was refused has no dead letter', about }];
  }
  if (letterCount > 0) return [{ invariant: 6, what: 'a sound message was refused', about }];
  if (answer === 'refused') {
    // Every submission of the load over HTTP is sound.
    return [{ invariant: 6, what: 'a sound submission was refused', about }];
  }
  if (answer === 'unknown') return [];
  if (task === undefined) return [{ invariant: 1, what: 'an accepted submission is not there', about }];
  if (taskId !== undefined && task.id !== taskId)
    return [{ invariant: 1, what: 'another task than was answered', about }];
  return [];
}
