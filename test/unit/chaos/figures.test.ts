/** The figures of chaos, and its report. */
import { expect, test } from '@jest/globals';
import type { Evidence } from '../../chaos/evidence.ts';
import { FAULTS } from '../../chaos/faults.ts';
import { NO_FLOWS } from '../../chaos/flow-evidence.ts';
import { NO_SCHEDULES } from '../../chaos/schedule-evidence.ts';
import { countFigures } from '../../chaos/figures.ts';
import type { Injected } from '../../chaos/figures.ts';
import { renderFigures, renderViolations } from '../../chaos/report.ts';
import { planOf } from '../../chaos/schedule.ts';
import { seeded } from '../../support/seeded.ts';

const NOTHING: Evidence = {
  submissions: [],
  runs: [],
  tasks: [],
  attempts: [],
  letters: [],
  steps: [],
  presses: [],
  cancelled: new Set(),
  workers: [],
  left: {},
  ends: [],
  errors: [],
  mayLoseRefused: false,
  flows: NO_FLOWS,
  schedules: NO_SCHEDULES,
};

const runAt = (atMs: number, attempt = 1): Evidence['runs'][number] => ({
  taskId: 'a',
  attempt,
  event: 'started',
  pid: 1,
  atMs,
});
const fault = (name: string, beganAtMs: number, mendedAtMs: number): Injected => ({
  name,
  target: '',
  beganAtMs,
  mendedAtMs,
  hitsAll: true,
});

test('a stall counts from when a fault was mended until the next one begins', () => {
  const runs = [100, 200, 1_500, 1_600, 9_000].map((atMs) => runAt(atMs));
  const { stalls } = countFigures({ ...NOTHING, runs }, [fault('first', 150, 1_000), fault('second', 2_000, 3_000)]);
  expect(stalls).toEqual({ first: 500, second: 6_000 });
});

test('runs repeated are counted by what became of the run before', () => {
  const attempts = ['lost', 'failed'].map((outcome, index) => ({
    taskId: 'a',
    attempt: index + 1,
    worker: 'w',
    outcome,
    error: undefined,
  }));
  const runs = [runAt(1), runAt(2, 2), runAt(3, 3)];
  expect(countFigures({ ...NOTHING, runs, attempts }, []).repeated).toEqual({ lost: 1, failed: 1 });
});

test('what could not be injected is no fault', () => {
  const failed = { ...fault('broker killed', 1, 2), failed: 'it was away' };
  expect(countFigures(NOTHING, [failed, fault('broker killed', 3, 4)]).faults).toEqual({ 'broker killed': 1 });
});

test('the report names the invariant, counts, and shows ten', () => {
  const violations = Array.from({ length: 12 }, (_, index) => ({
    invariant: 1 as const,
    what: 'a task has not ended',
    about: `task-${index}`,
  }));
  const text = renderViolations(violations);
  expect(text).toMatch(/^invariant 1 is broken: a task has not ended \(12\)\n {4}task-0\n/);
  expect(text).toContain('task-9\n    and 2 more');
  expect(text).not.toContain('task-10');
  expect(renderFigures(countFigures(NOTHING, [fault('broker killed', 1, 2)]))).toContain('broker killed');
});

test('a seed gives the same faults, each once before any comes again', () => {
  const lane = FAULTS.filter((each) => each.lane === 'links');
  const drawn = (seed: number): string[] => {
    const names: string[] = [];
    for (const { fault: next, holdMs, choice, afterMs } of planOf(lane, seeded(seed))) {
      names.push(`${next.name} ${holdMs} ${choice} ${afterMs}`);
      if (names.length === lane.length) break;
    }
    return names;
  };
  expect(drawn(7)).toEqual(drawn(7));
  expect(drawn(7)).not.toEqual(drawn(8));
  expect(new Set(drawn(7).map((line) => line.replace(/( [\d.e-]+){3}$/, '')))).toEqual(
    new Set(lane.map(({ name }) => name)),
  );
});

test('names of faults are their own', () => {
  const names = FAULTS.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});
