/** `warren retention` and `warren erase`, against answers that the test gives. */
import { describe, expect, test } from '@jest/globals';
import { TASK_ID, answering, jsonAnswer, sleepingClock, warren } from '../../support/cli-io.ts';

const clock = sleepingClock();

test('retention shows rules, partitions, tables and what comes next', async () => {
  const view = {
    now: '2026-05-01T10:00:00.000Z',
    rules: [
      { state: 'succeeded', keptMs: 2_592_000_000 },
      { type: 'report.csv', state: 'dead', keptMs: 86_400_000 },
    ],
    spanMs: 432_000_000,
    behindMs: 3_600_000,
    oldestTaskAt: '2026-04-01T10:00:00.000Z',
    partitions: [
      {
        name: 'tasks_from_x',
        state: 'due',
        from: '2026-03-01T00:00:00.000Z',
        to: '2026-03-06T00:00:00.000Z',
        rows: 7,
        bytes: 2_048,
      },
      { name: 'tasks_default', state: 'default', rows: 0, bytes: 8_192 },
    ],
    underWay: { sources: ['tasks_from_w'], retired: 900, kept: 3, beganAt: '2026-05-01T09:59:00.000Z' },
    next: { make: [], retire: ['tasks_from_x'], drop: [], walk: [] },
    tables: [{ table: 'audit', kept: 'for good: it is append-only', rows: 12, bytes: 1_073_741_824 }],
  };
  const { fetch, seen } = answering(jsonAnswer(view));
  const { exitCode, stdout } = await warren(['retention'], { fetch, clock });
  expect(exitCode).toBe(0);
  expect(seen[0]?.url).toBe('http://127.0.0.1:8080/v1/retention');
  expect(stdout).toMatch(/succeeded +30d +all others/);
  expect(stdout).toMatch(/dead +1d +report\.csv/);
  expect(stdout).toMatch(/due +2026-03-01 00:00 +2026-03-06 00:00 +7 +2\.0 KiB +tasks_from_x/);
  expect(stdout).toMatch(/audit +12 +1\.0 GiB +for good/);
  expect(stdout).toContain('Behind by 1h');
  expect(stdout).toContain('Under way: tasks_from_w; so far 900 are over, 3 stay.');
  expect(stdout).toContain('The next round makes nothing, retires tasks_from_x, drops nothing.');
});

describe('erase', () => {
  const none = { attempts: 0, origins: 0, progress: 0, deadLetters: 0, searchEntries: 0, mendedInputs: 0 };
  const rest = { replayPatches: 0, replayItems: 0, failureGroups: 0 };
  const answer = (tasks: number, isPartial: boolean, ids: readonly string[] = []) =>
    jsonAnswer({
      id: TASK_ID,
      erased: { tasks, ...none, ...rest },
      notEnded: { count: ids.length, ids },
      isPartial,
    });

  test('goes on until nothing is left, and sums up', async () => {
    const { fetch, seen } = answering(answer(500, true), answer(20, false));
    const { exitCode, stdout } = await warren(['erase', '--key', 'c-1', '--reason', 'asked', '--yes'], {
      fetch,
      clock,
    });
    expect(exitCode).toBe(0);
    expect(stdout).toBe('520 tasks erased.\n');
    expect(seen).toHaveLength(2);
    expect(seen[0]).toMatchObject({ method: 'POST', url: 'http://127.0.0.1:8080/v1/erasures' });
  });

  test('exits 1 where tasks have not ended, and names them', async () => {
    const { fetch } = answering(answer(0, false, [TASK_ID]));
    const { exitCode, stdout } = await warren(['erase', '--task', TASK_ID, '--reason', 'asked', '--yes'], {
      fetch,
      clock,
    });
    expect(exitCode).toBe(1);
    expect(stdout).toBe(`1 tasks have not ended and were left: ${TASK_ID}\n`);
  });

  test.each([
    [['--key', 'a'], '--reason'],
    [['--reason', 'x'], 'Give --key'],
    [['--key', 'a', '--task', TASK_ID, '--reason', 'x'], 'Give --key'],
    [['--key', 'a', '--reason', 'x'], '--yes'],
  ])('with %j it says what is missing, and asks no service', async (args, said) => {
    const { fetch, seen } = answering();
    const { exitCode, stderr } = await warren(['erase', ...args], { fetch, clock });
    expect(exitCode).toBe(2);
    expect(stderr).toContain(said);
    expect(seen).toEqual([]);
  });
});
