/** Postgres that fails over, falls silent, or breaks off in the middle of an answer: away, and then used again by itself. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Database } from '../../../shared/postgres/pool.ts';
import { inTransaction } from '../../../shared/postgres/transaction.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { aDatabase, openEmptyDatabase } from '../../support/database.ts';
import type { TestDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { FaultyProxy } from '../../support/faulty-proxy.ts';

const INSERT = { text: 'insert into written values (1)' };
const READ_ONLY = { text: 'set default_transaction_read_only = on' };
const CONNECTIONS = 3;

let admin: TestDatabase;
beforeAll(async () => {
  admin = await openEmptyDatabase();
});
afterAll(async () => await admin[Symbol.asyncDispose]());

async function openWritten(): Promise<TestDatabase> {
  const opened = await openEmptyDatabase({ max: CONNECTIONS });
  await opened.database.query({ text: 'create schema warren' });
  await opened.database.query({ text: 'create table written (n int)' });
  return opened;
}

/** Does something in each connection that the pool may have. */
async function inEach(database: Database, text: string): Promise<unknown[]> {
  const connections = await Promise.all(Array.from({ length: CONNECTIONS }, async () => await database.checkOut()));
  const results = await Promise.all(connections.map(async (connection) => await connection.query({ text })));
  for (const connection of connections) connection.release(false);
  return results.flatMap(({ rows }) => rows);
}

const pids = async (database: Database): Promise<unknown[]> => await inEach(database, 'select pg_backend_pid() as pid');

test('a server that a failover made read-only is away, for reads too, until it takes writes', async () => {
  await using opened = await openWritten();
  const { database } = opened;
  const name = new URL(opened.url).pathname.slice(1);
  const before = await pids(database);
  // Sessions of the old primary find out at their next write; new ones get what it has become.
  await admin.database.query({ text: `alter database ${name} set default_transaction_read_only = on` });
  await inEach(database, READ_ONLY.text);
  expect(database.isAvailable).toBe(true);

  await expect(database.query(INSERT)).rejects.toMatchObject({
    code: 'database-unavailable',
    facts: { reason: expect.stringContaining('25006') },
  });
  expect(database.isAvailable).toBe(false);
  for (let round = 0; round < 2 * CONNECTIONS; round += 1) {
    expect(await database.ping(5_000)).toMatchObject({
      isAvailable: false,
      reason: expect.stringContaining('read-only'),
    });
    expect(database.isAvailable).toBe(false);
  }

  await admin.database.query({ text: `alter database ${name} reset default_transaction_read_only` });
  expect(await database.ping(5_000)).toEqual({ isAvailable: true });
  expect(database.isAvailable).toBe(true);
  await database.query(INSERT);
  for (const pid of await pids(database)) expect(before).not.toContainEqual(pid);
});

test('one write that meets a read-only server costs all connections to it, also from inside a transaction', async () => {
  await using opened = await openWritten();
  const { database } = opened;
  await inEach(database, READ_ONLY.text);
  await expect(inTransaction(database, async (tx) => await tx.query(INSERT))).rejects.toMatchObject({
    code: 'database-unavailable',
  });
  for (let round = 0; round < 2 * CONNECTIONS; round += 1) {
    await inTransaction(database, async (tx) => await tx.query(INSERT));
  }
});

test('connections that a firewall forgot cost one time limit, not one each', async () => {
  await using opened = await openWritten();
  await using proxy = await FaultyProxy.open(opened.url);
  const database = aDatabase(proxy.urlOf(opened.url), { max: CONNECTIONS, statementTimeoutMs: 200 });
  await database.connectOrThrow();
  await pids(database);
  proxy.forget();
  await expect(database.query(INSERT)).rejects.toMatchObject({ code: 'database-unavailable' });
  const startMs = systemClock.monotonicMs();
  for (let round = 0; round < 2 * CONNECTIONS; round += 1) await database.query(INSERT);
  expect(systemClock.monotonicMs() - startMs).toBeLessThan(5_000); // one limit is 5 200 ms
  await database.stop(systemClock.monotonicMs() + 1_000);
});

test.each(['to-client', 'to-server'] as const)(
  'a link cut in the middle of a message %s fails it alone',
  async (way) => {
    await using opened = await openWritten();
    await using proxy = await FaultyProxy.open(opened.url);
    const database = aDatabase(proxy.urlOf(opened.url), { max: 1 });
    await database.connectOrThrow();
    proxy.cutAfter(100_000, way);
    const text = 'x'.repeat(1_000_000);
    await expect(database.query({ text: 'select $1::text as text', values: [text] })).rejects.toMatchObject({
      code: 'database-unavailable',
    });
    expect(database.isAvailable).toBe(false);
    await eventually(async () => expect(await database.ping(2_000)).toEqual({ isAvailable: true }));
    await database.query(INSERT);
    await database.stop(systemClock.monotonicMs() + 1_000);
  },
  30_000,
);
