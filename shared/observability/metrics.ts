/**
 * Every metric of Warren, with its labels and their closed sets of values. The only file that knows prom-client, which
 * keeps the registry and the process's own metrics; counting is ours, a map look-up, since it stands on the hot path.
 */
import prom from 'prom-client';

/** A label; without `values` it takes names from outside, of which the first 500 are told apart and the rest is `other`. */
export interface Label<V extends string = string> {
  readonly name: string;
  readonly values?: readonly V[];
}

type Labels = readonly Label[];
type ValuesOf<L extends Labels> = { readonly [K in keyof L]: L[K] extends Label<infer V> ? V : never };

/** What a metric is, before it counts anything. */
export interface Declared<K extends string, L extends Labels> {
  readonly kind: K;
  readonly name: string;
  readonly help: string;
  readonly labels: L;
  /** Upper bounds of a histogram, in seconds. */
  readonly buckets?: readonly number[];
}

const label = <const V extends string>(name: string, values: readonly V[]): Label<V> => ({ name, values });
const counter = <const L extends Labels>(name: string, help: string, labels: L): Declared<'counter', L> => ({
  kind: 'counter',
  name,
  help,
  labels,
});
const gauge = <const L extends Labels>(name: string, help: string, labels: L): Declared<'gauge', L> => ({
  kind: 'gauge',
  name,
  help,
  labels,
});
const histogram = <const L extends Labels>(
  name: string,
  help: string,
  labels: L,
  buckets: readonly number[],
): Declared<'histogram', L> => ({ kind: 'histogram', name, help, labels, buckets });

const taskType: Label = { name: 'task_type' };
const queue: Label = { name: 'queue' };
const WAIT_SECONDS = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30, 300, 3_600];
const RUN_SECONDS = [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600];
const HTTP_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** The metrics. */
export const METRICS = {
  buildInfo: gauge('warren_build_info', 'Always 1; the labels say which program runs.', [
    { name: 'service' },
    { name: 'version' },
    { name: 'node' },
  ]),
  // The way in.
  tasksAccepted: counter('warren_tasks_accepted_total', 'Tasks accepted, by the door they came through.', [
    taskType,
    label('door', ['http', 'amqp', 'flow', 'schedule', 'client']),
  ]),
  submissionsRefused: counter('warren_submissions_refused_total', 'Submissions refused, by error code.', [
    label('door', ['http', 'amqp']),
    { name: 'code' },
  ]),
  // Invitations and publishes.
  invitations: counter('warren_invitations_total', 'Invitations written to the outbox, by the role that wrote them.', [
    label('by', ['submit', 'dispatcher', 'worker', 'reaper', 'reconciler', 'aging', 'replay', 'edit']),
  ]),
  published: counter('warren_published_total', 'Publishes, by what they were and how RabbitMQ answered.', [
    label('what', ['invitation', 'event', 'reply', 'replay']),
    label('answer', ['confirmed', 'refused', 'unroutable', 'late', 'lost']),
  ]),
  outboxRows: gauge('warren_outbox_rows', 'Rows of invitations that RabbitMQ has not confirmed.', []),
  outboxInvitations: gauge('warren_outbox_invitations', 'Invitations that RabbitMQ has not confirmed.', []),
  queueReady: gauge(
    'warren_queue_ready_messages',
    'Invitations that wait in RabbitMQ, by queue; each producer shows the same.',
    [queue],
  ),
  // Runs.
  attempts: counter('warren_attempts_total', 'Attempts that ended, by outcome.', [
    taskType,
    label('outcome', ['succeeded', 'failed', 'timeout', 'deferred', 'interrupted', 'cancelled', 'lost']),
  ]),
  claims: counter('warren_claims_total', 'Deliveries that asked for their task, by answer.', [
    label('answer', ['won', 'lost', 'not_now', 'unknown_type']),
  ]),
  settles: counter('warren_settles_total', 'Settles, by answer; fenced: the claim was no longer ours.', [
    label('answer', ['settled', 'fenced', 'unstorable']),
  ]),
  waitSeconds: histogram(
    'warren_wait_seconds',
    'Seconds from being invited to the start of an attempt.',
    [taskType],
    WAIT_SECONDS,
  ),
  runSeconds: histogram('warren_run_seconds', 'Seconds that an attempt ran.', [taskType], RUN_SECONDS),
  inFlight: gauge('warren_in_flight_attempts', 'Attempts that run now, by queue.', [queue]),
  slots: gauge('warren_slots', 'Attempts that may run at once, by queue.', [queue]),
  waitingDeliveries: gauge('warren_waiting_deliveries', 'Deliveries in this worker that wait for a slot, by queue.', [
    queue,
  ]),
  consumerRegistered: gauge(
    'warren_consumer_registered',
    '1 while RabbitMQ has confirmed our consumer of this queue.',
    [queue],
  ),
  abandonedHandlers: gauge('warren_abandoned_handlers', 'Handlers that still run after their abort.', []),
  lateCompletions: counter('warren_late_completions_total', 'Handlers that ended after they had been given up.', [
    taskType,
  ]),
  leaseRenewals: counter('warren_lease_renewals_total', 'Renewals of the lease, by answer.', [
    label('answer', ['renewed', 'lost', 'failed']),
  ]),
  breakerLateCompletions: counter(
    'warren_breaker_late_completions_total',
    'Calls behind a circuit breaker that succeeded after their timeout had been answered: their effect happened all the same.',
    [{ name: 'breaker' }],
  ),
  breakerOpen: gauge('warren_breaker_open', '1 while the circuit breaker is open.', [{ name: 'breaker' }]),
  // Roles beside the hot path.
  duePending: counter('warren_due_total', 'Tasks whose time came, by what became of them.', [
    label('became', ['pending', 'expired']),
  ]),
  invitedAnew: counter(
    'warren_invited_anew_total',
    'Tasks invited once more, by why: their queue ran empty without them, or they waited long.',
    [label('why', ['queue_empty', 'waited'])],
  ),
  reaped: counter('warren_reaped_attempts_total', 'Attempts taken from workers whose lease lapsed.', []),
  ledgerDifference: gauge(
    'warren_ledger_difference',
    'Of how many tasks, at the least, row or count is wrong, by the last comparisons; each producer shows the same.',
    [],
  ),
  strandedRows: counter(
    'warren_stranded_rows_total',
    'Tasks that the audit gave a row which they had lost, by which it was.',
    [label('kind', ['due', 'claim', 'dead_letter'])],
  ),
  roundFailures: counter('warren_round_failures_total', 'Rounds of a background role that failed.', [{ name: 'loop' }]),
  // Dead letters.
  deadLetters: counter('warren_dead_letters_total', 'Dead letters recorded, by reason.', [{ name: 'reason' }]),
  deadLettersOpen: gauge('warren_dead_letters_open', 'Dead letters that are neither replayed nor discarded.', []),
  deadLettersOldestSeconds: gauge(
    'warren_dead_letters_oldest_seconds',
    'Seconds since the oldest open dead letter died; 0 without any.',
    [],
  ),
  replayed: counter('warren_replayed_total', 'Dead letters replayed, by what they were.', [
    label('kind', ['task', 'refused', 'foreign']),
  ]),
  discarded: counter('warren_discarded_total', 'Dead letters discarded.', []),
  // What we stand on.
  brokerConnected: gauge('warren_broker_connected', '1 while this connection to RabbitMQ is up.', [
    label('connection', ['publish', 'consume']),
  ]),
  brokerBlocked: gauge('warren_broker_blocked', '1 while RabbitMQ blocks publishers by an alarm.', []),
  databaseAvailable: gauge('warren_database_available', '1 while Postgres answers.', []),
  databaseConnections: gauge('warren_database_connections', 'Connections of the pool, and callers that wait for one.', [
    label('state', ['total', 'idle', 'waiting']),
  ]),
  httpRequests: counter('warren_http_requests_total', 'HTTP requests answered, by route and status.', [
    { name: 'route' },
    { name: 'status' },
  ]),
  httpSeconds: histogram(
    'warren_http_request_seconds',
    'Seconds from the request to the end of its answer.',
    [{ name: 'route' }],
    HTTP_SECONDS,
  ),
} as const;

const MOST_NAMES = 500;
const OTHER = 'other';

/** A count that only rises. */
export interface Counter<L extends Labels> {
  /** Adds `count`, 0 or more, to the series of these label values. */
  add(count: number, ...values: ValuesOf<L>): void;
}

/** A value that comes and goes. */
export interface Gauge<L extends Labels> {
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
};

/** Makes the metrics of a process. `withProcess` adds memory, CPU, garbage collection and the lag of the event loop. */
export function createMetrics(options: {
  readonly service: string;
  readonly version: string;
  readonly withProcess: boolean;
}): Metrics {
  const registry = new prom.Registry();
  const made: Record<string, Series> = {};
  for (const [key, declared] of Object.entries(METRICS)) {
    const series = new Series(declared);
    made[key] = series;
    registry.registerMetric(series as unknown as prom.Metric);
  }
  if (options.withProcess) prom.collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 20 });
  const metrics = {
    ...made,
    contentType: registry.contentType,
    render: async () => await registry.metrics(),
  } as unknown as Metrics;
  metrics.buildInfo.set(1, options.service, options.version, process.version);
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
    ({ kind, name, labels, help }) =>
      `| \`${name}\` | ${kind} | ${(labels as Labels).map((each) => `\`${renderLabel(each).replaceAll('|', '\\|')}\``).join(' ')} | ${help} |`,
  );
  return [
    '# Metrics',
    '',
    'For whoever watches Warren. Every service shows these at `/metrics`, beside those of Node.js and the process. Durations',
    'are in seconds. A label without a list takes names; the first 500 are told apart, the rest is `other`.',
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

  constructor(declared: Declared<string, Labels>) {
    this.name = declared.name;
    this.#declared = declared;
    this.#names = declared.labels.map(({ values }) => new Set(values));
    // A metric without labels shows 0 from the start, so that an alert on it can be told from a missing process.
    if (declared.labels.length === 0) this.#cell([]);
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
    const { name, help, kind } = this.#declared;
    const cells = [...this.#cells.values()];
    const values = cells.flatMap((cell) =>
      kind === 'histogram' ? this.#distribution(cell) : [{ labels: cell.labels, value: cell.read?.() ?? cell.value }],
    );
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
