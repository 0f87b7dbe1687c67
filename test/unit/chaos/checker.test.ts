/** The checker of chaos, on logs that were made up: what is sound passes, and each fault is named with its invariant. */
import { expect, test } from '@jest/globals';
import { check } from '../../chaos/checker.ts';
import type { AttemptRow, Evidence, LetterRow, Step, TaskRow } from '../../chaos/evidence.ts';
import { NO_FLOWS } from '../../chaos/flow-evidence.ts';
import { NO_SCHEDULES } from '../../chaos/schedule-evidence.ts';
import type { Submission } from '../../chaos/submissions.ts';
import type { JournalEntry } from '../../support/tasks/journal.ts';

const at = (second: number): Date => new Date(1_700_000_000_000 + second * 1_000);

const submission = (key: string, changes: Partial<Submission> = {}): Submission => ({
  key,
  kind: 'fast',
  door: 'amqp',
  answer: 'accepted',
  times: 1,
  ...changes,
});
const task = (id: string, changes: Partial<TaskRow> = {}): TaskRow => ({
  id,
  key: `key-${id}`,
  state: 'succeeded',
  attempt: 1,
  acceptedAt: at(0),
  startedAt: at(1),
  finishedAt: at(2),
  ...changes,
});
const runOf = (taskId: string, attempt: number, event: JournalEntry['event'], pid = 10): JournalEntry => ({
  taskId,
  attempt,
  event,
  pid,
  atMs: 0,
});
const step = (taskId: string, before: string, after: string, attempt: number): Step => ({
  taskId,
  before,
  after,
  attemptBefore: after === 'running' ? attempt - 1 : attempt,
  attemptAfter: attempt,
});
const attemptOf = (taskId: string, attempt: number, outcome: string): AttemptRow => ({
  taskId,
  attempt,
  outcome,
  worker: 'w1',
  error: undefined,
});
const letter = (id: string, changes: Partial<LetterRow> = {}): LetterRow => ({
  id,
  kind: 'task',
  taskId: 'd',
  state: 'open',
  reason: 'attempts_exhausted',
  attempt: 1,
  hasError: true,
  isRecorded: true,
  messageId: undefined,
  ...changes,
});

/**
 * A task that succeeded (a), one whose worker was lost after it was through (l), one that died, was replayed and died again
 * (d), a refused message (r), a submission that nobody answered (u), a worker that a task killed, a task that was cancelled (c) and one that expired (e).
 */
const SOUND: Evidence = {
  submissions: [
    submission('key-a', { door: 'http', taskId: 'a' }),
    submission('key-l', { kind: 'crashing', times: 2 }),
    submission('key-d', { kind: 'failing' }),
    submission('key-r', { kind: 'malformed' }),
    submission('key-u', { answer: 'unknown' }),
    submission('key-c'),
    submission('key-e', { kind: 'hurried' }),
  ],
  runs: [
    runOf('a', 1, 'started'),
    runOf('a', 1, 'ended'),
    runOf('l', 1, 'started', 11),
    runOf('l', 1, 'ended', 11),
    runOf('l', 2, 'started'),
    runOf('l', 2, 'ended'),
    runOf('d', 1, 'started'),
    runOf('d', 2, 'started'),
  ],
  tasks: [
    task('a'),
    task('l', { attempt: 2 }),
    task('d', { attempt: 2, state: 'dead' }),
    task('c', { attempt: 0, state: 'cancelled', startedAt: undefined }),
    task('e', { attempt: 0, state: 'expired', startedAt: undefined }),
  ],
  attempts: [attemptOf('l', 1, 'lost'), attemptOf('d', 1, 'failed'), attemptOf('d', 2, 'failed')],
  letters: [
    letter('letter-1', { state: 'replayed' }),
    letter('letter-2', { attempt: 2 }),
    letter('letter-3', { kind: 'refused', taskId: undefined, attempt: undefined, messageId: 'key-r' }),
  ],
  steps: [
    step('a', 'pending', 'running', 1),
    step('a', 'running', 'succeeded', 1),
    step('l', 'pending', 'running', 1),
    step('l', 'running', 'pending', 1),
    step('l', 'pending', 'running', 2),
    step('l', 'running', 'succeeded', 2),
    step('d', 'pending', 'running', 1),
    step('d', 'running', 'dead', 1),
    step('d', 'dead', 'pending', 1),
    step('d', 'pending', 'running', 2),
    step('d', 'running', 'dead', 2),
  ],
  presses: [
    { letterId: 'letter-1', status: 200 },
    { letterId: 'letter-1', status: 409 },
  ],
  cancelled: new Set(['c']),
  workers: [{ workerId: 'w1', wasCutOff: true }],
  left: { claims: 0, outbox: 0 },
  ends: [
    { name: 'worker-1', pid: 11, code: 'SIGKILL', hadBegun: true, tail: '' },
    { name: 'worker-1', pid: 12, code: 'SIGKILL', asked: 'kill', hadBegun: true, tail: '' },
    { name: 'worker-1', pid: 13, code: 'SIGTERM', asked: 'terminate', hadBegun: false, tail: '' },
    { name: 'worker-1', pid: 14, code: 69, hadBegun: true, tail: '' },
    { name: 'worker-1', pid: 15, code: 0, asked: 'terminate', hadBegun: true, tail: '' },
  ],
  errors: [{ process: 'worker-1', message: 'lease lost', text: '{}' }],
  mayLoseRefused: false,
  flows: NO_FLOWS,
  schedules: NO_SCHEDULES,
};

test('sound logs have no violation', () => {
  expect(check(SOUND)).toEqual([]);
});

const without = <K extends keyof Evidence>(list: K, index: number): Partial<Evidence> => ({
  [list]: (SOUND[list] as readonly unknown[]).filter((_item, place) => place !== index),
});
const also = <K extends keyof Evidence>(list: K, ...items: readonly unknown[]): Partial<Evidence> => ({
  [list]: [...(SOUND[list] as readonly unknown[]), ...items],
});
const replaced = <K extends keyof Evidence>(list: K, index: number, changes: object): Partial<Evidence> => ({
  [list]: (SOUND[list] as readonly object[]).map((item, place) => (place === index ? { ...item, ...changes } : item)),
});
/** The evidence without anything that is known of task `a` but its submission. */
const ABSENT: Partial<Evidence> = {
  tasks: SOUND.tasks.slice(1),
  runs: SOUND.runs.slice(2),
  steps: SOUND.steps.slice(2),
};

const BROKEN: readonly (readonly [invariant: number | string, what: string, changes: Partial<Evidence>])[] = [
  [1, 'an accepted submission is not there', ABSENT],
  [1, 'a task has not ended', replaced('tasks', 0, { state: 'pending', finishedAt: undefined })],
  [1, 'another task than was answered', replaced('submissions', 0, { taskId: 'z' })],
  [1, 'a confirmed message that was refused has no dead letter', without('letters', 2)],
  [2, 'a task was settled as succeeded more than once', also('steps', step('a', 'succeeded', 'succeeded', 1))],
  [2, 'an attempt started twice', also('runs', runOf('a', 1, 'started', 12))],
  [2, 'a run without a claim', also('runs', runOf('a', 2, 'started'))],
  [2, 'succeeded without a run to its end', without('runs', 1)],
  [2, 'an attempt both succeeded and did not', also('attempts', attemptOf('a', 1, 'lost'))],
  [6, 'more tasks run at once than their limit allows', replaced('steps', 0, { atOnce: 3 })],
  [3, 'an attempt is not in the history', without('attempts', 0)],
  [3, 'a run that was through was repeated without a cause', replaced('attempts', 0, { outcome: 'deferred' })],
  [
    3,
    'an attempt was taken for lost whose worker lived and was not cut off',
    { workers: [{ workerId: 'w1', wasCutOff: false }] },
  ],
  [4, 'not one dead letter for each death', without('letters', 1)],
  [4, 'not one dead letter for each death', also('letters', letter('letter-4', { state: 'discarded' }))],
  [4, 'a task and its open letters do not fit', replaced('letters', 1, { state: 'discarded' })],
  [4, 'a dead letter without its error', replaced('letters', 1, { hasError: false })],
  [4, 'a dead letter that no handler took note of', replaced('letters', 1, { isRecorded: false })],
  [4, 'a dead letter of no task', also('letters', letter('letter-4', { taskId: 'z' }))],
  [4, 'a foreign letter that nobody sent', also('letters', letter('letter-4', { kind: 'foreign', taskId: undefined }))],
  [
    4,
    'a refused message has several dead letters',
    also('letters', letter('letter-4', { kind: 'refused', taskId: undefined, messageId: 'key-r' })),
  ],
  [
    5,
    'not one new run for each replay',
    also('steps', step('d', 'dead', 'pending', 2), step('d', 'pending', 'dead', 2)),
  ],
  [5, 'a letter was replayed more than once', replaced('presses', 1, { status: 200 })],
  [5, 'a replay was answered and did not happen', also('presses', { letterId: 'letter-2', status: 200 })],
  [5, 'a replay happened that was refused', replaced('presses', 0, { status: 409 })],
  [6, 'a transition that is not in the table', also('steps', step('a', 'succeeded', 'running', 2))],
  [6, 'an attempt number that did not rise with its claim', replaced('steps', 0, { attemptBefore: 1 })],
  [6, 'times that are not in order', replaced('tasks', 0, { finishedAt: at(0.5) })],
  [6, 'something is left over', { left: { claims: 0, outbox: 1 } }],
  [6, 'a task that nobody submitted', also('tasks', task('z', { state: 'cancelled' }))],
  [6, 'a task was cancelled that nobody wanted cancelled', { cancelled: new Set() }],
  [6, 'a task expired that has no deadline', replaced('submissions', 6, { kind: 'fast' })],
  [6, 'a run of a task that is not there', also('runs', runOf('z', 1, 'started'))],
  [6, 'one submission became several tasks', also('tasks', task('b', { key: 'key-l', state: 'cancelled' }))],
  [6, 'a malformed message became a task', also('tasks', task('b', { key: 'key-r', state: 'cancelled' }))],
  [6, 'a sound message was refused', replaced('letters', 2, { messageId: 'key-l' })],
  [6, 'a sound submission was refused', replaced('submissions', 0, { answer: 'refused', taskId: undefined })],
  [6, 'a task died that had no reason to', replaced('submissions', 2, { kind: 'fast' })],
  [
    'processes',
    'a process ended by itself',
    also('ends', { name: 'producer-1', pid: 20, code: 70, hadBegun: true, tail: '' }),
  ],
  [
    'processes',
    'a process did not end as it was asked to',
    also('ends', { name: 'producer-1', pid: 20, code: 'SIGKILL', asked: 'terminate', hadBegun: true, tail: '' }),
  ],
  [
    'processes',
    'a service logged an error',
    also('errors', { process: 'producer-1', message: 'delivery failed', text: '{}' }),
  ],
];

test.each(BROKEN)('invariant %s: %s', (invariant, what, changes) => {
  const named = check({ ...SOUND, ...changes }).map((violation) => `${violation.invariant}: ${violation.what}`);
  expect(named).toContain(`${invariant}: ${what}`);
});

test('an answer that promises nothing is no promise: the task may be there or not', () => {
  const there = {
    ...also('tasks', task('u')),
    runs: [...SOUND.runs, runOf('u', 1, 'started'), runOf('u', 1, 'ended')],
  };
  expect(check({ ...SOUND, ...there })).toEqual([]);
});

test('a press that nobody answered may have worked', () => {
  expect(check({ ...SOUND, ...replaced('presses', 0, { status: undefined }) })).toEqual([]);
});

test('a refused message may be lost with a killed broker of classic queues', () => {
  expect(check({ ...SOUND, ...without('letters', 2), mayLoseRefused: true })).toEqual([]);
});
