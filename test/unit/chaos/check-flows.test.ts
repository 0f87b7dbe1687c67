/** What the checker of chaos finds in flows, on logs that were made up: what is sound passes, and each fault is named. */
import { expect, test } from '@jest/globals';
import { check } from '../../chaos/checker.ts';
import type { Evidence, LetterRow, Step, TaskRow } from '../../chaos/evidence.ts';
import type { FlowEvidence, FlowRow, FlowStepRow } from '../../chaos/flow-evidence.ts';
import type { FlowSubmission } from '../../chaos/flow-load.ts';
import { NO_SCHEDULES } from '../../chaos/schedule-evidence.ts';
import type { JournalEntry } from '../../support/tasks/journal.ts';

const at = (second: number): Date => new Date(1_700_000_000_000 + second * 1_000);

const flowOf = (id: string, changes: Partial<FlowRow> = {}): FlowRow => ({
  id,
  key: `key-${id}`,
  state: 'succeeded',
  phase: 'steps',
  onFailure: 'stop',
  stepsTotal: 2,
  stepsOpen: 0,
  stepsFailed: 0,
  isCancelled: false,
  hasEnded: true,
  ...changes,
});
const stepOf = (flowId: string, step: number, name: string, changes: Partial<FlowStepRow> = {}): FlowStepRow => ({
  flowId,
  step,
  kind: 'step',
  name,
  taskId: `${flowId}-${name}`,
  earlier: [],
  next: [],
  level: step,
  onFailure: undefined,
  undoOf: undefined,
  signal: undefined,
  why: undefined,
  ...changes,
});
const taskOf = (flowId: string, name: string, second: number, changes: Partial<TaskRow> = {}): TaskRow => ({
  id: `${flowId}-${name}`,
  key: undefined,
  state: 'succeeded',
  attempt: 1,
  acceptedAt: at(0),
  startedAt: at(second),
  finishedAt: at(second + 1),
  flowId,
  ...changes,
});
const runOf = (taskId: string, second: number, got: object, attempt = 1): readonly JournalEntry[] =>
  (['started', 'ended'] as const).map((event, index) => ({
    taskId,
    attempt,
    event,
    pid: 10,
    atMs: at(second + index / 2).getTime(),
    ...(event === 'started' ? { note: JSON.stringify(got) } : {}),
  }));
const path = (taskId: string, ...states: readonly string[]): readonly Step[] =>
  states.slice(1).map((after, index) => {
    const attempt = states.slice(0, index + 2).filter((state) => state === 'running').length;
    const attemptBefore = after === 'running' ? attempt - 1 : attempt;
    return { taskId, before: states[index] ?? '', after, attemptBefore, attemptAfter: attempt };
  });
const submission = (flowId: string, plan: Partial<FlowSubmission['plan']> = {}): FlowSubmission => ({
  key: `key-${flowId}`,
  shape: 'chain',
  plan: { onFailure: 'stop', hasFailureStep: false, steps: { a: {}, b: { after: ['a'] } }, ...plan },
  answer: 'accepted',
  flowId,
  times: 1,
});
const letter = (id: string, taskId: string, changes: Partial<LetterRow> = {}): LetterRow => ({
  id,
  kind: 'task',
  taskId,
  state: 'open',
  reason: 'attempts_exhausted',
  attempt: 1,
  hasError: true,
  isRecorded: true,
  messageId: undefined,
  ...changes,
});

/**
 * A chain that succeeded (s); one whose second step died, was undone, and told of it (u); one that was retried, its first task dead before (r);
 * one that was cancelled while its second step waited for a signal (c).
 */
const FLOWS: FlowEvidence = {
  submissions: [
    submission('s'),
    submission('u', {
      onFailure: 'compensate',
      hasFailureStep: true,
      steps: { a: { hasUndo: true }, b: { after: ['a'], failures: 3 } },
    }),
    submission('r', { steps: { a: { failures: 3 }, b: { after: ['a'] } } }),
    submission('c', { steps: { a: {}, b: { after: ['a'], signalMs: 9_000 } } }),
  ],
  rows: [
    flowOf('s'),
    flowOf('u', { state: 'failed', phase: 'undo', onFailure: 'compensate', stepsFailed: 1 }),
    flowOf('r'),
    flowOf('c', { state: 'cancelled', isCancelled: true }),
  ],
  steps: [
    stepOf('s', 0, 'a', { next: [1] }),
    stepOf('s', 1, 'b'),
    stepOf('u', 0, 'a', { next: [1] }),
    stepOf('u', 1, 'b'),
    stepOf('u', 2, 'undo a', { kind: 'undo', level: 0, undoOf: 0, taskId: 'u-undo' }),
    stepOf('u', 3, 'failureStep', { kind: 'failure', taskId: 'u-failure' }),
    stepOf('r', 0, 'a', { next: [1], earlier: ['r-old'] }),
    stepOf('r', 1, 'b'),
    stepOf('c', 0, 'a', { next: [1] }),
    stepOf('c', 1, 'b', { signal: 'go', why: 'the flow was cancelled' }),
  ],
  signalled: new Set(),
  cancelled: new Set(['c']),
  retried: new Set(['r']),
};

const SOUND: Evidence = {
  schedules: NO_SCHEDULES,
  submissions: [],
  runs: [
    ...runOf('s-a', 1, {}),
    ...runOf('s-b', 3, { a: 's-a' }),
    ...runOf('u-a', 1, {}),
    ...runOf('u-b', 3, { a: 'u-a' }).slice(0, 1),
    ...runOf('u-undo', 5, { a: 'u-a' }),
    ...runOf('u-failure', 7, {}),
    ...runOf('r-old', 1, {}).slice(0, 1),
    ...runOf('r-a', 3, {}),
    ...runOf('r-b', 5, { a: 'r-a' }),
    ...runOf('c-a', 1, {}),
  ],
  tasks: [
    taskOf('s', 'a', 1),
    taskOf('s', 'b', 3),
    taskOf('u', 'a', 1),
    taskOf('u', 'b', 3, { state: 'dead' }),
    taskOf('u', 'undo', 5),
    taskOf('u', 'failure', 7),
    taskOf('r', 'old', 1, { state: 'dead' }),
    taskOf('r', 'a', 3),
    taskOf('r', 'b', 5),
    taskOf('c', 'a', 1),
    taskOf('c', 'b', 3, { state: 'cancelled', attempt: 0, startedAt: undefined }),
  ],
  attempts: ['u-b', 'r-old'].map((taskId) => ({
    taskId,
    attempt: 1,
    outcome: 'failed',
    worker: 'w1',
    error: undefined,
  })),
  letters: [letter('letter-u', 'u-b'), letter('letter-r', 'r-old', { state: 'discarded' })],
  steps: [
    ...['s-a', 's-b', 'u-a', 'u-undo', 'u-failure', 'r-a', 'r-b', 'c-a'].flatMap((id) =>
      path(id, 'blocked', 'pending', 'running', 'succeeded'),
    ),
    ...['u-b', 'r-old'].flatMap((id) => path(id, 'blocked', 'pending', 'running', 'dead')),
    ...path('c-b', 'blocked', 'cancelled'),
  ],
  presses: [],
  cancelled: new Set(),
  workers: [{ workerId: 'w1', wasCutOff: false }],
  left: {},
  ends: [],
  errors: [],
  mayLoseRefused: false,
  flows: FLOWS,
};

test('sound flows have no violation', () => {
  expect(check(SOUND)).toEqual([]);
});

const flows = (changes: Partial<FlowEvidence>): Partial<Evidence> => ({ flows: { ...FLOWS, ...changes } });
const replacedIn = <T extends object>(
  list: readonly T[],
  of: (item: T) => boolean,
  changes: Partial<T>,
): readonly T[] => list.map((item) => (of(item) ? { ...item, ...changes } : item));
const row = (id: string, changes: Partial<FlowRow>): Partial<Evidence> =>
  flows({ rows: replacedIn(FLOWS.rows, (each) => each.id === id, changes) });
const step = (taskId: string, changes: Partial<FlowStepRow>): Partial<Evidence> =>
  flows({ steps: replacedIn(FLOWS.steps, (each) => each.taskId === taskId, changes) });
const started = (key: string, changes: Partial<FlowSubmission>): Partial<Evidence> =>
  flows({ submissions: replacedIn(FLOWS.submissions, (each) => each.key === key, changes) });
const task = (id: string, changes: Partial<TaskRow>): Partial<Evidence> => ({
  tasks: replacedIn(SOUND.tasks, (each) => each.id === id, changes),
});
const given = (taskId: string, got: object): Partial<Evidence> => ({
  runs: replacedIn(SOUND.runs, (each) => each.taskId === taskId && each.event === 'started', {
    note: JSON.stringify(got),
  }),
});

const BROKEN: readonly (readonly [invariant: number, what: string, changes: Partial<Evidence>])[] = [
  [1, 'an accepted flow is not there', flows({ rows: FLOWS.rows.slice(1), steps: FLOWS.steps.slice(2) })],
  [1, 'another flow than was answered', started('key-s', { flowId: 'z' })],
  [1, 'a flow has not ended', row('s', { hasEnded: false, state: 'running', stepsOpen: 1 })],
  [2, 'a step of a flow did not end once', { steps: [...SOUND.steps, ...path('s-a', 'succeeded', 'succeeded')] }],
  [6, 'one start became several flows', flows({ rows: [...FLOWS.rows, flowOf('z', { key: 'key-s' })] })],
  [6, 'a sound start was refused', started('key-s', { answer: 'refused' })],
  [6, 'a flow that nobody started', flows({ submissions: FLOWS.submissions.slice(1) })],
  [6, 'a flow that has ended counts steps as open', row('s', { stepsOpen: 1 })],
  [6, 'a flow has not the steps that it was given', row('s', { stepsTotal: 3 })],
  [6, 'a task is blocked whose flow has ended', task('s-b', { state: 'blocked', startedAt: undefined })],
  [6, 'a flow ended otherwise than its policy says', row('u', { state: 'partial' })],
  [6, 'a flow ended otherwise than its policy says', task('s-b', { state: 'dead' })],
  [6, 'a flow counts its failures wrong', row('u', { stepsFailed: 2 })],
  [
    6,
    'a flow succeeded without a step that it had cancelled',
    { ...task('s-b', { state: 'cancelled' }), ...step('s-b', { why: 'a is dead' }) },
  ],
  [6, 'a flow undid what it had no reason to', row('u', { onFailure: 'stop' })],
  [6, 'what succeeded was not undone', step('u-undo', { taskId: undefined })],
  [6, 'what did not succeed was undone', task('u-a', { state: 'expired' })],
  [6, 'a flow failed and its step for failures was not made', step('u-failure', { taskId: undefined })],
  [6, 'a step was made anew that nobody asked for', flows({ retried: new Set() })],
  [
    6,
    'a step was cancelled that nobody wanted cancelled',
    {
      ...flows({
        cancelled: new Set(),
        steps: replacedIn(FLOWS.steps, (each) => each.taskId === 'c-b', { why: undefined }),
      }),
    },
  ],
  [6, 'a step expired that waits for no signal', task('s-b', { state: 'expired' })],
  [6, 'a step died that had no reason to', started('key-u', { plan: submission('u').plan })],
  [6, 'a step started before what it waits for had succeeded', task('s-a', { finishedAt: at(3.5) })],
  [6, 'a step started without its signal', task('c-b', { state: 'succeeded', startedAt: at(3) })],
  [
    6,
    'a level was undone before the one below it',
    {
      ...flows({
        steps: [...FLOWS.steps, stepOf('u', 4, 'undo b', { kind: 'undo', level: 1, undoOf: 0, taskId: 'u-deeper' })],
      }),
      tasks: [...SOUND.tasks, taskOf('u', 'deeper', 6)],
    },
  ],
  [6, 'a step was not given the results of the whole group', given('s-b', { a: [] })],
  [6, 'a step was given nothing of what it waits for', given('s-b', { a: null })],
  [6, 'a step was given what another gave', given('s-b', { a: 'u-a' })],
  [
    6,
    'a step ran before what it waits for was through',
    { runs: SOUND.runs.filter(({ taskId, event }) => taskId !== 's-a' || event !== 'ended') },
  ],
];

test.each(BROKEN)('invariant %s: %s', (invariant, what, changes) => {
  const named = check({ ...SOUND, ...changes }).map((violation) => `${violation.invariant}: ${violation.what}`);
  expect(named).toContain(`${invariant}: ${what}`);
});

test('a dead step that was replayed by itself is a failure of its flow still', () => {
  const alone = {
    ...task('u-b', { state: 'succeeded', attempt: 2, flowId: undefined }),
    letters: [letter('letter-u', 'u-b', { state: 'replayed' }), ...SOUND.letters.slice(1)],
    runs: [...SOUND.runs, ...runOf('u-b', 9, { a: 'u-a' }, 2)],
    steps: [
      ...SOUND.steps.filter(({ taskId }) => taskId !== 'u-b'),
      ...path('u-b', 'blocked', 'pending', 'running', 'dead', 'pending', 'running', 'succeeded'),
    ],
  };
  expect(check({ ...SOUND, ...alone })).toEqual([]);
});

test('a start that nobody answered may have worked or not', () => {
  const unanswered = { answer: 'unknown', flowId: undefined } as const;
  expect(check({ ...SOUND, ...started('key-s', unanswered) })).toEqual([]);
});
