/** The dashboards can be imported as they are, and every query of them asks for what there is. */
// oxlint-disable jest/no-standalone-expect -- because testWith declares the tests
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { METRICS } from '../../../shared/observability/metrics-declared.ts';
import { dashboards, queriesOf } from '../../support/dashboards.ts';
import { faultsOf } from '../../support/promql.ts';
import { readSource } from '../../support/source-files.ts';
import { promtool, testWith } from '../../support/tools.ts';

test('there is one for the fleet, for a queue, for dead letters and for the processes', () => {
  expect(dashboards.map(({ uid }) => uid).toSorted()).toEqual([
    'warren-dead-letters',
    'warren-fleet',
    'warren-queue',
    'warren-runtime',
  ]);
});

test.each(dashboards)(
  '$title can be imported: its data source is a variable, its panels do not overlap',
  (dashboard) => {
    const { panels, templating } = dashboard;
    expect(templating.list[0]).toMatchObject({ name: 'datasource', type: 'datasource', query: 'prometheus' });
    expect(panels.length).toBeGreaterThan(10);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const taken = new Set<string>();
    for (const { title, description, gridPos, datasource, targets } of panels) {
      expect(title).not.toBe('');
      expect(description).toMatch(/[.:\d]$/);
      for (const { datasource: source } of [{ datasource }, ...targets]) {
        expect(source).toEqual({ type: 'prometheus', uid: '${datasource}' });
      }
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(x).toBeLessThan(24);
          expect(taken).not.toContain(`${x}/${y}`);
          taken.add(`${x}/${y}`);
        }
      }
    }
  },
);

test.each(dashboards)(
  '$title asks for metrics, labels and values that there are, and uses the variables that it has',
  (dashboard) => {
    const queries = queriesOf(dashboard);
    for (const { expr, legend } of queries) {
      expect({ expr, faults: faultsOf(expr) }).toEqual({ expr, faults: [] });
      const grouped = [...expr.matchAll(/by \(([\w, ]+)\)/g)].flatMap(([, list = '']) => list.split(', '));
      const shown = [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label ?? '');
      const strange = grouped.length === 0 ? [] : shown.filter((label) => !grouped.includes(label));
      expect({ expr, strange }).toEqual({ expr, strange: [] });
    }
    const variables = dashboard.templating.list.slice(1);
    const text = queries.map(({ expr }) => expr).join('\n');
    const used = new Set(
      [...text.matchAll(/\$(\w+)/g)].map(([, name = '']) => name).filter((name) => name !== '__rate_interval'),
    );
    expect(used).toEqual(new Set(variables.map(({ name }) => name)));
    for (const { query } of variables) {
      const [, metric = '', label = ''] =
        /^label_values\((\w+), (\w+)\)$/.exec((query as { query: string }).query) ?? [];
      expect(faultsOf(`${metric}{${label}="x"}`).filter((fault) => !fault.includes('is never'))).toEqual([]);
    }
  },
);

test('a figure of the whole fleet is never summed over the processes that may have shown it', () => {
  const ofFleet = Object.values(METRICS).flatMap((metric) => ('isOfFleet' in metric ? [metric.name] : []));
  const rules = readSource('deploy/prometheus/warren.rules.yml');
  const expressions = [
    ...dashboards.flatMap((each) => queriesOf(each)).map(({ expr }) => expr),
    ...rules.split('expr:'),
  ];
  for (const name of ofFleet) {
    const summed = new RegExp(`\\b(?:sum|avg|count)(?: by \\([\\w, ]*\\))? \\(?\\(${name}\\b`);
    expect(expressions.filter((expression) => summed.test(expression))).toEqual([]);
  }
});

testWith(promtool, 'every query is PromQL', async (path) => {
  const dir = await mkdtemp(join(tmpdir(), 'warren-dashboards-'));
  try {
    const rules = dashboards
      .flatMap((dashboard) => queriesOf(dashboard))
      .map(({ plain }, index) => `      - record: query:${index}\n        expr: ${JSON.stringify(plain)}\n`);
    const file = join(dir, 'queries.yml');
    await writeFile(file, `groups:\n  - name: queries\n    rules:\n${rules.join('')}`);
    const { stdout } = await promisify(execFile)(path, ['check', 'rules', file]);
    expect(stdout).toContain(`SUCCESS: ${rules.length} rules found`);
  } finally {
    await rm(dir, { recursive: true });
  }
});
