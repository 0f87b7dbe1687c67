/** The AMQP front door while Postgres is away, the outbox full, or the process stopped: nothing is lost. */
import { afterEach, expect, test } from '@jest/globals';
import { systemClock } from '../../shared/time/clock.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { AMQP_URL } from '../support/broker.ts';
import { aDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';
import { openFrontDoor } from '../support/front-door.ts';
import type { FrontDoorOptions, TestFrontDoor } from '../support/front-door.ts';
import { aType } from '../support/task-api.ts';

const opened: AsyncDisposable[] = [];
afterEach(async () => {
  for (const each of opened.splice(0).toReversed()) await each[Symbol.asyncDispose]();
});

async function open(options: FrontDoorOptions = {}): Promise<TestFrontDoor> {
  const door = await openFrontDoor([aType('mail.send')], options);
  opened.push(door);
  return door;
}

/** A front door whose Postgres is behind a proxy. */
async function openBehindProxy(
  options: FrontDoorOptions = {},
): Promise<{ readonly door: TestFrontDoor; readonly proxy: FaultyProxy; readonly database: Database }> {
  let proxy: FaultyProxy | undefined;
  let database: Database | undefined;
  const door = await open({
    ...options,
    through: async (db) => {
      proxy = await FaultyProxy.open(db.url);
      database = aDatabase(proxy.urlOf(db.url), { connectTimeoutMs: 500, statementTimeoutMs: 2_000 });
      await database.connectOrThrow();
      return database;
    },
  });
  if (proxy === undefined || database === undefined) throw new Error('no proxy');
  opened.unshift(proxy);
  return { door, proxy, database };
}

const countTasks = async (door: TestFrontDoor): Promise<number> => (await door.rows('select 1 from tasks')).length;

async function expectTasks(door: TestFrontDoor, count: number): Promise<void> {
  await eventually(async () => expect(await countTasks(door)).toBe(count), { withinMs: 20_000 });
}

async function expectQueued(door: TestFrontDoor, count: number): Promise<void> {
  await eventually(async () => {
    const { messageCount } = await door.broker.raw.checkQueue(door.names.ingress);
    expect(messageCount).toBe(count);
  });
}

const publishMany = async (door: TestFrontDoor, from: number, count: number): Promise<void> => {
  const ids = Array.from({ length: count }, (_, n) => `m${from + n}`);
  await Promise.all(ids.map(async (messageId) => await door.publish('mail.send', '{}', { messageId })));
};

test('while Postgres is away messages wait in their queue, and are accepted once when it is back', async () => {
  const { door, proxy, database } = await openBehindProxy();
  await publishMany(door, 0, 50);
  await expectTasks(door, 50);
  proxy.refuse();
  proxy.cut();
  await publishMany(door, 50, 300);
  await eventually(() => expect(door.ingress.isPaused).toBe(true));
  await expectQueued(door, 300);
  expect((await door.broker.raw.checkQueue(door.names.dead)).messageCount).toBe(0);
  proxy.accept();
  await eventually(async () => expect((await database.ping(500)).isAvailable).toBe(true));
  await expectTasks(door, 350);
  await expectQueued(door, 0);
  expect(door.ingress.isPaused).toBe(false);
});

test('a link to Postgres that breaks in the middle of a stream neither loses nor doubles a message with an id', async () => {
  const { door, proxy, database } = await openBehindProxy();
  for (let round = 0; round < 5; round += 1) {
    const publishing = publishMany(door, round * 100, 100);
    await eventually(async () => expect(await countTasks(door)).toBeGreaterThan(round * 100));
    proxy.cut();
    await publishing;
    await eventually(async () => expect((await database.ping(500)).isAvailable).toBe(true));
  }
  await expectTasks(door, 500);
  await expectQueued(door, 0);
  expect(await countTasks(door)).toBe(500);
});

test('an unknown type is no verdict while Postgres cannot be asked', async () => {
  const { door, proxy, database } = await openBehindProxy();
  proxy.refuse();
  proxy.cut();
  await door.publish('no.such', '{}');
  await eventually(() => expect(door.ingress.isPaused).toBe(true));
  await expectQueued(door, 1);
  proxy.accept();
  await eventually(async () => expect((await database.ping(500)).isAvailable).toBe(true));
  expect((await door.nextDead()).faults[0]?.code).toBe('task-type-unknown');
});

test('while the outbox is full messages wait, and are accepted afterwards', async () => {
  const door = await open();
  door.setOutboxFull(true);
  await publishMany(door, 0, 20);
  await eventually(() => expect(door.ingress.isPaused).toBe(true));
  await expectQueued(door, 20);
  door.setOutboxFull(false);
  await expectTasks(door, 20);
});

test('what a stopping front door has not answered stays in the queue for the next', async () => {
  const door = await open({ isStarted: false });
  await publishMany(door, 0, 500);
  await expectQueued(door, 500);
  await door.ingress.start();
  await eventually(async () => expect(await countTasks(door)).toBeGreaterThan(0));
  await door.ingress.stop(systemClock.monotonicMs() + 5_000);
  const accepted = await countTasks(door);
  await expectQueued(door, 500 - accepted);
  // What was accepted was acked: ids and bytes are those of the messages, each once.
  expect(await door.rows('select 1 from message_ids')).toHaveLength(accepted);
});

test('an ack that is lost after the commit makes a second task of a publish without id, and none of one with it', async () => {
  const proxy = await FaultyProxy.open(AMQP_URL);
  const door = await open({ amqpUrl: proxy.urlOf(AMQP_URL) });
  opened.unshift(proxy);
  await eventually(async () => {
    expect((await door.broker.raw.checkQueue(door.names.ingress)).consumerCount).toBe(1);
  });
  proxy.drop('to-server');
  await door.publish('mail.send', '{"n":1}', { messageId: 'once' });
  await door.publish('mail.send', '{"n":2}');
  await expectTasks(door, 2);
  proxy.cut(); // as if the process had died between commit and ack
  proxy.resume();
  await expectTasks(door, 3);
  await expectQueued(door, 0);
  const bodies = await door.rows(`select convert_from(input, 'UTF8') as input from tasks order by id`);
  expect(bodies.map(({ input }) => input)).toEqual(['{"n":1}', '{"n":2}', '{"n":2}']);
});

test('start and stop may be called twice, and stop without start', async () => {
  const door = await open({ isStarted: false });
  await door.ingress.start();
  await door.ingress.start();
  await door.publish('mail.send', '{}');
  await expectTasks(door, 1);
  await door.ingress.stop(systemClock.monotonicMs() + 1_000);
  await door.ingress.stop(systemClock.monotonicMs() + 1_000);
  const other = await open({ isStarted: false });
  await other.ingress.stop(systemClock.monotonicMs() + 1_000);
  expect(other.ingress.isPaused).toBe(false);
});

test('where the configuration asks for message ids, a publish without one dies', async () => {
  const door = await open({ limits: { requireMessageId: true } });
  await door.publish('mail.send', '{}');
  expect((await door.nextDead()).faults).toEqual([{ code: 'message-id-missing', field: 'message_id' }]);
  await door.publish('mail.send', '{}', { messageId: 'm' });
  await expectTasks(door, 1);
});
