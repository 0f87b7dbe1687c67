/** Makes and removes what one fleet needs on servers that are there: a database with its tables, and names on the broker. */
import { AmqpConnection, DEFAULT_AMQP } from '../shared/amqp/connection.ts';
import { withChannel } from '../shared/amqp/throwaway-channel.ts';
import { topologyOf } from '../shared/amqp/topology.ts';
import { silentLogger } from '../shared/observability/silent-log.ts';
import { claimPrefix, migrate } from '../shared/postgres/migrate.ts';
import { Database } from '../shared/postgres/pool.ts';
import { MIGRATIONS_DIR } from '../shared/tasks/backbone.ts';
import { systemClock } from '../shared/time/clock.ts';

const deps = { clock: systemClock, log: silentLogger, random: Math.random };
const SCHEMA = 'warren';

/** Runs `work` with a database, then closes it. Throws `database-unavailable`. */
export async function withDatabase<T>(url: string, work: (db: Database) => Promise<T>): Promise<T> {
  const db = new Database(deps, {
    url,
    applicationName: 'warren-scripts',
    max: 2,
    connectTimeoutMs: 5_000,
    statementTimeoutMs: 60_000,
    lockTimeoutMs: 10_000,
    idleTimeoutMs: 10_000,
    schema: SCHEMA,
  });
  try {
    await db.connectOrThrow();
    return await work(db);
  } finally {
    await db.stop(systemClock.monotonicMs() + 2_000);
  }
}

/** Makes the tables, and writes down the prefix that the database belongs to. */
export async function prepareDatabase(url: string, prefix: string): Promise<void> {
  await withDatabase(url, async (db) => {
    await migrate(db, { dir: MIGRATIONS_DIR, log: silentLogger });
    await claimPrefix(db, prefix);
  });
}

/** Makes an empty database beside the one that `url` names, in place of one of that name; gives its URL. */
export async function createDatabaseBeside(url: string, name: string): Promise<string> {
  await withDatabase(url, async (db) => {
    await db.query({ text: `drop database if exists ${quoteName(name)} with (force)` });
    await db.query({ text: `create database ${quoteName(name)}` });
  });
  const beside = new URL(url);
  beside.pathname = `/${name}`;
  return beside.href;
}

/** Removes a database that `createDatabaseBeside` made. */
export async function dropDatabaseBeside(url: string, name: string): Promise<void> {
  await withDatabase(url, async (db) => {
    await db.query({ text: `drop database if exists ${quoteName(name)} with (force)` });
  });
}

/** Removes every exchange and queue of a prefix whose work queues are `queues`, with what is in them. */
export async function deleteTopology(amqpUrl: string, prefix: string, queues: readonly string[]): Promise<void> {
  const connection = new AmqpConnection(deps, { ...DEFAULT_AMQP, urls: [amqpUrl], connectionName: 'warren scripts' });
  try {
    await connection.start();
    await connection.connected({ withinMs: 10_000 });
    const topology = topologyOf({ prefix, queues, queueType: 'classic' });
    await withChannel({ connection, clock: systemClock }, async (channel) => {
      for (const { name } of topology.queues) await channel.deleteQueue(name);
      for (const { name } of topology.exchanges) await channel.deleteExchange(name);
    });
  } finally {
    await connection.stop(systemClock.monotonicMs() + 2_000);
  }
}

function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
