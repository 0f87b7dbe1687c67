/** The states of a task and every way between them. Nothing else in Warren decides what may follow what. */
import { Bug } from '../errors/warren-error.ts';

/** Every state, in the order in which a task usually sees them. */
export const TASK_STATES = [
  'pending',
  'scheduled',
  'blocked',
  'running',
  'retrying',
  'succeeded',
  'dead',
  'cancelled',
  'expired',
] as const;

/** A state of a task. */
export type TaskState = (typeof TASK_STATES)[number];

/** What each state means. */
export const STATE_MEANINGS: Readonly<Record<TaskState, string>> = {
  pending: 'Accepted and claimable.',
  scheduled: 'Waits for its run_at; nothing has failed.',
  blocked: 'Waits for earlier steps of its flow.',
  running: 'A worker holds a claim on it.',
  retrying: 'Waits for its run_at after a failed attempt.',
  succeeded: 'Ended well; terminal.',
  dead: 'Out of attempts or beyond help; a dead letter says why. Only a replay leads out.',
  cancelled: 'Ended because somebody asked for it; terminal.',
  expired: 'Its deadline passed before it could start; terminal.',
};

/** One way from a state to another. */
export interface Transition {
  /** `undefined`: the task is made. */
  readonly from: TaskState | undefined;
  readonly to: TaskState;
  /** Who causes it and when. */
  readonly cause: string;
}

const from = (states: readonly (TaskState | undefined)[], targets: readonly TaskState[], cause: string): Transition[] =>
  states.flatMap((state) => targets.map((to) => ({ from: state, to, cause })));

/** The table of transitions. A transition that is not here does not happen. */
export const TRANSITIONS: readonly Transition[] = [
  ...from([undefined], ['pending', 'scheduled', 'blocked'], 'producer: acceptance'),
  ...from(['scheduled', 'retrying'], ['pending'], 'dispatcher: run_at has come'),
  ...from(
    ['blocked'],
    ['pending', 'scheduled'],
    'worker: settle of the last step it waits for, or whoever else ends that; a signal',
  ),
  ...from(
    ['blocked'],
    ['cancelled'],
    'worker: end of a step that fails, or whoever else ends that, by the rule of its flow',
  ),
  ...from(['blocked'], ['expired'], 'producer: the signal that it waits for has not come in time'),
  ...from(['pending', 'scheduled', 'retrying', 'blocked'], ['cancelled'], 'producer: cancel'),
  ...from(['pending', 'scheduled', 'retrying', 'blocked'], ['expired'], 'dispatcher: the deadline passed'),
  ...from(['pending'], ['scheduled'], 'producer: an edit set a run_at ahead'),
  ...from(['scheduled', 'retrying'], ['pending'], 'producer: an edit set a run_at that has come'),
  ...from(['pending'], ['running'], 'worker: claim'),
  ...from(['pending'], ['scheduled'], 'worker: the task type is unknown here'),
  ...from(['running'], ['succeeded', 'retrying', 'dead', 'cancelled'], 'worker: settle'),
  ...from(['running'], ['scheduled'], 'worker: the handler deferred it, or its circuit is open'),
  ...from(['running'], ['pending'], 'worker: handed back at shutdown; reaper: the lease of its worker lapsed'),
  ...from(['running'], ['dead', 'cancelled'], 'reaper: too many lost attempts, or its cancelling was asked for'),
  ...from(['dead'], ['pending'], 'dead-letter-handler: replay'),
];

/** States that only a replay of a dead task leaves. */
export const TERMINAL_STATES: readonly TaskState[] = ['succeeded', 'dead', 'cancelled', 'expired'];

/** The state of this name, as a row has it. A name that is none is a bug. */
export function stateOf(name: string): TaskState {
  const state = TASK_STATES.find((each) => each === name);
  if (state === undefined) throw new Bug(`no state is called ${name}`);
  return state;
}

/** True where the task has ended. */
export function isTerminal(state: TaskState): boolean {
  return TERMINAL_STATES.includes(state);
}

/** True where the table has a way from `before` to `after`. */
export function isTransition(before: TaskState | undefined, after: TaskState): boolean {
  return TRANSITIONS.some((transition) => transition.from === before && transition.to === after);
}
