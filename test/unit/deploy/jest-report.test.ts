import { expect, test } from '@jest/globals';
import { addTallies, EMPTY_TALLY, parseJestReport, renderTotals } from '../../../scripts/jest-report.ts';

function aReport(
  files: readonly { name: string; status?: string; message?: string; tests: Record<string, string> }[],
): string {
  return JSON.stringify({
    testResults: files.map(({ name, status = 'passed', message = '', tests }) => ({
      name,
      status,
      message,
      assertionResults: Object.entries(tests).map(([fullName, each]) => ({ fullName, status: each })),
    })),
  });
}

test('passed, failed and skipped tests are counted, the last two with their names', () => {
  const text = aReport([
    { name: '/clone/test/a.test.ts', status: 'failed', message: 'expected 1', tests: { one: 'passed', two: 'failed' } },
    { name: '/clone/test/b.test.ts', tests: { three: 'pending', four: 'passed', five: 'todo' } },
  ]);
  const tally = parseJestReport(text, '/clone');
  expect(tally).toEqual({
    passed: 2,
    failed: ['test/a.test.ts: two'],
    skipped: ['test/b.test.ts: three', 'test/b.test.ts: five'],
    details: ['test/a.test.ts\nexpected 1'],
  });
  expect(renderTotals(tally)).toBe('2 passed, 1 failed, 2 skipped');
});

test('a file that cannot be loaded is one failure', () => {
  const text = aReport([{ name: '/clone/test/a.test.ts', status: 'failed', message: 'SyntaxError', tests: {} }]);
  expect(parseJestReport(text, '/clone').failed).toEqual(['test/a.test.ts: could not be run']);
});

test('steps add up', () => {
  const step = { ...EMPTY_TALLY, passed: 2, failed: ['a'] };
  expect(renderTotals(addTallies(step, { ...EMPTY_TALLY, passed: 1, skipped: ['b'] }))).toBe(
    '3 passed, 1 failed, 1 skipped',
  );
});

test('text that is not a report is refused', () => {
  expect(() => parseJestReport('{}', '/clone')).toThrow('testResults');
});
