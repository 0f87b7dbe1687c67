/** What metrics there are: names, help, labels with their closed sets of values. `metrics.ts` counts them. */

/** A label; without `values` it takes names from outside, of which the first 500 are told apart and the rest is `other`. */
export interface Label<V extends string = string> {
  readonly name: string;
  readonly values?: readonly V[];
}

/** The labels of a metric. */
export type Labels = readonly Label[];
/** Values for the labels of a metric, in their order. */
export type ValuesOf<L extends Labels> = { readonly [K in keyof L]: L[K] extends Label<infer V> ? V : never };

/** What a metric is, before it counts anything. */
export interface Declared<K extends string, L extends Labels> {
  readonly kind: K;
  readonly name: string;
  readonly help: string;
  readonly labels: L;
  /** Upper bounds of a histogram, in seconds. */
  readonly buckets?: readonly number[];
  /** Concerns the whole installation: shown by one process of a service at a time. */
  readonly isOfFleet?: true;
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
const fleetGauge = <const L extends Labels>(
  name: string,
  help: string,
  labels: L,
): Declared<'gauge', L> & { readonly isOfFleet: true } => ({ kind: 'gauge', name, help, labels, isOfFleet: true });
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
/** Of dead letters. A foreign letter names its reason itself: what is not among these is `other`. */
const reason: Label = {
  name: 'reason',
  values: [
    'attempts_exhausted',
    'timeout',
    'non_retryable',
    'invalid_input',
    'result_unstorable',
    'deadline_passed',
    'worker_lost',
    'unknown_type',
    'id_conflict',
    'unique_conflict',
    'invalid_message',
    'rejected',
    'expired',
    'maxlen',
    'delivery_limit',
    'unroutable',
    'unstorable',
    'unknown',
    'other',
  ],
};
const flow: Label = { name: 'flow' };
const FLOW_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800];
const LAG_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const HTTP_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** The metrics. */
export const METRICS = {
  buildInfo: gauge('warren_build_info', 'Always 1; the labels say which program runs.', [
    { name: 'service' },
    { name: 'version' },
    { name: 'node' },
  ]),
  // The way in.
  tasksAccepted: counter(
    'warren_tasks_accepted_total',
    'Tasks accepted, by the door they came through; not those that programs insert in transactions of their own.',
    [taskType, label('door', ['http', 'amqp', 'flow', 'schedule'])],
  ),
  submissionsRefused: counter('warren_submissions_refused_total', 'Submissions refused, by error code.', [
    label('door', ['http', 'amqp']),
    { name: 'code' },
  ]),
  submissionsRepeated: counter(
    'warren_submissions_repeated_total',
    'Submissions answered with a task that was there before, by what told that.',
    [label('door', ['http', 'amqp']), label('by', ['message id', 'idempotency key', 'unique key', 'business key'])],
  ),
  occurrences: counter('warren_schedule_occurrences_total', 'Instants of schedules, by what became of them and why.', [
    label('state', ['started', 'waiting', 'skipped']),
    label('why', ['none', 'overlap', 'full', 'replaced', 'missed', 'paused', 'refused', 'unique']),
  ]),
  occurrenceDelay: histogram(
    'warren_schedule_delay_seconds',
    'From an instant of a schedule to the start of what is for it, jitter included; without what waited or was caught up.',
    [],
    [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3_600],
  ),
  // Invitations and publishes.
  published: counter('warren_published_total', 'Publishes, by what they were and how RabbitMQ answered.', [
    label('what', ['invitation', 'event', 'reply', 'replay', 'alert']),
    label('answer', ['confirmed', 'refused', 'unroutable', 'late', 'lost']),
  ]),
  followers: gauge(
    'warren_followers',
    'Requests that follow a task: event streams, and those that wait for its end.',
    [],
  ),
  callbacks: counter(
    'warren_callbacks_total',
    'Ends of tasks that somebody wanted to be told of, by what became of that.',
    [label('kind', ['webhook', 'reply']), label('answer', ['told', 'not_wanted', 'unroutable', 'refused', 'later'])],
  ),
  outboxRows: fleetGauge('warren_outbox_rows', 'Rows of invitations that RabbitMQ has not confirmed.', []),
  outboxInvitations: fleetGauge('warren_outbox_invitations', 'Invitations that RabbitMQ has not confirmed.', []),
  outboxMaxInvitations: fleetGauge(
    'warren_outbox_max_invitations',
    'Invitations in the outbox from which on submissions are refused.',
    [],
  ),
  queueReady: fleetGauge('warren_queue_ready_messages', 'Invitations that wait in RabbitMQ, by queue.', [queue]),
  queueTurns: fleetGauge(
    'warren_queue_turns_waiting',
    'Tasks that wait for their turn in a fair queue, beside its invitations, counted up to 100000.',
    [queue],
  ),
  queueOldestSeconds: fleetGauge(
    'warren_queue_oldest_seconds',
    'Seconds since the invitation of the task that waits longest, by queue; what waits on purpose is not counted. 0 where none waits, missing where that is not known.',
    [queue],
  ),
  workersAlive: fleetGauge('warren_workers_alive', 'Workers whose lease stands, by queue that they consume.', [queue]),
  // Runs.
  attemptsStarted: counter('warren_attempts_started_total', 'Attempts that were started, by queue.', [queue]),
  attempts: counter(
    'warren_attempts_total',
    'Attempts that ended, by outcome; those that were lost with their worker are counted by the producer that found it.',
    [taskType, label('outcome', ['succeeded', 'failed', 'timeout', 'deferred', 'interrupted', 'cancelled', 'lost'])],
  ),
  claims: counter('warren_claims_total', 'Deliveries that asked for their task, by answer.', [
    label('answer', ['won', 'lost', 'not_now', 'unknown_type']),
  ]),
  released: counter('warren_released_total', 'Tasks that were held back and are invited now, by what held them back.', [
    label('reason', ['concurrency', 'rate', 'paused', 'draining', 'turn']),
  ]),
  settles: counter('warren_settles_total', 'Settles, by answer; fenced: the claim was no longer ours.', [
    label('answer', ['settled', 'fenced']),
  ]),
  waitSeconds: histogram(
    'warren_wait_seconds',
    'Seconds from being invited to the start of an attempt; what a task is put off on purpose is not in it.',
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
  consumerCancels: counter(
    'warren_consumer_cancels_total',
    'Consumers that RabbitMQ cancelled, by queue: it was deleted or moved, or a delivery was left unanswered for too long.',
    [queue],
  ),
  abandonedHandlers: gauge('warren_abandoned_handlers', 'Handlers that still run after their abort.', []),
  lateCompletions: counter('warren_late_completions_total', 'Handlers that ended after they had been given up.', [
    taskType,
  ]),
  attemptLogsDropped: counter(
    'warren_attempt_logs_dropped_total',
    'Attempts whose log lines were dropped because too many waited for Postgres.',
    [],
  ),
  leaseRenewals: counter('warren_lease_renewals_total', 'Renewals of the lease, by answer.', [
    label('answer', ['renewed', 'lost', 'failed']),
  ]),
  leaseAgeSeconds: gauge(
    'warren_lease_age_seconds',
    'Seconds since this worker renewed its lease, or since its start where it never did.',
    [],
  ),
  breakerLateCompletions: counter(
    'warren_breaker_late_completions_total',
    'Calls behind a circuit breaker that succeeded after their timeout had been answered: their effect happened all the same.',
    [{ name: 'breaker' }],
  ),
  breakerOpen: gauge('warren_breaker_open', '1 while the circuit breaker is open.', [{ name: 'breaker' }]),
  // Flows.
  flowsStarted: counter('warren_flows_started_total', 'Flows started, by name.', [flow]),
  flowsEnded: counter('warren_flows_ended_total', 'Flows that ended, by name and state, half a minute later at most.', [
    flow,
    label('state', ['succeeded', 'failed', 'partial', 'cancelled']),
  ]),
  flowSeconds: histogram(
    'warren_flow_seconds',
    'Seconds from the start of a flow to its end, the waits for signals and retries included.',
    [flow],
    FLOW_SECONDS,
  ),
  flowsOpen: fleetGauge('warren_flows_open', 'Flows that have not ended, by state, each counted up to 100000.', [
    label('state', ['pending', 'running']),
  ]),
  // Roles beside the hot path.
  duePending: counter('warren_due_total', 'Tasks whose time came, by what became of them.', [
    label('became', ['pending', 'expired']),
  ]),
  cancels: counter('warren_cancels_total', 'Cancels of tasks, by what they did.', [
    label('became', ['cancelled', 'requested']),
  ]),
  edits: counter('warren_edits_total', 'Tasks edited while they waited.', []),
  invitedAnew: counter(
    'warren_invited_anew_total',
    'Tasks invited once more, by why: their queue ran empty without them, they waited long, or RabbitMQ gave their invitation up.',
    [label('why', ['queue_empty', 'waited', 'dead_lettered'])],
  ),
  workersLost: counter('warren_workers_lost_total', 'Workers whose lease lapsed: killed, cut off or blocked.', []),
  reaped: counter('warren_reaped_attempts_total', 'Attempts taken from workers whose lease lapsed.', []),
  ledgerDifference: fleetGauge(
    'warren_ledger_difference',
    'Of how many tasks, at the least, row or count is wrong, by the last comparisons.',
    [],
  ),
  strandedRows: counter(
    'warren_stranded_rows_total',
    'Tasks that the audit gave a row which they had lost, by which it was.',
    [label('kind', ['due', 'invitation', 'claim', 'dead_letter'])],
  ),
  // Retention.
  retired: counter('warren_retired_tasks_total', 'Tasks whose time was over, by how they went.', [
    label('how', ['partition', 'row']),
  ]),
  retiredPartitions: counter('warren_retired_partitions_total', 'Partitions of tasks that were dropped.', []),
  retentionSwept: counter('warren_retention_swept_total', 'Rows beside the tasks that went by their age.', [
    label('table', ['dead_letters', 'replays', 'flows', 'occurrences', 'failure_group_hours']),
  ]),
  retentionPostponed: counter('warren_retention_postponed_total', 'Steps of retention put off for want of a lock.', []),
  retentionBehindSeconds: fleetGauge(
    'warren_retention_behind_seconds',
    'Seconds since the first partition of tasks that is still here could have been retired; 0 where none could.',
    [],
  ),
  tasksOldestSeconds: fleetGauge('warren_tasks_oldest_seconds', 'Seconds since the oldest task was accepted.', []),
  taskPartitions: fleetGauge('warren_task_partitions', 'Partitions of tasks, the default one among them.', []),
  roundFailures: counter('warren_round_failures_total', 'Rounds of a background role that failed.', [{ name: 'loop' }]),
  // Dead letters.
  deadLetters: counter('warren_dead_letters_total', 'Dead letters recorded, by reason.', [reason]),
  deadLettersOpen: fleetGauge('warren_dead_letters_open', 'Dead letters that are neither replayed nor discarded.', []),
  deadLettersOldestSeconds: fleetGauge(
    'warren_dead_letters_oldest_seconds',
    'Seconds since the oldest open dead letter died; 0 without any.',
    [],
  ),
  replaysOpen: fleetGauge(
    'warren_replays_open',
    'Replays that have not ended, by state; stopped: the same failure came back, and somebody has to decide.',
    [label('state', ['waiting', 'running', 'paused', 'stopped'])],
  ),
  replayed: counter('warren_replayed_total', 'Dead letters replayed, by what they were.', [
    label('kind', ['task', 'refused', 'foreign']),
  ]),
  discarded: counter('warren_discarded_total', 'Dead letters discarded.', []),
  alerts: counter('warren_alerts_total', 'Alerts found, whether or not there is a channel to send them to.', [
    label('kind', ['new_group', 'growing_group', 'oldest_letter']),
  ]),
  // Files.
  filesSaved: counter('warren_files_saved_total', 'Files stored, by what they are.', [
    label('kind', ['saved', 'result', 'input']),
  ]),
  fileBytesSaved: counter('warren_file_bytes_saved_total', 'Bytes of files stored.', []),
  fileFailures: counter('warren_file_failures_total', 'Calls of the store of files that failed.', [
    label('call', ['put', 'get']),
  ]),
  filesDeleted: counter(
    'warren_files_deleted_total',
    'Files deleted, by why; stray: nothing in the database named it.',
    [label('why', ['expired', 'unused', 'stray'])],
  ),
  // What we stand on.
  brokerConnected: gauge('warren_broker_connected', '1 while this connection to RabbitMQ is up.', [
    label('connection', ['publish', 'consume']),
  ]),
  brokerBlocked: gauge('warren_broker_blocked', '1 while RabbitMQ blocks publishers by an alarm.', []),
  databaseAvailable: gauge('warren_database_available', '1 while Postgres answers.', []),
  databaseConnections: gauge('warren_database_connections', 'Connections of the pool, and callers that wait for one.', [
    label('state', ['total', 'idle', 'waiting']),
  ]),
  eventLoopLagSeconds: histogram(
    'warren_event_loop_lag_seconds',
    'By how many seconds a timer was late, tried twice a second: as long as something kept the event loop to itself.',
    [],
    LAG_SECONDS,
  ),
  eventLoopBusySeconds: counter(
    'warren_event_loop_busy_seconds_total',
    'Seconds in which the event loop did something; its rate is a share of one core.',
    [],
  ),
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
