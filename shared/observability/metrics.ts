/**
 * Counts the metrics that are declared. The only file that knows prom-client, which keeps the registry and the process's own
 * metrics; counting is ours, a map look-up, since it stands on the hot path.
 */
import prom from 'prom-client';
import { METRICS } from './metrics-declared.ts';
import type { Declared, Label, Labels, ValuesOf } from './metrics-declared.ts';

const MOST_NAMES = 500;
const OTHER = 'other';

/** A count that only rises. */
export interface Counter<L extends Labels> {
  /** Adds `count`, 0 or more, to the series of these label values. */
  add(count: number, ...values: ValuesOf<L>): void;
  /** Asks `read`, which never falls, at each scrape instead. */
  readFrom(read: () => number, ...values: ValuesOf<L>): void;
}

/** A value that comes and goes. */
export interface Gauge<L extends Labels> {
  /** Not a number: it is not known at present, and not shown. */
  set(value: number, ...values: ValuesOf<L>): void;
  /** Asks `read` at each scrape instead. */
  readFrom(read: () => number, ...values: ValuesOf<L>): void;
}

/** How often which duration was seen. */
export interface Histogram<L extends Labels> {
  observe(seconds: number, ...values: ValuesOf<L>): void;
}

type MetricOf<D> =
  D extends Declared<'counter', infer L>
    ? Counter<L>
    : D extends Declared<'gauge', infer L>
      ? Gauge<L>
      : D extends Declared<'histogram', infer L>
        ? Histogram<L>
        : never;

/** The metrics of one process, and how to show them. */
export type Metrics = { readonly [K in keyof typeof METRICS]: MetricOf<(typeof METRICS)[K]> } & {
  readonly contentType: string;
  /** The text that Prometheus scrapes. */
  render(): Promise<string>;
  /** Shows gauges that concern the whole installation only while `isShown` says so. Until it is called they are always shown. */
  showFleetWhile(isShown: () => boolean): void;
};

/** Makes the metrics of a process. `withProcess` adds memory, CPU, garbage collection and the lag of the event loop. */
export function createMetrics(options: {
  readonly service: string;
  readonly version: string;
  readonly withProcess: boolean;
}): Metrics {
  const registry = new prom.Registry();
  const made: Record<string, Series> = {};
  let isFleetShown = (): boolean => true;
  for (const [key, declared] of Object.entries(METRICS)) {
    const series = new Series(declared, () => isFleetShown());
    made[key] = series;
    registry.registerMetric(series as unknown as prom.Metric);
  }
  if (options.withProcess) prom.collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 20 });
  const metrics = {
    ...made,
    contentType: registry.contentType,
    render: async () => await registry.metrics(),
    showFleetWhile: (isShown: () => boolean) => {
      isFleetShown = isShown;
    },
  } as unknown as Metrics;
  metrics.buildInfo.set(1, options.service, options.version === '' ? 'unknown' : options.version, process.version);
  return metrics;
}

/** The list of metrics, one line each, as `test/golden/metrics.txt` keeps it. */
export function listMetrics(): string {
  return Object.values(METRICS)
    .map(
      ({ kind, name, labels, help }) =>
        `${name} ${kind}{${(labels as Labels).map((each) => renderLabel(each)).join(' ')}} ${help}`,
    )
    .toSorted()
    .map((line) => `${line}\n`)
    .join('');
}

/** `docs/reference/metrics.md`. */
export function renderMetricsReference(): string {
  const rows = Object.values(METRICS).map(
    ({ kind, name, labels, help, ...more }) =>
      `| \`${name}\` | ${'isOfFleet' in more ? `${kind}, of the fleet` : kind} | ${(labels as Labels).map((each) => `\`${renderLabel(each).replaceAll('|', '\\|')}\``).join(' ')} | ${help} |`,
  );
  return [
    '# Metrics',
    '',
    'For whoever watches Warren. Every service shows these at `/metrics`, beside those of Node.js and the process. Durations',
    'are in seconds. A label without a list takes names; the first 500 are told apart, the rest is `other`.',
    '',
    'What is marked *of the fleet* concerns the whole installation and is shown by one producer, of dead letters by one',
    'dead-letter-handler, at a time: a sum over processes counts it once',
    '([0032](../decisions/0032-one-process-shows-the-fleet.md)). In the moment in which another process takes over, Prometheus may',
    'remember both for the length of a scrape; `max by (queue) (…)` is right then, too.',
    '',
    '| metric | kind | labels | meaning |',
    '|---|---|---|---|',
    ...rows,
    '',
  ].join('\n');
}

function renderLabel({ name, values }: Label): string {
  return values === undefined ? name : `${name}=${values.join('|')}`;
}

interface Cell {
  readonly labels: Readonly<Record<string, string>>;
  value: number;
  read: (() => number) | undefined;
  /** Of a histogram: how often each bucket was hit, by itself, not added up; the last is beyond all bounds. */
  readonly hits: number[];
}

/** The series of one metric; prom-client's registry asks it by `get`. */
class Series {
  readonly name: string;
  readonly #declared: Declared<string, Labels>;
  readonly #cells = new Map<string, Cell>();
  readonly #names: readonly Set<string>[];
  readonly #isFleetShown: () => boolean;

  constructor(declared: Declared<string, Labels>, isFleetShown: () => boolean) {
    this.name = declared.name;
    this.#declared = declared;
    this.#isFleetShown = isFleetShown;
    this.#names = declared.labels.map(({ values }) => new Set(values));
    // From nothing to one is no increase to Prometheus. A gauge that nobody has set, though, would be a claim.
    if (declared.labels.length === 0 && declared.kind !== 'gauge') this.#cell([]);
  }

  add(count: number, ...values: readonly string[]): void {
    this.#cell(values).value += count;
  }

  set(value: number, ...values: readonly string[]): void {
    this.#cell(values).value = value;
  }

  readFrom(read: () => number, ...values: readonly string[]): void {
    this.#cell(values).read = read;
  }

  observe(seconds: number, ...values: readonly string[]): void {
    const cell = this.#cell(values);
    const { buckets = [] } = this.#declared;
    let index = 0;
    while (index < buckets.length && seconds > (buckets[index] as number)) index += 1;
    cell.hits[index] = (cell.hits[index] ?? 0) + 1;
    cell.value += seconds;
  }

  async get(): Promise<unknown> {
    const { name, help, kind, isOfFleet } = this.#declared;
    const cells = isOfFleet === true && !this.#isFleetShown() ? [] : [...this.#cells.values()];
    const values = cells.flatMap((cell) => {
      if (kind === 'histogram') return this.#distribution(cell);
      const value = cell.read?.() ?? cell.value;
      return Number.isNaN(value) ? [] : [{ labels: cell.labels, value }];
    });
    return await Promise.resolve({ name, help, type: kind, values, aggregator: 'sum' });
  }

  #distribution({ labels, hits, value }: Cell): unknown[] {
    const { name, buckets = [] } = this.#declared;
    let count = 0;
    const lines: unknown[] = [];
    for (const [index, bound] of [...buckets, '+Inf' as const].entries()) {
      count += hits[index] ?? 0;
      lines.push({ metricName: `${name}_bucket`, labels: { ...labels, le: String(bound) }, value: count });
    }
    return [
      ...lines,
      { metricName: `${name}_sum`, labels, value },
      { metricName: `${name}_count`, labels, value: count },
    ];
  }

  #cell(values: readonly string[]): Cell {
    const key = values.length === 1 ? (values[0] as string) : values.join('\0');
    return this.#cells.get(key) ?? this.#newCell(values);
  }

  /** Names beyond the bound share the cell of `other`, which is found again under its own key. */
  #newCell(values: readonly string[]): Cell {
    const { labels, buckets } = this.#declared;
    const bounded = labels.map((each, index) => this.#bound(each, index, values[index] ?? OTHER));
    const key = bounded.join('\0');
    const known = this.#cells.get(key);
    if (known !== undefined) return known;
    const cell: Cell = {
      labels: Object.fromEntries(labels.map(({ name }, index) => [name, bounded[index] as string])),
      value: 0,
      read: undefined,
      hits: buckets === undefined ? [] : Array.from({ length: buckets.length + 1 }, () => 0),
    };
    this.#cells.set(key, cell);
    return cell;
  }

  #bound({ values }: Label, index: number, value: string): string {
    const names = this.#names[index] as Set<string>;
    if (names.has(value)) return value;
    if (values !== undefined || names.size >= MOST_NAMES) return OTHER;
    names.add(value);
    return value;
  }
}
