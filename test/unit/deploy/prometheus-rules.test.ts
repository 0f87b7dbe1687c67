/** The alerts ask for metrics that there are, and say what they mean. */
// oxlint-disable jest/no-standalone-expect -- because testWith declares the tests
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { METRICS } from '../../../shared/observability/metrics-declared.ts';
import { listFiles, readSource, ROOT } from '../../support/source-files.ts';
import { promtool, testWith } from '../../support/tools.ts';

const RULES = 'deploy/prometheus/warren.rules.yml';
const TESTS = 'deploy/prometheus/warren.rules.test.yml';

test('an alert asks for metrics with labels that they have', () => {
  const metrics = new Map<string, readonly string[]>(
    Object.values(METRICS).map(({ name, labels }) => [name, labels.map((label) => label.name)]),
  );
  const asked = [...readSource(RULES).matchAll(/^ +expr: (.+)$/gm)].map(([, expression = '']) => expression);
  expect(asked.length).toBeGreaterThan(0);
  for (const expression of asked) {
    const [name = ''] = /\bwarren_\w+/.exec(expression) ?? [];
    expect([...metrics.keys()]).toContain(name);
    const [, labels = ''] = /\bby \(([\w, ]+)\)/.exec(expression) ?? [];
    expect(metrics.get(name)).toEqual(expect.arrayContaining(labels.split(', ').filter(Boolean)));
  }
});

test('an alert has a severity, a summary, and a page that says what to do', () => {
  const alerts = readSource(RULES).split('- alert: ').slice(1);
  for (const alert of alerts) {
    expect(alert).toMatch(/^Warren\w+\n/);
    expect(alert).toMatch(/severity: (critical|warning)\n/);
    expect(alert).toMatch(/summary: '.+\.'\n/);
    const [page = ''] = /docs\/guides\/[\w-]+\.md/.exec(alert) ?? [];
    expect(listFiles('docs/guides')).toContain(page);
  }
});

testWith(
  promtool,
  'alerts fire when they should',
  async (path) => {
    const check = promisify(execFile)(path, ['test', 'rules', join(ROOT, TESTS)]);
    expect((await check).stdout).toContain('SUCCESS');
  },
  30_000,
);
