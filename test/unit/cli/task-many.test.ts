/** `warren task cancel` and `warren task edit`: one by its id; of many the number first, then how far it is. */
import { describe, expect, test } from '@jest/globals';
import { answering, jsonAnswer, problem, sleepingClock, TASK_ID, taskInState, warren } from '../../support/cli-io.ts';
import type { SeenRequest } from '../../support/cli-io.ts';

const sample = { id: TASK_ID, state: 'pending', priority: 4, attempt: 0, acceptedAt: '2026-05-01T09:00:00.000Z' };
const preview = jsonAnswer({
  dryRun: true,
  selected: 12,
  samples: [{ ...sample, type: 'mail', queue: 'default' }],
  isPartial: false,
});
const done = (counts: object, nextCursor?: string): (() => Response) =>
  jsonAnswer({ dryRun: false, operation: 'o1', ...counts, isPartial: nextCursor !== undefined, nextCursor });
const bodiesOf = (seen: readonly SeenRequest[]): unknown[] =>
  seen.map(({ method, url, body }) => [method, new URL(url).pathname, JSON.parse(body) as unknown]);
const yes = async (): Promise<string> => await Promise.resolve('y');
const CANCEL = ['task', 'cancel', '--filter', 'type:mail age:>1d', '--reason', 'too late'];
const filter = 'type:mail age:>1d';

describe('task cancel with a filter', () => {
  test('shows how many and some of them, asks, and says what was done', async () => {
    const { fetch, seen } = answering(preview, done({ cancelled: 10, requested: 1, skipped: 1 }));
    const asked: string[] = [];
    const run = await warren(CANCEL, {
      fetch,
      ask: async (question) => {
        asked.push(question);
        return await yes();
      },
      clock: sleepingClock(),
    });
    expect(run).toMatchObject({
      exitCode: 0,
      stdout: '10 cancelled; 1 run, their workers have been asked to abort them; 1 had ended.\n',
    });
    expect(run.stderr).toMatch(/^12 tasks fit, the newest of them:\nID[\s\S]*pending/);
    expect(asked).toEqual(['Cancel them? [y/N] ']);
    expect(bodiesOf(seen)).toEqual([
      ['POST', '/v1/tasks/cancel', { filter, dryRun: true }],
      ['POST', '/v1/tasks/cancel', { filter, reason: 'too late', withinMs: 1_000 }],
    ]);
  });

  test('goes on where the service stopped, and sums up', async () => {
    const { fetch, seen } = answering(
      done({ cancelled: 500, requested: 0, skipped: 0 }, 'c1'),
      done({ cancelled: 0, requested: 0, skipped: 0 }, 'c2'),
      done({ cancelled: 7, requested: 2, skipped: 1 }),
    );
    const run = await warren([...CANCEL, '--yes', '--json'], { fetch });
    expect([run.exitCode, run.json()]).toEqual([0, { cancelled: 507, requested: 2, skipped: 1 }]);
    expect(seen.map(({ body }) => (JSON.parse(body) as { cursor?: string }).cursor)).toEqual([undefined, 'c1', 'c2']);
  });

  test('draws on a terminal how far it is', async () => {
    const { fetch } = answering(preview, done({ cancelled: 6 }, 'c1'), done({ cancelled: 6 }));
    const run = await warren([...CANCEL, '--yes'], { fetch, isTTY: true, clock: sleepingClock() });
    expect(run.exitCode).toBe(0);
    expect(run.stderr).toContain('[############............]  50 % of 12, 6 cancelled so far');
    expect(run.stderr.endsWith('\r\u001b[K')).toBe(true);
  });

  test('that breaks off says how far it came', async () => {
    const { fetch } = answering(done({ cancelled: 500 }, 'c1'), problem('database-unavailable', 503));
    const run = await warren([...CANCEL, '--yes'], { fetch });
    expect(run.exitCode).not.toBe(0);
    expect(run.stderr).toContain('500 cancelled so far; that stays done.');
  });

  test('of nothing asks nothing', async () => {
    const { fetch, seen } = answering(jsonAnswer({ dryRun: true, selected: 0, samples: [], isPartial: false }));
    const run = await warren(CANCEL, { fetch, ask: yes });
    expect([run.exitCode, run.stdout, seen.length]).toEqual([0, 'No task fits that this could be done to.\n', 1]);
  });

  test('--dry-run needs no reason and does nothing', async () => {
    const { fetch, seen } = answering(preview);
    const run = await warren(['task', 'cancel', '--filter', filter, '--dry-run'], { fetch, clock: sleepingClock() });
    expect(run.stdout).toMatch(/^12 tasks fit/);
    expect(bodiesOf(seen)).toEqual([['POST', '/v1/tasks/cancel', { filter, dryRun: true }]]);
  });
});

describe('task edit', () => {
  test('of one sends what shall change, and shows what it is then', async () => {
    const { fetch, seen } = answering(taskInState('pending'));
    const args = ['--priority', '9', '--now', '--no-deadline', '--input', '{"a": 1.0}', '--if-generation', '3'];
    const run = await warren(['task', 'edit', TASK_ID, ...args, '--reason', 'urgent'], {
      fetch,
      clock: sleepingClock(),
    });
    expect(run.exitCode).toBe(0);
    expect(run.stdout).toMatch(/state +pending/);
    expect(seen[0]).toMatchObject({ method: 'PATCH' });
    expect(seen[0]?.headers.get('if-match')).toBe('"3"');
    expect(seen[0]?.body).toContain('"input":{"a": 1.0}');
    expect(JSON.parse(seen[0]?.body ?? '')).toEqual({
      priority: 9,
      delayMs: 0,
      deadline: null,
      reason: 'urgent',
      input: { a: 1 },
    });
  });

  test('of one that is left out says nothing of it', async () => {
    const { fetch, seen } = answering(taskInState('pending'));
    await warren(['task', 'edit', TASK_ID, '--deadline', '2h'], { fetch, clock: sleepingClock() });
    expect(JSON.parse(seen[0]?.body ?? '')).toEqual({ deadline: '2026-05-01T12:00:00.000Z' });
  });

  test('of many sends the changes with the filter', async () => {
    const { fetch, seen } = answering(preview, done({ edited: 11, skipped: 1 }));
    const args = ['--filter', filter, '--queue', 'bulk', '--delay', '8h', '--reason', 'wait for the night'];
    const run = await warren(['task', 'edit', ...args], { fetch, ask: yes, clock: sleepingClock() });
    expect(run.stdout).toBe('11 changed; 1 were so already, or no longer wait.\n');
    const changes = { queue: 'bulk', delayMs: 28_800_000 };
    expect(bodiesOf(seen)).toEqual([
      ['POST', '/v1/tasks/edit', { filter, changes, dryRun: true }],
      ['POST', '/v1/tasks/edit', { filter, changes, reason: 'wait for the night', withinMs: 1_000 }],
    ]);
  });
});

test.each([
  [['cancel']],
  [['cancel', TASK_ID, '--filter', filter, '--reason', 'x']],
  [['cancel', TASK_ID, '--dry-run']],
  [['cancel', '--filter', filter, '--yes']],
  [['cancel', '--filter', filter, '--reason', 'x']],
  [['edit', TASK_ID, '--priority', '10']],
  [['edit', TASK_ID, '--now', '--delay', '1h']],
  [['edit', TASK_ID, '--input', '{}', '--input-file', 'x']],
  [['edit', '--filter', filter, '--reason', 'x', '--yes', '--input', '{}']],
  [['edit', '--filter', filter, '--reason', 'x', '--yes', '--no-deadline']],
  [['edit', '--filter', filter, '--priority', '1', '--yes']],
])('%j is wrong use, and nothing is sent', async (args) => {
  const { fetch, seen } = answering(done({}));
  expect((await warren(['task', ...args], { fetch })).exitCode).toBe(2);
  expect(seen).toEqual([]);
});
