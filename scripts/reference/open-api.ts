/** The APIs as their own schemas describe them, without a server, a broker or a database. */
import { addDeadLetterRoutes } from '../../services/dead-letter-handler/http/dead-letters.routes.ts';
import { registerLedgerRoutes } from '../../services/producer/http/ledger.routes.ts';
import { registerTaskRoutes } from '../../services/producer/http/tasks.routes.ts';
import type { TaskRoutesDeps } from '../../services/producer/http/tasks.routes.ts';
import type { Role } from '../../shared/config/format.ts';
import { MESSAGE_LIMITS } from '../../shared/amqp/message.ts';
import { Bug } from '../../shared/errors/warren-error.ts';
import { createApp } from '../../shared/http/server.ts';
import type { App } from '../../shared/http/server.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** An OpenAPI document, as far as the reference page reads it. */
export interface OpenApi {
  readonly info: { readonly title: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

/** One method of one path. */
export interface Operation {
  readonly summary?: string;
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly description?: string;
    readonly schema?: JsonSchema;
  }[];
  readonly requestBody?: { readonly content?: Readonly<Record<string, { readonly schema?: JsonSchema }>> };
  readonly responses?: Readonly<Record<string, unknown>>;
}

/** A schema, as far as the reference page reads it. */
export interface JsonSchema {
  readonly type?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
}

/** One API: its document, and the least role that each `GET /path` needs. */
export interface Api {
  readonly document: OpenApi;
  readonly roles: ReadonlyMap<string, Role>;
}

/** The Task API of the producer. */
export async function describeTaskApi(): Promise<Api> {
  return await describe('Warren Task API', (app, metrics) => {
    registerTaskRoutes(app, taskDeps(metrics));
    registerLedgerRoutes(app, { db: { query: never }, clock: systemClock });
  });
}

/** The Dead Letter API of the dead-letter-handler. */
export async function describeDeadLetterApi(): Promise<Api> {
  return await describe('Warren Dead Letter API', (app) =>
    addDeadLetterRoutes(app, { db: { query: never }, replayer: { replay: never, discard: never } }));
}

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
    },
    submit: never,
  };
}
