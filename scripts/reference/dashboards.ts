/** The dashboards: what an operator wants to see of the fleet, a queue, dead letters and the processes. */
import { METRICS } from '../../shared/observability/metrics-declared.ts';
import { renderDashboard } from './grafana.ts';
import type { Dashboard, Panel, Query } from './grafana.ts';

type Key = keyof typeof METRICS;
/** Names of the metrics, so that one that is renamed or gone does not compile. */
const m = Object.fromEntries(Object.entries(METRICS).map(([key, { name }]) => [key, name])) as Record<Key, string>;

const query = (expr: string, legend = ''): Query => ({ expr, legend });
const stat = (title: string, about: string, expr: string, unit = 'short', badFrom?: number): Panel => ({
  title,
  about,
  kind: 'stat',
  unit,
  queries: [query(expr)],
  ...(badFrom === undefined ? {} : { badFrom }),
});
const graph = (title: string, about: string, unit: string, ...queries: readonly Query[]): Panel => ({
  title,
  about,
  kind: 'timeseries',
  unit,
  queries,
});
const table = (title: string, about: string, expr: string): Panel => ({
  title,
  about,
  kind: 'table',
  unit: 'short',
  queries: [query(expr)],
});
/** Per second, by labels. */
const perSecond = (metric: string, by: string, where = ''): Query =>
  query(`sum by (${by}) (rate(${metric}${where}[$__rate_interval]))`, by.replaceAll(/\w+/g, '{{$&}}'));
/** A quantile of a histogram, by labels. */
const quantile = (q: number, metric: string, by = '', where = ''): Query =>
  query(
    `histogram_quantile(${q}, sum by (le${by === '' ? '' : `, ${by}`}) (rate(${metric}_bucket${where}[$__rate_interval])))`,
    by === '' ? `p${q * 100}` : `p${q * 100} {{${by}}}`,
  );

const ofQueue = '{queue=~"$queue"}';
const ofType = '{task_type=~"$task_type"}';
const ofInstance = '{instance=~"$instance"}';
const failed = '{task_type=~"$task_type", outcome=~"failed|timeout"}';
const ended = '{task_type=~"$task_type", outcome=~"succeeded|failed|timeout"}';

const fleet: Dashboard = {
  name: 'fleet',
  title: 'Warren / Fleet',
  variables: [],
  panels: [
    stat('Workers', 'Processes that Prometheus reaches.', `count(${m.buildInfo}{service="worker"})`),
    stat('Tasks that wait', 'Invitations in all queues.', `sum(max by (queue) (${m.queueReady}))`),
    stat('Longest wait', 'Of the oldest task in any queue.', `max(${m.queueOldestSeconds})`, 's', 300),
    stat(
      'Slots in use',
      'Near 100 %: more workers would do more.',
      `sum(${m.inFlight}) / sum(${m.slots})`,
      'percentunit',
    ),
    stat('Dead letters', 'Open: neither replayed nor discarded.', `max(${m.deadLettersOpen})`, 'short', 1),
    stat('Ledger', 'Tasks whose row or count is wrong: 0, always.', `max(${m.ledgerDifference})`, 'short', 1),
    graph('Accepted', 'Tasks a second, by the door they came through.', 'ops', perSecond(m.tasksAccepted, 'door')),
    graph('Attempts', 'Attempts that ended, a second, by outcome.', 'ops', perSecond(m.attempts, 'outcome')),
    graph(
      'Waiting',
      'Invitations in RabbitMQ, by queue.',
      'short',
      query(`max by (queue) (${m.queueReady})`, '{{queue}}'),
    ),
    graph(
      'Wait until the start',
      'From being invited to the start; what is put off on purpose is not in it.',
      's',
      ...[0.5, 0.95, 0.99].map((q) => quantile(q, m.waitSeconds)),
    ),
    graph(
      'Running',
      'Attempts that run, and how many may.',
      'short',
      query(`sum(${m.inFlight})`, 'run'),
      query(`sum(${m.slots})`, 'may run'),
    ),
    graph('Workers by queue', 'Whose lease stands.', 'short', query(`max by (queue) (${m.workersAlive})`, '{{queue}}')),
    graph(
      'Outbox',
      'Invitations that RabbitMQ has not confirmed: near 0 but while it is away.',
      'short',
      query(`max(${m.outboxInvitations})`, 'invitations'),
    ),
    graph('Publishes', 'A second, by how RabbitMQ answered.', 'ops', perSecond(m.published, 'what, answer')),
    graph(
      'What all stands on',
      'Processes without RabbitMQ, without Postgres, and that RabbitMQ keeps from publishing: 0.',
      'short',
      query(`count(${m.brokerConnected} == 0) or vector(0)`, 'no RabbitMQ'),
      query(`count(${m.databaseAvailable} == 0) or vector(0)`, 'no Postgres'),
      query(`count(${m.brokerBlocked} == 1) or vector(0)`, 'blocked'),
    ),
    graph(
      'Workers lost',
      'Within five minutes: killed, cut off or blocked; and the attempts that they took along.',
      'short',
      query(`sum(increase(${m.workersLost}[5m]))`, 'workers'),
      query(`sum(increase(${m.reaped}[5m]))`, 'attempts'),
    ),
    graph('Flows that ended', 'A second, by state.', 'ops', perSecond(m.flowsEnded, 'state')),
    graph('Schedules', 'Instants a second, by what became of them.', 'ops', perSecond(m.occurrences, 'state, why')),
    table('Alerts', 'What fires or is about to.', 'ALERTS{alertname=~"Warren.+"}'),
  ],
};

const queue: Dashboard = {
  name: 'queue',
  title: 'Warren / Queue',
  variables: [
    { label: 'queue', metric: m.queueReady },
    { label: 'task_type', metric: m.attempts },
  ],
  panels: [
    graph(
      'Waiting',
      'Invitations in RabbitMQ, and tasks that wait for their turn in a fair queue.',
      'short',
      query(`max by (queue) (${m.queueReady}${ofQueue})`, '{{queue}}'),
      query(`max by (queue) (${m.queueTurns}${ofQueue})`, '{{queue}} turns'),
    ),
    graph(
      'Longest wait',
      'Of the oldest task; what waits on purpose is not counted.',
      's',
      query(`max by (queue) (${m.queueOldestSeconds}${ofQueue})`, '{{queue}}'),
    ),
    graph('Starts', 'Attempts that were started, a second.', 'ops', perSecond(m.attemptsStarted, 'queue', ofQueue)),
    graph(
      'Time for what waits',
      'At the pace of the last five minutes.',
      's',
      query(
        `max by (queue) (${m.queueReady}${ofQueue}) / (sum by (queue) (rate(${m.attemptsStarted}${ofQueue}[5m])) > 0)`,
        '{{queue}}',
      ),
    ),
    graph(
      'Running',
      'Attempts that run, how many may, and deliveries that wait in workers for a slot.',
      'short',
      query(`sum by (queue) (${m.inFlight}${ofQueue})`, '{{queue}} run'),
      query(`sum by (queue) (${m.slots}${ofQueue})`, '{{queue}} may run'),
      query(`sum by (queue) (${m.waitingDeliveries}${ofQueue})`, '{{queue}} wait for a slot'),
    ),
    graph(
      'Workers',
      'Whose lease stands, and those that RabbitMQ has as consumers: the same, but for moments.',
      'short',
      query(`max by (queue) (${m.workersAlive}${ofQueue})`, '{{queue}} alive'),
      query(`sum by (queue) (${m.consumerRegistered}${ofQueue})`, '{{queue}} consume'),
    ),
    graph('Wait until the start', 'By task type.', 's', quantile(0.95, m.waitSeconds, 'task_type', ofType)),
    graph('Run', 'How long attempts take, by task type.', 's', quantile(0.95, m.runSeconds, 'task_type', ofType)),
    graph(
      'Attempts',
      'That ended, a second, by task type and outcome.',
      'ops',
      perSecond(m.attempts, 'task_type, outcome', ofType),
    ),
    graph(
      'Failures',
      'Share of the attempts that fail, by task type.',
      'percentunit',
      query(
        `sum by (task_type) (rate(${m.attempts}${failed}[$__rate_interval]))
 / sum by (task_type) (rate(${m.attempts}${ended}[$__rate_interval]))`,
        '{{task_type}}',
      ),
    ),
    graph(
      'Claims',
      'Deliveries a second, by what the claim answered: lost ones are duplicates.',
      'ops',
      perSecond(m.claims, 'answer'),
    ),
    graph(
      'Let go',
      'Tasks a second that a limit, a pause or a turn had held back.',
      'ops',
      perSecond(m.released, 'reason'),
    ),
    graph(
      'Consumers that RabbitMQ took away',
      'Within fifteen minutes.',
      'short',
      query(`sum by (queue) (increase(${m.consumerCancels}${ofQueue}[15m]))`, '{{queue}}'),
    ),
    graph('Invited anew', 'Tasks a second, by why.', 'ops', perSecond(m.invitedAnew, 'why')),
  ],
};

const deadLetters: Dashboard = {
  name: 'dead-letters',
  title: 'Warren / Dead letters',
  variables: [{ label: 'task_type', metric: m.attempts }],
  panels: [
    stat('Open', 'Neither replayed nor discarded.', `max(${m.deadLettersOpen})`, 'short', 1),
    stat('Oldest', 'Since it died.', `max(${m.deadLettersOldestSeconds})`, 's', 259_200),
    stat('Died today', 'In 24 hours.', `sum(increase(${m.deadLetters}[24h]))`),
    stat('Replayed today', 'In 24 hours.', `sum(increase(${m.replayed}[24h]))`),
    stat('Discarded today', 'In 24 hours.', `sum(increase(${m.discarded}[24h]))`),
    stat('Alerts today', 'Found by the handler itself, in 24 hours.', `sum(increase(${m.alerts}[24h]))`),
    graph('Open', 'Over time.', 'short', query(`max(${m.deadLettersOpen})`, 'open')),
    graph('Recorded', 'A second, by reason.', 'ops', perSecond(m.deadLetters, 'reason')),
    graph(
      'Attempts that failed',
      'A second, by task type and outcome: what becomes dead letters once attempts are used up.',
      'ops',
      perSecond(m.attempts, 'task_type, outcome', failed),
    ),
    graph(
      'Replays',
      'That have not ended, by state.',
      'short',
      query(`max by (state) (${m.replaysOpen})`, '{{state}}'),
    ),
    graph('Replayed', 'A second, by what they were.', 'ops', perSecond(m.replayed, 'kind')),
    graph(
      'Submissions refused',
      'A second, by door and error code.',
      'ops',
      perSecond(m.submissionsRefused, 'door, code'),
    ),
    graph(
      'Settles',
      'A second; fenced ones came from workers that had lost their claim.',
      'ops',
      perSecond(m.settles, 'answer'),
    ),
    graph(
      'Alerts of the handler',
      'In an hour, by kind.',
      'short',
      query(`sum by (kind) (increase(${m.alerts}[1h]))`, '{{kind}}'),
    ),
    graph(
      'Callbacks',
      'Ends that somebody wanted to be told of, a second.',
      'ops',
      perSecond(m.callbacks, 'kind, answer'),
    ),
  ],
};

const runtime: Dashboard = {
  name: 'runtime',
  title: 'Warren / Runtime',
  variables: [{ label: 'instance', metric: m.buildInfo }],
  panels: [
    graph(
      'CPU',
      'Cores in use.',
      'short',
      query(`rate(process_cpu_seconds_total${ofInstance}[$__rate_interval])`, '{{instance}}'),
    ),
    graph('Memory', 'Resident.', 'bytes', query(`process_resident_memory_bytes${ofInstance}`, '{{instance}}')),
    graph(
      'Event loop: late timers',
      'By how much timers come late: as long as something kept all else waiting.',
      's',
      quantile(0.99, m.eventLoopLagSeconds, 'instance', ofInstance),
    ),
    graph(
      'Event loop: busy',
      'Share of one core. Near 100 %: the process can do no more.',
      'percentunit',
      query(`rate(${m.eventLoopBusySeconds}${ofInstance}[$__rate_interval])`, '{{instance}}'),
    ),
    graph('Heap', 'In use.', 'bytes', query(`nodejs_heap_size_used_bytes${ofInstance}`, '{{instance}}')),
    graph(
      'Garbage collection',
      'Seconds of a second.',
      'percentunit',
      query(`sum by (instance) (rate(nodejs_gc_duration_seconds_sum${ofInstance}[$__rate_interval]))`, '{{instance}}'),
    ),
    graph(
      'Leases',
      'Seconds since a worker renewed its own; lapses after 20.',
      's',
      query(`${m.leaseAgeSeconds}${ofInstance}`, '{{instance}}'),
    ),
    graph('Renewals', 'A second, by answer.', 'ops', perSecond(m.leaseRenewals, 'answer', ofInstance)),
    graph(
      'Connections to Postgres',
      'Of the pools, and callers that wait for one.',
      'short',
      query(`sum by (state) (${m.databaseConnections}${ofInstance})`, '{{state}}'),
    ),
    graph(
      'Restarts',
      'Within an hour.',
      'short',
      query(`changes(process_start_time_seconds${ofInstance}[1h])`, '{{instance}}'),
    ),
    graph('HTTP requests', 'A second, by route.', 'ops', perSecond(m.httpRequests, 'route', ofInstance)),
    graph('HTTP answers', 'How long they take, by route.', 's', quantile(0.95, m.httpSeconds, 'route', ofInstance)),
    graph(
      'Background roles that fail',
      'Rounds a second, by role.',
      'ops',
      perSecond(m.roundFailures, 'loop', ofInstance),
    ),
    graph(
      'Handlers that ignore their abort',
      'They hold memory until they end.',
      'short',
      query(`${m.abandonedHandlers}${ofInstance}`, '{{instance}}'),
    ),
    graph('Circuit breakers', '1: open.', 'short', query(`max by (breaker) (${m.breakerOpen})`, '{{breaker}}')),
    graph('Retention', 'How far it is behind.', 's', query(`max(${m.retentionBehindSeconds})`, 'behind')),
    table('Processes', 'What runs where.', `${m.buildInfo}${ofInstance}`),
  ],
};

/** All of them, by the path of their file. */
export function renderDashboards(): ReadonlyMap<string, string> {
  return new Map(
    [fleet, queue, deadLetters, runtime].map((dashboard) => [
      `deploy/grafana/dashboards/${dashboard.name}.json`,
      renderDashboard(dashboard),
    ]),
  );
}
