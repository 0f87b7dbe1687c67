/** The APIs as their own schemas describe them, without a server, a broker or a database. */
import { addAuditRoutes } from '../../services/dead-letter-handler/http/audit.routes.ts';
import { addDeadLetterRoutes } from '../../services/dead-letter-handler/http/dead-letters.routes.ts';
import { addFailureGroupRoutes } from '../../services/dead-letter-handler/http/failure-groups.routes.ts';
import { addDiscardRoutes } from '../../services/dead-letter-handler/http/discards.routes.ts';
import type { DryRunDeps } from '../../services/dead-letter-handler/dry-run.ts';
import { addReplayRoutes } from '../../services/dead-letter-handler/http/replays.routes.ts';
import { registerFileRoutes } from '../../services/producer/http/files.routes.ts';
import { registerFlowRoutes } from '../../services/producer/http/flows.routes.ts';
import { registerLedgerRoutes } from '../../services/producer/http/ledger.routes.ts';
import { registerHistoryRoutes } from '../../services/producer/http/history.routes.ts';
import { registerQueueRoutes } from '../../services/producer/http/queues.routes.ts';
import { FlowStarter } from '../../services/producer/flow-starter.ts';
import { registerScheduleRoutes } from '../../services/producer/http/schedules.routes.ts';
import { registerRetentionRoutes } from '../../services/producer/http/retention.routes.ts';
import { registerScalingRoutes } from '../../services/producer/http/scaling.routes.ts';
import { registerTaskRoutes } from '../../services/producer/http/tasks.routes.ts';
import { registerFollowRoutes } from '../../services/producer/http/follow.routes.ts';
import type { TaskRoutesDeps } from '../../services/producer/http/tasks.routes.ts';
import type { Role } from '../../shared/config/format.ts';
import { MESSAGE_LIMITS } from '../../shared/amqp/message.ts';
import { Bug } from '../../shared/errors/warren-error.ts';
import type { OpenApi } from '../../shared/http/open-api.ts';
import { createApp } from '../../shared/http/server.ts';
import type { App } from '../../shared/http/server.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** One API: its document, and the least role that each `GET /path` needs. */
export interface Api {
  readonly document: OpenApi;
  readonly roles: ReadonlyMap<string, Role>;
}

/** The Task API of the producer. */
export async function describeTaskApi(): Promise<Api> {
  return await describe('Warren Task API', (app, metrics) => {
    const tasks = taskDeps(metrics);
    registerTaskRoutes(app, tasks);
    const flows = { ...tasks, metrics, holdReasonOf: never };
    const starter = new FlowStarter(flows);
    const flowBytes = tasks.batchBytes;
    registerFlowRoutes(app, { ...flows, starter, flowBytes });
    registerScheduleRoutes(app, { ...flows, starter, clock: systemClock, limits: { task: tasks.limits, flowBytes } });
    registerQueueRoutes(app, { ...tasks, readyOf: never });
    registerScalingRoutes(app, { answer: never }, { sloMs: 1, slots: 1, maxWorkers: 1 });
    registerFileRoutes(
      app,
      {
        db: noDatabase as unknown as Database,
        store: undefined,
        linkSecret: '',
        clock: systemClock,
        metrics,
        log: silentLogger,
      },
      { linkMs: 1, linkBaseUrl: '', depth: 1 },
    );
    registerHistoryRoutes(app, { db: { query: never }, log: silentLogger, depth: 1 });
    registerFollowRoutes(app, {
      clock: systemClock,
      follower: { find: never, watch: never, isFull: false },
      estimates: { finishOf: never },
    });
    registerLedgerRoutes(app, { db: noDatabase as unknown as Database, clock: systemClock, lapseMs: 1 });
    registerRetentionRoutes(app, {
      db: noDatabase as unknown as Database,
      clock: systemClock,
      rules: {
        tasks: [],
        ripeMs: 1,
        shortestMs: 1,
        spanMs: 1,
        lettersMs: 1,
        replaysMs: 1,
        flowsMs: 1,
        occurrencesMs: 1,
      },
    });
  });
}

/** The Dead Letter API of the dead-letter-handler. */
export async function describeDeadLetterApi(): Promise<Api> {
  return await describe('Warren Dead Letter API', (app, metrics) => {
    addDeadLetterRoutes(app, { db: noDatabase, replayer: { replay: never, discard: never } });
    addDiscardRoutes(app, { db: noDatabase, metrics });
    addFailureGroupRoutes(app, { db: noDatabase });
    addAuditRoutes(app, { db: noDatabase });
    addReplayRoutes(app, {
      db: noDatabase as unknown as DryRunDeps['db'],
      clock: systemClock,
      catalog: { find: never, hasQueue: never },
      limits: { messageBytes: 1, depth: 1 },
      inputs: { read: never, isLarge: never, keep: never, outline: never },
      replayer: { destinationOf: never },
      refreshTypes: never,
      wake: never,
    });
  });
}

const noDatabase = {
  query: never,
  checkOut: never,
  deps: { clock: systemClock, log: silentLogger, random: () => 0 },
};

type Metrics = ReturnType<typeof createMetrics>;

async function describe(title: string, addRoutes: (app: App, metrics: Metrics) => void): Promise<Api> {
  const metrics = createMetrics({ service: 'reference', version: '1', withProcess: false });
  const roles = new Map<string, Role>();
  const app = createApp(
    { clock: systemClock, log: silentLogger, metrics, checks: [], addRoutes: (routes) => addRoutes(routes, metrics) },
    {
      host: '127.0.0.1',
      port: 0,
      tokens: [],
      bodyBytes: MESSAGE_LIMITS.bodyBytes,
      title,
      version: '1',
    },
  );
  app.addHook('onRoute', ({ method, url, config }) => {
    for (const each of [method].flat()) roles.set(`${each} ${url}`, config?.role ?? 'viewer');
  });
  await app.ready();
  const document = app.swagger() as unknown as OpenApi;
  await app.close();
  return { document, roles };
}

/** Describing calls no handler. */
function never(): never {
  throw new Bug('a handler was called while the API was described');
}

function taskDeps(metrics: Metrics): TaskRoutesDeps {
  return {
    db: { query: never } as unknown as TaskRoutesDeps['db'],
    log: silentLogger,
    catalog: {} as unknown as TaskRoutesDeps['catalog'],
    metrics,
    limits: {
      messageBytes: MESSAGE_LIMITS.bodyBytes,
      depth: MESSAGE_LIMITS.depth,
      headerBytes: MESSAGE_LIMITS.headersBytes,
      requireMessageId: false,
      webhookFault: never,
      isOwnQueue: never,
    },
    batchBytes: MESSAGE_LIMITS.bodyBytes,
    inputs: { isLarge: never, keep: never },
    storeInput: never,
    finder: { find: never },
    estimates: { finishOf: never, startOf: never },
    follower: { whenEnded: never, isFull: false },
    maxWaitSeconds: 30,
    submit: never,
    invite: never,
    isOutboxFull: () => false,
  };
}
