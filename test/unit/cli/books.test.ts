/** `warren ledger` and `warren audit list`, against answers that the test gives. */
import { describe, expect, test } from '@jest/globals';
import { TASK_ID, answering, jsonAnswer, sleepingClock, warren } from '../../support/cli-io.ts';

describe('ledger', () => {
  const line = (type: string, hour: string, more: object = {}): object => ({
    type,
    hour,
    accepted: 10,
    succeeded: 7,
    dead: 1,
    cancelled: 0,
    expired: 0,
    inProgress: 2,
    difference: 0,
    ...more,
  });
  const [first, second] = ['2026-05-01T08:00:00.000Z', '2026-05-01T09:00:00.000Z'];
  const items = [line('b.mail', second), line('a.report', second), line('b.mail', first)];
  const totals = { accepted: 30, succeeded: 21, dead: 3, cancelled: 0, expired: 0, inProgress: 6, difference: 0 };
  const books = jsonAnswer({ items, totals, comparedAt: '2026-05-01T09:59:55.000Z' });
  const clock = sleepingClock();

  test('shows a line an hour and type with their sum, and exits 0 where they balance', async () => {
    const { fetch, seen } = answering(books);
    const { exitCode, stdout } = await warren(['ledger', '--from', '3h', '--type', 'x'], { fetch, clock });
    expect(exitCode).toBe(0);
    expect(seen[0]?.url).toBe('http://127.0.0.1:8080/v1/ledger?from=2026-05-01T07%3A00%3A00.000Z&type=x');
    expect(stdout.split('\n')).toEqual([
      'HOUR              ACCEPTED  SUCCEEDED  DEAD  CANCELLED  EXPIRED  IN PROGRESS  DIFFERENCE  TYPE',
      '2026-05-01 09:00        10          7     1          0        0            2           0  b.mail',
      '2026-05-01 09:00        10          7     1          0        0            2           0  a.report',
      '2026-05-01 08:00        10          7     1          0        0            2           0  b.mail',
      'total                   30         21     3          0        0            6           0',
      '',
      'Every line was compared with the tasks, the first of them 5.0s ago.',
      '',
    ]);
  });

  test.each([
    ['type', [/^ACCEPTED.*TYPE$/, /^ +10 .* a\.report$/, /^ +20 .* b\.mail$/, /^ +30 .* total$/]],
    ['hour', [/^HOUR.*DIFFERENCE$/, /^2026-05-01 09:00 +20 /, /^2026-05-01 08:00 +10 /, /^total +30 /]],
  ])('sums up by %s', async (by, expected) => {
    const { stdout } = await warren(['ledger', '--by', by], { fetch: answering(books).fetch, clock });
    for (const [index, pattern] of expected.entries()) expect(stdout.split('\n')[index]).toMatch(pattern);
  });

  test('exits 1 at a difference, and says what the tasks say instead', async () => {
    const found = { succeeded: 6, dead: 1, cancelled: 0, expired: 0, inProgress: 3 };
    const differing = jsonAnswer({
      items: [line('b.mail', second, { difference: 1, found })],
      totals: { ...totals, difference: 1 },
    });
    const { fetch } = answering(differing);
    const { exitCode, stdout } = await warren(['ledger'], { fetch, clock });
    expect(exitCode).toBe(1);
    expect(stdout).toContain('2026-05-01 09:00 b.mail: succeeded 7 but 6 found, in progress 2 but 3 found\n');
    expect(stdout).toContain('Not every line has been compared with the tasks yet.');
    const json = await warren(['ledger', '--json'], { fetch: answering(differing).fetch, clock });
    expect([json.exitCode, json.json<{ totals: object }>().totals]).toEqual([1, { ...totals, difference: 1 }]);
  });

  test('says so where nothing was accepted', async () => {
    const { fetch } = answering(jsonAnswer({ items: [], totals: {} }));
    expect(await warren(['ledger'], { fetch, clock })).toMatchObject({
      exitCode: 0,
      stdout: 'Nothing was accepted in this time.\n',
    });
  });
});

describe('audit list', () => {
  test('asks with its filters, and shows who did what from where', async () => {
    const { fetch, seen } = answering(
      jsonAnswer({
        items: [
          {
            id: TASK_ID,
            at: '2026-05-01T09:00:00.000Z',
            actor: 'ops',
            role: 'operator',
            address: '192.0.2.7',
            action: 'dead-letter.discard',
            target: 'd1',
            detail: { reason: 'with\u001b[2Jdrawn' },
          },
        ],
        nextCursor: 'c2',
      }),
    );
    const run = await warren(
      [
        'audit',
        'list',
        '--actor',
        'ops',
        '--action',
        'dead-letter.discard',
        '--target',
        'd1',
        '--after',
        '2h',
        '--limit',
        '1',
      ],
      { fetch, clock: sleepingClock() },
    );
    expect(run.exitCode).toBe(0);
    expect(Object.fromEntries(new URL(seen[0]?.url ?? '').searchParams)).toEqual({
      actor: 'ops',
      action: 'dead-letter.discard',
      target: 'd1',
      after: '2026-05-01T08:00:00.000Z',
      limit: '1',
    });
    expect(run.stdout).toMatch(/1h ago +ops +192\.0\.2\.7 +dead-letter\.discard +d1 +with\\u001b\[2Jdrawn\n/);
    expect(run.stderr).toContain('--cursor c2');
  });
});
