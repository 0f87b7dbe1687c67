/** What the checker of chaos finds in schedules, on tables that were made up: what is sound passes, and each fault is named. */
import { expect, test } from '@jest/globals';
import { checkSchedules } from '../../chaos/check-schedules.ts';
import type { Evidence, TaskRow } from '../../chaos/evidence.ts';
import type { OccurrenceRow } from '../../chaos/schedule-evidence.ts';

const START = 1_700_000_000_000;
const at = (second: number): Date => new Date(START + second * 1_000);

const row = (second: number, changes: Partial<OccurrenceRow> = {}): OccurrenceRow => ({
  schedule: 'alone',
  atMs: at(second).getTime(),
  fromMs: changes.fromMs ?? at(second).getTime(),
  isManual: false,
  state: 'started',
  why: undefined,
  runId: `t${second}`,
  ...changes,
});
const skipped = (second: number, why: string, from = second): OccurrenceRow =>
  row(second, { state: 'skipped', why, runId: undefined, fromMs: at(from).getTime() });
const task = (id: string, from: number, until: number): TaskRow => ({
  id,
  key: undefined,
  state: 'succeeded',
  attempt: 1,
  acceptedAt: at(from),
  startedAt: at(from),
  finishedAt: at(until),
});

const OCCURRENCES = [
  row(0),
  row(1),
  skipped(2, 'full'),
  skipped(5, 'paused', 3),
  row(6),
  row(6.5, { isManual: true, runId: 'manual' }),
  row(7, { state: 'waiting', runId: undefined }),
];
const TASKS = [task('t0', 0, 1), task('t1', 1, 2), task('t6', 6, 6.4), task('manual', 6.5, 7)];

function find(changes: {
  readonly occurrences?: readonly OccurrenceRow[];
  readonly tasks?: readonly TaskRow[];
  readonly taskIds?: readonly string[];
}): readonly string[] {
  const { occurrences = OCCURRENCES, tasks = TASKS, taskIds = TASKS.map(({ id }) => id) } = changes;
  const evidence = { tasks, letters: [], schedules: { occurrences, taskIds } } as unknown as Evidence;
  return checkSchedules(evidence).map(({ what }) => what);
}

test('sound tables have no violation', () => {
  expect(find({})).toEqual([]);
});

test.each([
  ['an instant was left out', { occurrences: OCCURRENCES.toSpliced(2, 1) }],
  ['an instant was decided about twice', { occurrences: [...OCCURRENCES, skipped(6, 'overlap')] }],
  ['an instant was decided about twice', { occurrences: [...OCCURRENCES, skipped(8, 'missed', 5)] }],
  ['what an instant started is not there', { tasks: TASKS.slice(1) }],
  [
    'one run stands for several instants',
    { occurrences: [...OCCURRENCES, row(8, { schedule: 'beside', runId: 't6' })] },
  ],
  ['a task of a schedule that no instant started', { taskIds: ['t0', 'stray'] }],
  ['two runs of a schedule overlapped that must not', { tasks: TASKS.with(0, task('t0', 0, 1.5)) }],
])('%s', (what, changes) => {
  expect([...new Set(find(changes))]).toEqual([what]);
});
