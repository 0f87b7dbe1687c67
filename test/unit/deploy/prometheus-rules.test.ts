/** The alerts ask for metrics that there are, each is shown to fire and to stay quiet, and a runbook says what to do. */
// oxlint-disable jest/no-standalone-expect -- because testWith declares the tests
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { faultsOf } from '../../support/promql.ts';
import { readSource, ROOT } from '../../support/source-files.ts';
import { promtool, testWith } from '../../support/tools.ts';

const RULES = 'deploy/prometheus/warren.rules.yml';
const TESTS = 'deploy/prometheus/warren.rules.test.yml';
const RUNBOOKS = 'docs/runbooks.md';

const alerts = readSource(RULES)
  .split(/^ {6}- alert: /m)
  .slice(1)
  .map((text) => {
    const [name = ''] = /^\w+/.exec(text) ?? [];
    const [, expression = ''] = /^ {8}expr: (?:>-)?([\s\S]+?)\n {8}\w/m.exec(text) ?? [];
    return { name, text, expression };
  });
const names = alerts.map(({ name }) => name);

test.each(alerts)('$name asks for metrics, labels and values that there are', ({ expression }) => {
  expect(expression).toMatch(/warren_/);
  expect(faultsOf(expression)).toEqual([]);
});

test('what an alert must not ask for is found', () => {
  expect(faultsOf('sum by (task_type) (rate(warren_attempts_total{outcome=~"failed|timeout"}[5m]))')).toEqual([]);
  expect(faultsOf('rate(warren_attempts_total{outcome="broken"}[5m])')).toEqual([
    'outcome of warren_attempts_total is never broken',
  ]);
  expect(faultsOf('sum by (queue) (warren_slots) > warren_gone{queue="a"}')).toEqual([
    'there is no metric warren_gone',
  ]);
  expect(faultsOf('sum by (task_type) (warren_slots{worker="a"})')).toEqual([
    'warren_slots has no label worker',
    'nothing here has the label task_type',
  ]);
  expect(faultsOf('warren_wait_seconds_count > nodejs_heap_size_used_bytes > nodejs_gone')).toEqual([
    'there is no metric nodejs_gone',
  ]);
});

test('the issue of an alert is told in a sentence, with a severity, and its runbook says what it means and what to do', () => {
  const page = readSource(RUNBOOKS);
  for (const { name, text } of alerts) {
    expect({ name, severity: /severity: (\w+)\n/.exec(text)?.[1] }).toEqual({
      name,
      severity: expect.stringMatching(/^(critical|warning)$/),
    });
    expect({ name, summary: /summary: '(.+)'\n/.exec(text)?.[1] }).toEqual({
      name,
      summary: expect.stringMatching(/^[A-Z0-9{].{15,110}\.$/),
    });
    expect(text).toContain('description: ');
    expect(text).toContain(`runbook_url: ${RUNBOOKS}#${name.toLowerCase()}\n`);
    const [, section = ''] = new RegExp(`^## ${name}\n([\\s\\S]*?)(?=^## )`, 'm').exec(page) ?? [];
    expect({ name, section }).toEqual({
      name,
      section: expect.stringMatching(/\*\*Means\.\*\*[\s\S]*\*\*(Do|Look and do)\.\*\*/),
    });
  }
});

test('each alert waits before it fires, but for those that count what has happened', () => {
  const hasty = alerts.filter(({ text }) => !/^ {8}for: \d+[smh]$/m.test(text));
  expect(hasty.map(({ expression }) => expression).filter((expression) => !/increase\(/.test(expression))).toEqual([]);
});

test('no two alerts share a name, and no runbook is left of one that is gone', () => {
  const headings = [...readSource(RUNBOOKS).matchAll(/^## (Warren\w+)$/gm)].map(([, name]) => name);
  expect(headings).toEqual(names);
});

test('each alert has a test that shows it quiet and then fire', () => {
  const tests = readSource(TESTS)
    .split(/^ {2}- name: /m)
    .slice(1);
  for (const name of names) {
    const found = tests.find((text) => text.split('\n')[0]?.split(', ').includes(name)) ?? '';
    expect({ name, found }).toEqual({
      name,
      found: expect.stringMatching(/exp_(samples|alerts): \[\][\s\S]*exp_(samples|alerts):\n/),
    });
  }
});

testWith(
  promtool,
  'alerts fire when they should, and not before',
  async (path) => {
    const check = promisify(execFile)(path, ['test', 'rules', join(ROOT, TESTS)]);
    expect((await check).stdout).toContain('SUCCESS');
  },
  60_000,
);

testWith(promtool, 'the example of a configuration is one, and names the rules', async (path) => {
  const check = promisify(execFile)(path, ['check', 'config', join(ROOT, 'deploy/prometheus/prometheus.yml')]);
  expect((await check).stdout).toContain(`${names.length + 1} rules found`);
});
