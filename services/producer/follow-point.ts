/** How far somebody who follows a task has been told: the id of an event, which a client gives back to go on from there. */
import { TASK_STATES } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';

/** What was told last. */
export interface FollowPoint {
  readonly state: TaskState;
  readonly attempt: number;
  readonly generation: number;
  /** The last attempt that was told of as ended; 0: none. */
  readonly endedAttempt: number;
  /** Milliseconds since 1970 of the progress that was told; 0: none. */
  readonly progressMs: number;
}

const POINT = /^([a-z]{4,9})-(\d{1,10})-(\d{1,10})-(\d{1,10})-(\d{1,15})$/;

/** As the id of an event: `running-2-1-1-1767268800000`. */
export function renderPoint({ state, attempt, generation, endedAttempt, progressMs }: FollowPoint): string {
  return [state, attempt, generation, endedAttempt, progressMs].join('-');
}

/** Reads an id; `undefined` for what is none. */
export function parsePoint(text: string): FollowPoint | undefined {
  const [, name, ...numbers] = POINT.exec(text) ?? [];
  const state = TASK_STATES.find((each) => each === name);
  const [attempt, generation, endedAttempt, progressMs] = numbers.map(Number);
  if (state === undefined || attempt === undefined || generation === undefined) return undefined;
  if (endedAttempt === undefined || progressMs === undefined) return undefined;
  // Attempts are int4 in Postgres.
  return endedAttempt > 2_147_483_647 ? undefined : { state, attempt, generation, endedAttempt, progressMs };
}
