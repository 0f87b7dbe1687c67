/** What every service stands on: Postgres, two connections to RabbitMQ, the publisher of invitations, the topology. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { AmqpConnection } from '../amqp/connection.ts';
import { JSON_CONTENT_TYPE, encodeInvitation } from '../amqp/message.ts';
import { DEFAULT_PUBLISHER, Publisher } from '../amqp/publisher.ts';
import { TopologyKeeper } from '../amqp/topology-keeper.ts';
import { namesOf } from '../amqp/topology.ts';
import type { Names } from '../amqp/topology.ts';
import type { Config } from '../config/schema.ts';
import { isWarrenError } from '../errors/warren-error.ts';
import type { NamedPart } from '../lifecycle/in-order.ts';
import { Loop } from '../lifecycle/loop.ts';
import type { LoopDeps } from '../lifecycle/loop.ts';
import type { Part } from '../lifecycle/part.ts';
import { createEventLoopWatch } from '../observability/event-loop.ts';
import type { Logger } from '../observability/log.ts';
import type { Metrics } from '../observability/metrics.ts';
import { checkMigrations, claimPrefix } from '../postgres/migrate.ts';
import { Database } from '../postgres/pool.ts';
import type { Clock } from '../time/clock.ts';
import { TlsFiles } from '../tls/tls-files.ts';
import type { Invitation } from './invitation.ts';
import { Inviter } from './outbox.ts';

/** Folder of the migrations. */
export const MIGRATIONS_DIR = findMigrations();

/** What a backbone is made from. */
export interface BackboneDeps {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  readonly metrics: Metrics;
}

/** How one service uses it. */
export interface BackboneOptions {
  /** Shown as the name of its connections. */
  readonly service: string;
  /** The work queues that the service wants declared now, without prefix. */
  readonly queues: () => readonly string[];
}

/** What every service stands on. */
export interface Backbone {
  readonly names: Names;
  readonly db: Database;
  /** For publishing alone: the broker blocks publishers as a whole connection, and consumers must not be blocked with them. */
  readonly publishing: AmqpConnection;
  readonly consuming: AmqpConnection;
  readonly publisher: Publisher;
  readonly topology: TopologyKeeper;
  readonly inviter: Inviter;
  /** Publishes one invitation, mandatory; resolves with the broker's confirm. */
  readonly invite: (invitation: Invitation) => Promise<void>;
  /** Counts a round that failed, by its loop: for the loops of the service. */
  readonly onFailure: (loop: string) => void;
  /** For `inOrder`, under the parts of the service. */
  readonly parts: readonly NamedPart[];
}

const STATEMENT_PLANS = {
  // The hot statements are written for nested loops over primary keys. A plan made while a table was still empty must not
  // scan it once it is large; statistics arrive only with the first autovacuum.
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  jit: 'off',
  // Planned once per session: planning these statements takes longer than running them, and their plan is always the same.
  plan_cache_mode: 'force_generic_plan',
};

const IDLE_CONNECTION_MS = 60_000;
const WAIT_FOR_POSTGRES_MS = 60_000;
const POSTGRES_AGAIN_MS = 500;
const PING_EVERY_MS = 1_000;
const ROWS_IN_WAITING = 1_000;
const LOOK_AT_EXCHANGES_MS = 30_000;

/** How a service reaches Postgres. */
export function createDatabase(deps: Omit<BackboneDeps, 'metrics'>, service: string): Database {
  const { url, poolMax, schema, connectTimeoutMs, statementTimeoutMs, lockTimeoutMs } = deps.config.postgres;
  const { tlsCaFile, tlsCertFile, tlsKeyFile } = deps.config.postgres;
  return new Database(deps, {
    url,
    applicationName: `warren-${service}`,
    max: poolMax,
    connectTimeoutMs,
    statementTimeoutMs,
    lockTimeoutMs,
    idleTimeoutMs: IDLE_CONNECTION_MS,
    schema,
    tls: { tlsCaFile, tlsCertFile, tlsKeyFile },
    settings: STATEMENT_PLANS,
  });
}

/** How a service reaches RabbitMQ. */
export function createConnection(deps: Omit<BackboneDeps, 'metrics'>, connectionName: string): AmqpConnection {
  const { urls, heartbeatSeconds, reconnectMinMs, reconnectMaxMs, connectTimeoutMs } = deps.config.amqp;
  return new AmqpConnection(deps, {
    urls,
    connectionName,
    heartbeatSeconds,
    reconnectMinMs,
    reconnectMaxMs,
    connectTimeoutMs,
    tls: new TlsFiles(deps.log, 'amqp', deps.config.amqp),
  });
}

/** Makes the backbone of a service. Nothing runs before its parts are started. */
export function createBackbone(deps: BackboneDeps, options: BackboneOptions): Backbone {
  const { config, clock, log, metrics } = deps;
  const names = namesOf(config.prefix);
  const onFailure = (loop: string): void => metrics.roundFailures.add(1, loop);
  const db = createDatabase(deps, options.service);
  const publishing = createConnection(deps, `${config.prefix} ${options.service} publish`);
  const consuming = createConnection(deps, `${config.prefix} ${options.service} consume`);
  const { confirmWithinMs, maxUnconfirmed, queueType, declareTopology } = config.amqp;
  const publisher = new Publisher(
    { connection: publishing, clock, log },
    { ...DEFAULT_PUBLISHER, name: 'publish', confirmWithinMs, maxUnconfirmed },
  );
  const topology = new TopologyKeeper(
    { ...deps, connection: publishing, queues: options.queues, onFailure },
    { prefix: config.prefix, queueType, lookAgainMs: LOOK_AT_EXCHANGES_MS, mayDeclare: declareTopology },
  );
  const invite = async (invitation: Invitation): Promise<void> => {
    try {
      await publisher.publish(toMessage(names.work, invitation));
      metrics.published.add(1, 'invitation', 'confirmed');
    } catch (thrown) {
      metrics.published.add(1, 'invitation', answerOf(thrown));
      throw thrown;
    }
  };
  const inviter = new Inviter(
    { db, clock, log, publish: invite, onQueueMissing: () => topology.declareAgain() },
    // Some room in the publisher is left for what goes beside the outbox.
    { maxInFlight: Math.ceil(maxUnconfirmed * 0.8), maxWaiting: ROWS_IN_WAITING },
  );
  publisher.onReady(() => void inviter.hasten()); // never rejects

  metrics.brokerConnected.readFrom(() => Number(publishing.isConnected), 'publish');
  metrics.brokerConnected.readFrom(() => Number(consuming.isConnected), 'consume');
  metrics.brokerBlocked.readFrom(() => Number(publishing.isBlocked));
  metrics.databaseAvailable.readFrom(() => Number(db.isAvailable));
  metrics.databaseConnections.readFrom(() => db.stats.total, 'total');
  metrics.databaseConnections.readFrom(() => db.stats.idle, 'idle');
  metrics.databaseConnections.readFrom(() => db.stats.waiting, 'waiting');

  // Stopped from the top: what is still to be published goes out before its connection closes, and the pool closes last.
  const parts: NamedPart[] = [
    { name: 'event loop watch', part: createEventLoopWatch(deps) },
    { name: 'inviter', part: inviter },
    { name: 'topology', part: topology },
    { name: 'publisher', part: publisher },
    { name: 'consuming', part: consuming },
    { name: 'publishing', part: publishing },
    { name: 'installation', part: installationCheck(deps, db) },
    { name: 'postgres watch', part: postgresWatch({ ...deps, onFailure }, db) },
    { name: 'postgres', part: db },
  ];
  return { names, db, publishing, consuming, publisher, topology, inviter, invite, onFailure, parts };
}

function toMessage(exchange: string, invitation: Invitation): Parameters<Publisher['publish']>[0] {
  const { taskId, queue, priority } = invitation;
  return {
    exchange,
    routingKey: queue,
    body: encodeInvitation(invitation),
    properties: { messageId: taskId, priority, contentType: JSON_CONTENT_TYPE },
    mandatory: true,
  };
}

function answerOf(thrown: unknown): 'refused' | 'unroutable' | 'late' | 'lost' {
  if (isWarrenError(thrown, 'unroutable')) return 'unroutable';
  if (isWarrenError(thrown, 'publish-refused')) return 'refused';
  return isWarrenError(thrown, 'confirm-late') ? 'late' : 'lost';
}

/** Asks Postgres while it is away: what paused because of that asks for nothing, and would never hear that it is back. */
function postgresWatch(deps: Omit<LoopDeps, 'round'>, db: Database): Part {
  const round = async (): Promise<void> => {
    if (!db.isAvailable) await db.ping(PING_EVERY_MS);
  };
  return new Loop({ ...deps, round }, { name: 'postgres watch', intervalMs: PING_EVERY_MS });
}

/**
 * Waits for Postgres at start, then checks that the database fits this program and belongs to this prefix. Throws
 * `database-unavailable` after a minute, `database-outdated`, `prefix-mismatch`.
 */
function installationCheck(deps: Omit<BackboneDeps, 'metrics'>, db: Database): Part {
  return {
    start: async () =>
      await whenPostgresAnswers(deps, async () => {
        await checkMigrations(db, MIGRATIONS_DIR);
        await claimPrefix(db, deps.config.prefix);
      }),
    stop: async () => await Promise.resolve(),
  };
}

/**
 * Does what a start needs Postgres for, again where it did not answer: a blip in the middle of a start is no reason to end.
 * Throws `database-unavailable` after a minute, and at once whatever else `work` throws.
 */
export async function whenPostgresAnswers(
  { clock, log }: Pick<BackboneDeps, 'clock' | 'log'>,
  work: () => Promise<void>,
): Promise<void> {
  const untilMs = clock.monotonicMs() + WAIT_FOR_POSTGRES_MS;
  for (;;) {
    try {
      await work();
      return;
    } catch (thrown) {
      if (!isWarrenError(thrown, 'database-unavailable') || clock.monotonicMs() > untilMs) throw thrown;
      log.debug('waiting for postgres');
      await clock.sleep(POSTGRES_AGAIN_MS);
    }
  }
}

/** This code lies in its own file, or in the one file of a program two folders below the same root. */
function findMigrations(): string {
  const places = ['../postgres/migrations', '../../shared/postgres/migrations'];
  const paths = places.map((place) => fileURLToPath(new URL(place, import.meta.url)));
  return paths.find((path) => existsSync(path)) ?? paths.join(' or ');
}
