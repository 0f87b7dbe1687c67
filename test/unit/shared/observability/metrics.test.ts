import { readFile } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { LETTER_REASONS } from '../../../../shared/dead-letters/reason.ts';
import { METRICS } from '../../../../shared/observability/metrics-declared.ts';
import { createMetrics, listMetrics, renderMetricsReference } from '../../../../shared/observability/metrics.ts';
import type { Metrics } from '../../../../shared/observability/metrics.ts';

const make = (): Metrics => createMetrics({ service: 'worker', version: '1.2.3', withProcess: false });
const linesOf = async (metrics: Metrics, name: string): Promise<string[]> =>
  (await metrics.render()).split('\n').filter((line) => line.startsWith(name));

test('the metrics that others depend on are those of the golden file', async () => {
  expect(listMetrics()).toBe(await readFile(new URL('../../../golden/metrics.txt', import.meta.url), 'utf8'));
  expect(renderMetricsReference()).toContain(
    '| `warren_attempts_total` | counter | `task_type` `outcome=succeeded\\|failed',
  );
});

test('names are those of Prometheus: prefix, base unit, _total for counters', () => {
  for (const { name, kind, help } of Object.values(METRICS)) {
    expect(name).toMatch(kind === 'counter' ? /^warren_[a-z_]+_total$/ : /^warren_[a-z_]+(?<!_total)$/);
    expect(name).toMatch(kind === 'histogram' ? /_seconds$/ : /./);
    expect(help).toMatch(/\.$/);
  }
});

test('counters add by batch, per label values', async () => {
  const metrics = make();
  metrics.attempts.add(500, 'report.csv', 'succeeded');
  metrics.attempts.add(2, 'report.csv', 'succeeded');
  metrics.attempts.add(1, 'report.csv', 'failed');
  expect(await linesOf(metrics, 'warren_attempts_total')).toEqual([
    'warren_attempts_total{task_type="report.csv",outcome="succeeded"} 502',
    'warren_attempts_total{task_type="report.csv",outcome="failed"} 1',
  ]);
});

test('gauges hold what is set or ask at each scrape, and show nothing before', async () => {
  const metrics = make();
  expect(await linesOf(metrics, 'warren_outbox_rows')).toEqual([]);
  expect(await linesOf(metrics, 'warren_edits_total')).toEqual(['warren_edits_total 0']);
  let running = 3;
  metrics.inFlight.readFrom(() => running, 'high');
  running = 4;
  metrics.outboxRows.set(7);
  expect(await linesOf(metrics, 'warren_in_flight')).toEqual(['warren_in_flight_attempts{queue="high"} 4']);
  expect(await linesOf(metrics, 'warren_outbox_rows')).toEqual(['warren_outbox_rows 7']);
  metrics.outboxRows.set(Number.NaN);
  expect(await linesOf(metrics, 'warren_outbox_rows')).toEqual([]);
});

test('what concerns the whole installation is shown only while this process is the one that shows it', async () => {
  const metrics = make();
  let isShown = true;
  metrics.showFleetWhile(() => isShown);
  metrics.queueReady.set(5, 'default');
  metrics.inFlight.set(2, 'default');
  expect(await linesOf(metrics, 'warren_queue_ready')).toEqual(['warren_queue_ready_messages{queue="default"} 5']);
  isShown = false;
  expect(await linesOf(metrics, 'warren_queue_ready')).toEqual([]);
  expect(await linesOf(metrics, 'warren_in_flight')).toHaveLength(1);
});

test('a version that nobody gave is unknown, since Prometheus knows no empty label', async () => {
  const metrics = createMetrics({ service: 'producer', version: '', withProcess: false });
  expect((await linesOf(metrics, 'warren_build_info'))[0]).toContain('service="producer",version="unknown"');
});

test('histograms add up their buckets', async () => {
  const metrics = make();
  for (const seconds of [0.001, 0.001, 0.003, 99_999]) metrics.waitSeconds.observe(seconds, 't');
  const lines = await linesOf(metrics, 'warren_wait_seconds');
  expect(lines[0]).toBe('warren_wait_seconds_bucket{task_type="t",le="0.002"} 2');
  expect(lines[1]).toBe('warren_wait_seconds_bucket{task_type="t",le="0.005"} 3');
  expect(lines.slice(-3)).toEqual([
    'warren_wait_seconds_bucket{task_type="t",le="+Inf"} 4',
    'warren_wait_seconds_sum{task_type="t"} 99999.005',
    'warren_wait_seconds_count{task_type="t"} 4',
  ]);
});

test('names without end stay 501 series, and hostile ones stay one line', async () => {
  const metrics = make();
  for (let index = 0; index < 2_000; index += 1) metrics.lateCompletions.add(1, `type-${index}`);
  const lines = await linesOf(metrics, 'warren_late_completions_total');
  expect(lines).toHaveLength(501);
  expect(lines.at(-1)).toBe('warren_late_completions_total{task_type="other"} 1500');
  metrics.flowsStarted.add(1, 'a"b\nwarren_fake 1');
  expect(await linesOf(metrics, 'warren_fake')).toEqual([]);
});

test('the reasons of dead letters are those that there are; any other, which a foreign letter made up, is other', async () => {
  const [{ values = [] }] = METRICS.deadLetters.labels;
  expect(values.toSorted()).toEqual([...Object.keys(LETTER_REASONS), 'other'].toSorted());
  const metrics = make();
  metrics.deadLetters.add(1, 'made-up');
  metrics.deadLetters.add(1, 'maxlen');
  expect(await linesOf(metrics, 'warren_dead_letters_total')).toEqual([
    'warren_dead_letters_total{reason="other"} 1',
    'warren_dead_letters_total{reason="maxlen"} 1',
  ]);
});

test('process metrics come with withProcess', async () => {
  const text = await createMetrics({ service: 'x', version: '1', withProcess: true }).render();
  expect(text).toContain('nodejs_eventloop_lag_p99_seconds');
  expect(text).toContain('process_resident_memory_bytes');
  expect(text).toContain('warren_build_info{service="x",version="1"');
});
