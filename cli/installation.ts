/**
 * Opens what the administrative commands work on: configuration, database, broker. Loaded only by those commands, since
 * it brings pg and amqplib with it.
 */
import { createBuiltInTypes } from '../services/worker/builtin/all.ts';
import { loadRegistry } from '../services/worker/registry.ts';
import type { Registry } from '../services/worker/registry.ts';
import type { AmqpConnection } from '../shared/amqp/connection.ts';
import { topologyOf } from '../shared/amqp/topology.ts';
import type { Topology } from '../shared/amqp/topology.ts';
import { loadConfig } from '../shared/config/load.ts';
import type { LoadedConfig } from '../shared/config/load.ts';
import type { Config } from '../shared/config/schema.ts';
import { Bug } from '../shared/errors/warren-error.ts';
import { silentLogger } from '../shared/observability/silent-log.ts';
import type { Database } from '../shared/postgres/pool.ts';
import { run } from '../shared/postgres/statement.ts';
import { createConnection, createDatabase } from '../shared/tasks/backbone.ts';
import { DEFAULT_QUEUE } from '../shared/tasks/define-task.ts';
import type { Clock } from '../shared/time/clock.ts';
import type { CommandContext } from './context.ts';
import { listQueues } from './installation.sql.ts';

/** Milliseconds that closing may take. */
const CLOSE_WITHIN_MS = 2_000;

/** Loads the configuration as the services do. Throws `config-invalid` with every fault. */
export function loadCliConfig({ io, options }: CommandContext): LoadedConfig {
  return loadConfig({ user: 'cli', file: options.config, env: io.env });
}

/** Calls `work` with a connected database, and closes it. Throws `database-unavailable`. */
export async function withDatabase<T>(
  { io }: CommandContext,
  config: Config,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const database = createDatabase({ config, clock: io.clock, log: silentLogger, random: io.random }, 'cli');
  try {
    await database.connectOrThrow();
    return await work(database);
  } finally {
    await database.stop(io.clock.monotonicMs() + CLOSE_WITHIN_MS);
  }
}

/** Calls `work` with a connected broker, and closes it. Throws `broker-unavailable`, `broker-refused-login`. */
export async function withBroker<T>(
  { io }: CommandContext,
  config: Config,
  work: (connection: AmqpConnection) => Promise<T>,
): Promise<T> {
  const deps = { config, clock: io.clock, log: silentLogger, random: io.random };
  const connection = createConnection(deps, `${config.prefix} cli`);
  try {
    await connection.start();
    await connection.connected({ withinMs: config.amqp.connectTimeoutMs, signal: io.interrupted });
    return await work(connection);
  } finally {
    await connection.stop(io.clock.monotonicMs() + CLOSE_WITHIN_MS);
  }
}

/** Queues that exist by configuration or announcement, each once. */
export async function queuesOf(database: Database, { producer, worker }: Config): Promise<readonly string[]> {
  const announced = (await run(database, listQueues)).map(({ name }) => name);
  const configured = worker.queues.map(({ name }) => name);
  return [...new Set([DEFAULT_QUEUE, ...producer.declaredQueues, ...configured, ...announced])].toSorted((a, b) =>
    a.localeCompare(b),
  );
}

/** The topology that a connected broker should have. */
export function wantedTopology(connection: AmqpConnection, config: Config, queues: readonly string[]): Topology {
  const { capabilities } = connection;
  if (capabilities === undefined) throw new Bug('the broker is not connected');
  const { queueType } = config.amqp;
  return topologyOf({
    prefix: config.prefix,
    queues,
    queueType: queueType === 'auto' ? capabilities.queueType : queueType,
  });
}

/** Task types of modules, and the built-in ones, as a worker would load them, and schedules. Throws `task-module-invalid`. */
export async function loadModules(clock: Clock, modules: readonly string[]): Promise<Registry> {
  return await loadRegistry({ modules, baseDir: process.cwd(), builtIn: createBuiltInTypes(clock) });
}
