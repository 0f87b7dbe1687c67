/** A producer's HTTP front door over a real database, without broker: what is committed is invited by nobody. */
import { isOwnQueue, namesOf } from '../../shared/amqp/topology.ts';
import type { SubmissionLimits } from '../../shared/tasks/check-submission.ts';
import { partDeps } from './core.ts';
import { openInputs } from './inputs.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { SCHEMA } from '../../shared/config/schema.ts';
import type { Config } from '../../shared/config/schema.ts';
import type { Token } from '../../shared/config/format.ts';
import { HttpServer } from '../../shared/http/server.ts';
import { webhookRuleOf } from '../../shared/http/webhook-url.ts';
import type { DatabaseOptions } from '../../shared/postgres/pool.ts';
import { announceTypes } from '../../shared/tasks/announce.ts';
import type { TaskTypeDescription } from '../../shared/tasks/define-task.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { Estimates } from '../../services/producer/estimates.ts';
import { Follower } from '../../services/producer/follower.ts';
import { registerFollowRoutes } from '../../services/producer/http/follow.routes.ts';
import type { FollowRoutesDeps } from '../../services/producer/http/follow.routes.ts';
import { registerFlowRoutes } from '../../services/producer/http/flows.routes.ts';
import { registerLedgerRoutes } from '../../services/producer/http/ledger.routes.ts';
import { registerHistoryRoutes } from '../../services/producer/http/history.routes.ts';
import { FlowStarter } from '../../services/producer/flow-starter.ts';
import { registerScheduleRoutes } from '../../services/producer/http/schedules.routes.ts';
import { registerRetentionRoutes } from '../../services/producer/http/retention.routes.ts';
import { registerScalingRoutes } from '../../services/producer/http/scaling.routes.ts';
import { registerQueueRoutes } from '../../services/producer/http/queues.routes.ts';
import { TaskFinder } from '../../services/producer/task-finder.ts';
import { registerTaskRoutes } from '../../services/producer/http/tasks.routes.ts';
import { readRules } from '../../services/producer/retention-rules.ts';
import { Scaling } from '../../services/producer/scaling.ts';
import { Submitter } from '../../services/producer/submit.ts';
import { openDatabase } from './database.ts';
import type { TestDatabase } from './database.ts';

/** An answer with its body as text and as JSON. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

/** A front door that listens. */
export interface TestTaskApi extends AsyncDisposable {
  readonly url: string;
  readonly db: TestDatabase;
  readonly catalog: TypeCatalog;
  readonly metrics: Metrics;
  readonly follower: Follower;
  /** Stops the HTTP server, as a service that ends does. */
  stopHttp(): Promise<void>;
  /** Says whether the outbox is full from now on. */
  setOutboxFull(isFull: boolean): void;
  /** What edits would have published. */
  readonly invited: OutboxRow[];
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  post(path: string, body: string | Buffer | undefined, headers?: Record<string, string>): Promise<Answer>;
  patch(path: string, body: string, headers?: Record<string, string>): Promise<Answer>;
}

/** The limits of the configuration's defaults. */
export const DEFAULT_LIMITS: SubmissionLimits = {
  messageBytes: 262_144,
  depth: 64,
  headerBytes: 16_384,
  requireMessageId: false,
  webhookFault: webhookRuleOf(['127.0.0.1:1']),
  isOwnQueue: (name) => isOwnQueue(name, namesOf('warren')),
};

/** What is kept how long where nothing is configured. */
export const DEFAULT_RETENTION = Object.fromEntries(
  Object.entries(SCHEMA.retention).map(([name, setting]) => [name, setting.default]),
) as unknown as Config['retention'];

/** How queues are scaled where nothing is configured. */
export const DEFAULT_SCALING = Object.fromEntries(
  Object.entries(SCHEMA.scaling).map(([name, setting]) => [name, setting.default]),
) as unknown as Config['scaling'];

/** Statements planned as services have them planned. */
export const SERVICE_PLANS = { enable_seqscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off', jit: 'off' };

/** A description of a task type, as a worker announces it. */
export function aType(name: string, changes: Partial<TaskTypeDescription> = {}): TaskTypeDescription {
  return {
    name,
    queue: 'default',
    priority: 4,
    timeoutMs: 60_000,
    isolation: 'loop',
    keepLogs: false,
    retry: { maxAttempts: 5, firstDelayMs: 1_000, maxDelayMs: 60_000 },
    inputSchema: undefined,
    ...changes,
  };
}

/** Opens one. */
export async function openTaskApi(
  types: readonly TaskTypeDescription[],
  options: {
    readonly tokens?: readonly Token[];
    readonly log?: Logger;
    readonly database?: Partial<DatabaseOptions>;
    readonly maxFollowers?: number;
    readonly streams?: FollowRoutesDeps['streams'];
    /** What RabbitMQ would say that waits in a queue; 7 otherwise. */
    readonly readyOf?: (queue: string) => number | undefined;
  } = {},
): Promise<TestTaskApi> {
  const log = options.log ?? silentLogger;
  const db = await openDatabase({ settings: SERVICE_PLANS, ...options.database });
  await announceTypes(db.database, types, 'test');
  const catalog = new TypeCatalog({ db: db.database, clock: systemClock, log, random: () => 0.5 });
  await catalog.start();
  let isFull = false;
  const invited: OutboxRow[] = [];
  const submitter = new Submitter(
    {
      db: db.database,
      log,
      invite: async () => await Promise.resolve(true),
      isOutboxFull: () => isFull,
      holdReasonOf: (queue) => catalog.holdReasonOf(queue),
      metrics: partDeps.metrics,
    },
    { maxBatch: 500 },
  );
  const estimates = new Estimates(
    {
      db: db.database,
      clock: systemClock,
      log,
      random: () => 0.5,
      startsInOrder: (queue) => catalog.startsInOrder(queue),
    },
    { intervalMs: 100 },
  );
  await estimates.start();
  const follower = new Follower(
    { db: db.database, clock: systemClock, log, random: () => 0.5 },
    { maxWatchers: options.maxFollowers ?? 500 },
  );
  await follower.start();
  const metrics = createMetrics({ service: 'producer', version: '', withProcess: false });
  const server = new HttpServer(
    {
      clock: systemClock,
      log,
      checks: [],
      metrics,
      addRoutes: (app) => {
        registerTaskRoutes(app, {
          db: db.database,
          log,
          catalog,
          estimates,
          follower,
          maxWaitSeconds: 5,
          metrics,
          limits: DEFAULT_LIMITS,
          batchBytes: DEFAULT_LIMITS.messageBytes * 32,
          inputs: openInputs(db.database),
          finder: new TaskFinder(db.database),
          storeInput: async (submission) => await Promise.resolve(submission),
          submit: async (submission) => await submitter.submit(submission),
          invite: async (row) => await Promise.resolve(invited.push(row) > 0),
          isOutboxFull: () => isFull,
        });
        const flows = {
          db: db.database,
          log,
          catalog,
          metrics,
          invite: async (row: OutboxRow) => await Promise.resolve(invited.push(row) > 0),
          holdReasonOf: (queue: string) => catalog.holdReasonOf(queue),
        };
        const starter = new FlowStarter(flows);
        const flowBytes = DEFAULT_LIMITS.messageBytes * 32;
        registerFlowRoutes(app, { ...flows, starter, isOutboxFull: () => isFull, limits: DEFAULT_LIMITS, flowBytes });
        registerScheduleRoutes(app, {
          ...flows,
          starter,
          clock: systemClock,
          limits: { task: DEFAULT_LIMITS, flowBytes },
        });
        const readyOf = options.readyOf ?? ((): number => 7);
        registerQueueRoutes(app, { db: db.database, log, catalog, readyOf });
        const scaling = new Scaling(
          {
            db: db.database,
            clock: systemClock,
            types: () => catalog.types(),
            runsOf: (type) => estimates.runsOf(type),
            readyOf: async (queue) => await Promise.resolve(readyOf(queue)),
          },
          DEFAULT_SCALING,
        );
        registerScalingRoutes(app, scaling, DEFAULT_SCALING);
        registerHistoryRoutes(app, { db: db.database, log, depth: DEFAULT_LIMITS.depth });
        registerFollowRoutes(app, {
          clock: systemClock,
          follower,
          estimates,
          ...(options.streams === undefined ? {} : { streams: options.streams }),
        });
        registerLedgerRoutes(app, { db: db.database, clock: systemClock, lapseMs: 20_000 });
        registerRetentionRoutes(app, { db: db.database, clock: systemClock, rules: readRules(DEFAULT_RETENTION) });
      },
    },
    {
      host: '127.0.0.1',
      port: 0,
      tokens: options.tokens ?? [],
      bodyBytes: DEFAULT_LIMITS.messageBytes,
      title: 'Warren Task API',
      version: '1',
    },
  );
  await server.start();
  const url = server.url ?? '';
  const ask = async (path: string, init: RequestInit): Promise<Answer> => {
    const response = await fetch(url + path, init);
    const text = await response.text();
    const isJson = (response.headers.get('content-type') ?? '').includes('json');
    const json = isJson ? (JSON.parse(text) as Record<string, unknown>) : {};
    return { status: response.status, headers: response.headers, text, json };
  };
  return {
    url,
    db,
    catalog,
    metrics,
    invited,
    follower,
    stopHttp: async () => await server.stop(systemClock.monotonicMs() + 10_000),
    setOutboxFull: (next) => {
      isFull = next;
    },
    get: async (path, headers = {}) => await ask(path, { headers }),
    post: async (path, body, headers = {}) =>
      await ask(path, {
        method: 'POST',
        headers: body === undefined ? headers : { 'content-type': 'application/json', ...headers },
        ...(body === undefined ? {} : { body }),
      }),
    patch: async (path, body, headers = {}) =>
      await ask(path, { method: 'PATCH', headers: { 'content-type': 'application/json', ...headers }, body }),
    async [Symbol.asyncDispose]() {
      await server.stop(systemClock.monotonicMs() + 2_000);
      await follower.stop(systemClock.monotonicMs() + 2_000);
      await estimates.stop(systemClock.monotonicMs() + 2_000);
      await catalog.stop(0);
      await db[Symbol.asyncDispose]();
    },
  };
}
