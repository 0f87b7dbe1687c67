import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { AmqpOptions, AmqpConnection } from '../../shared/amqp/connection.ts';
import { DEFAULT_PUBLISHER, Publisher } from '../../shared/amqp/publisher.ts';
import type { Outgoing, OutgoingProperties, PublisherOptions } from '../../shared/amqp/publisher.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL, openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';

let broker: TestBroker;

beforeAll(async () => {
  broker = await openBroker();
});

afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

const inMs = (ms: number): number => systemClock.monotonicMs() + ms;

async function openPublisher(
  options: Partial<PublisherOptions> = {},
  amqp: Partial<AmqpOptions> = {},
): Promise<{ publisher: Publisher; connection: AmqpConnection }> {
  const connection = await broker.connect(amqp);
  const deps = { connection, clock: systemClock, log: silentLogger };
  const publisher = new Publisher(deps, { ...DEFAULT_PUBLISHER, name: 'test', ...options });
  await publisher.start();
  await eventually(() => expect(publisher.isReady).toBe(true));
  return { publisher, connection };
}

function to(queue: string, body: string | Buffer, properties: OutgoingProperties = {}): Outgoing {
  return { exchange: '', routingKey: queue, body: Buffer.from(body), properties, mandatory: true };
}

/** Takes all messages of a queue and returns their bodies. */
async function drain(queue: string): Promise<string[]> {
  const bodies: string[] = [];
  for (;;) {
    const message = await broker.raw.get(queue, { noAck: true });
    if (message === false) return bodies;
    bodies.push(message.content.toString());
  }
}

describe('a publish', () => {
  test('resolves once the broker has confirmed it, and is persistent', async () => {
    const { publisher } = await openPublisher();
    const queue = await broker.queue();
    await publisher.publish(to(queue, 'hello', { messageId: 'm1', priority: 3, headers: { a: [1, 'x'] } }));
    const message = await broker.raw.get(queue, { noAck: true });
    expect(message).toMatchObject({
      content: Buffer.from('hello'),
      properties: { deliveryMode: 2, messageId: 'm1', priority: 3, headers: { a: [1, 'x'] } },
    });
    expect(publisher.unconfirmed).toBe(0);
  });

  test('that no queue takes is unroutable; routable ones beside it are not', async () => {
    const { publisher } = await openPublisher();
    const queue = await broker.queue();
    const results = await Promise.allSettled([
      publisher.publish(to(queue, 'a')),
      publisher.publish(to(`${queue}.none`, 'b')),
      publisher.publish(to(queue, 'c')),
      publisher.publish(to(`${queue}.none`, 'd')),
      publisher.publish({ ...to(`${queue}.none`, 'e'), mandatory: false }),
    ]);
    expect(results.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);
    expect(results[1]).toMatchObject({ reason: { code: 'unroutable', facts: { routingKey: `${queue}.none` } } });
    await broker.raw.assertQueue(`${queue}.none`, { autoDelete: false });
    await publisher.publish(to(`${queue}.none`, 'f'));
    await broker.raw.deleteQueue(`${queue}.none`);
  });

  test('that a full queue refuses is refused', async () => {
    const { publisher } = await openPublisher();
    const queue = await broker.queue({ 'x-queue-type': 'classic', 'x-max-length': 1, 'x-overflow': 'reject-publish' });
    await publisher.publish(to(queue, 'first'));
    await expect(publisher.publish(to(queue, 'second'))).rejects.toMatchObject({ code: 'publish-refused' });
    expect(await drain(queue)).toEqual(['first']);
    await publisher.publish(to(queue, 'third'));
  });

  test('to an exchange that is not there is unroutable; what was lost with it says so, and the next ones work', async () => {
    const { publisher } = await openPublisher();
    const queue = await broker.queue();
    const exchange = `${broker.prefix}.none`;
    const failed = publisher.publish({ ...to(queue, 'a'), exchange });
    const beside = publisher.publish(to(`${queue}.none`, 'c')).catch((thrown: unknown) => thrown);
    await expect(failed).rejects.toMatchObject({ code: 'unroutable', facts: { exchange } });
    expect(await beside).toMatchObject({ code: 'broker-unavailable', facts: { wasSent: true } });
    await eventually(async () => await publisher.publish(to(queue, 'b')));
    expect(await drain(queue)).toEqual(['b']);
  });

  test.each<[string, Partial<Outgoing> | { properties: Record<string, unknown> }, string]>([
    ['priority -1', { properties: { priority: -1 } }, 'field-invalid'],
    ['priority 256', { properties: { priority: 256 } }, 'field-invalid'],
    ['priority 1.5', { properties: { priority: 1.5 } }, 'field-invalid'],
    ['priority NaN', { properties: { priority: Number.NaN } }, 'field-invalid'],
    ['priority "5"', { properties: { priority: '5' } }, 'field-invalid'],
    ['expiration 1.5', { properties: { expiration: 1.5 } }, 'field-invalid'],
    ['expiration -1', { properties: { expiration: -1 } }, 'field-invalid'],
    ['expiration 2^32', { properties: { expiration: 4_294_967_296 } }, 'field-invalid'],
    ['timestamp -1', { properties: { timestamp: -1 } }, 'field-invalid'],
    ['a long message id', { properties: { messageId: 'é'.repeat(128) } }, 'field-invalid'],
    ['a long routing key', { routingKey: 'x'.repeat(256) }, 'field-invalid'],
    ['an infinite header', { properties: { headers: { a: [Number.POSITIVE_INFINITY] } } }, 'field-invalid'],
    ['a header of a function', { properties: { headers: { a: () => 1 } } }, 'field-invalid'],
    ['a header of an unknown mark', { properties: { headers: { a: { '!': 'evil', value: 1 } } } }, 'field-invalid'],
    ['a long header name', { properties: { headers: { ['x'.repeat(256)]: 1 } } }, 'field-invalid'],
    ['a CC header', { properties: { headers: { CC: 'elsewhere' } } }, 'field-invalid'],
    ['headers for more than a frame', { properties: { headers: { a: 'x'.repeat(131_072) } } }, 'headers-too-large'],
    ['a body of 16 MiB and one byte', { body: Buffer.alloc(16_777_217) }, 'body-too-large'],
  ])('with %s is refused and disturbs no other', async (_name, wrong, code) => {
    const { publisher, connection } = await sharedPublisher();
    const queue = await broker.queue();
    const message = { ...to(queue, 'wrong'), ...wrong } as Outgoing;
    const [before, refused, after] = await Promise.allSettled([
      publisher.publish(to(queue, 'before')),
      publisher.publish(message),
      publisher.publish(to(queue, 'after')),
    ]);
    expect([before.status, after.status]).toEqual(['fulfilled', 'fulfilled']);
    expect(refused).toMatchObject({ status: 'rejected', reason: { code } });
    expect(await drain(queue)).toEqual(['before', 'after']);
    expect(connection.reconnects).toBe(0);
  });

  let shared: Awaited<ReturnType<typeof openPublisher>> | undefined;
  async function sharedPublisher(): Promise<Awaited<ReturnType<typeof openPublisher>>> {
    shared ??= await openPublisher();
    return shared;
  }
});

describe('while the broker does not answer', () => {
  test('publishes end in time, the bound holds, and all works again afterwards', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const options = { confirmWithinMs: 300, maxUnconfirmed: 5 };
    const { publisher } = await openPublisher(options, { urls: [proxy.urlOf(AMQP_URL)] });
    const queue = await broker.queue();
    proxy.pause();
    const beganMs = systemClock.monotonicMs();
    const results = await Promise.allSettled(
      Array.from({ length: 8 }, async (_, index) => await publisher.publish(to(queue, String(index)))),
    );
    expect(systemClock.monotonicMs() - beganMs).toBeLessThan(4_000);
    expect(
      results.map((result) => (result.status === 'rejected' ? (result.reason as { code: string }).code : 'ok')),
    ).toEqual([
      ...Array.from({ length: 5 }, () => 'confirm-late'),
      ...Array.from({ length: 3 }, () => 'publish-buffer-full'),
    ]);
    // The late ones keep their place: amqplib still holds them.
    await expect(publisher.publish(to(queue, 'x'))).rejects.toMatchObject({ code: 'publish-buffer-full' });
    proxy.resume();
    await eventually(() => expect(publisher.unconfirmed).toBe(0));
    await publisher.publish(to(queue, 'again'));
    expect(await drain(queue)).toEqual(['0', '1', '2', '3', '4', 'again']);
  });

  test('bytes are bounded on a slow link', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const options = { confirmWithinMs: 20_000, maxUnconfirmedBytes: 100_000 };
    const { publisher } = await openPublisher(options, { urls: [proxy.urlOf(AMQP_URL)] });
    const queue = await broker.queue();
    proxy.throttle(20_000);
    let refused = 0;
    let confirmed = 0;
    for (let index = 0; index < 2_000; index += 1) {
      publisher.publish(to(queue, Buffer.alloc(1_000))).then(
        () => (confirmed += 1),
        () => (refused += 1),
      );
    }
    expect(publisher.unconfirmed).toBeLessThanOrEqual(101);
    proxy.resume();
    await eventually(() => expect(confirmed + refused).toBe(2_000));
    expect(confirmed).toBe((await drain(queue)).length);
    expect(confirmed).toBeGreaterThanOrEqual(100);
  });

  test('a publish without a connection is refused at once, not buffered', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const { publisher, connection } = await openPublisher({}, { urls: [proxy.urlOf(AMQP_URL)] });
    const queue = await broker.queue();
    proxy.refuse();
    proxy.cut();
    await eventually(() => expect(connection.isConnected).toBe(false));
    expect(publisher.isReady).toBe(false);
    await expect(publisher.publish(to(queue, 'x'))).rejects.toMatchObject({ code: 'broker-unavailable' });
    proxy.accept();
    await eventually(() => expect(publisher.isReady).toBe(true));
    await publisher.publish(to(queue, 'y'));
    expect(await drain(queue)).toEqual(['y']);
  });

  test('a publish while the broker blocks is refused at once with its reason', async () => {
    const { publisher, connection } = await openPublisher();
    const queue = await broker.queue();
    let changes = 0;
    connection.onStateChange(() => (changes += 1));
    // What amqplib emits when an alarm is raised; a real alarm would stop everybody who shares this broker.
    connection.model?.emit('blocked', 'low on memory');
    expect([connection.isBlocked, publisher.isReady, changes]).toEqual([true, false, 1]);
    await expect(publisher.publish(to(queue, 'x'))).rejects.toMatchObject({
      code: 'broker-unavailable',
      facts: { reason: 'blocked: low on memory' },
    });
    connection.model?.emit('unblocked');
    await publisher.publish(to(queue, 'y'));
    expect(await drain(queue)).toEqual(['y']);
  });

  test('confirms that the network lost fail when the connection ends', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const { publisher } = await openPublisher({}, { urls: [proxy.urlOf(AMQP_URL)] });
    const queue = await broker.queue();
    proxy.drop('to-client');
    const lost = publisher.publish(to(queue, 'x'));
    await eventually(async () => expect((await broker.raw.checkQueue(queue)).messageCount).toBe(1));
    proxy.cut();
    await expect(lost).rejects.toMatchObject({ code: 'broker-unavailable', facts: { wasSent: true } });
  });

  test('a link cut in the middle of a message fails that publish, and the next ones work', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const { publisher } = await openPublisher({}, { urls: [proxy.urlOf(AMQP_URL)] });
    const queue = await broker.queue();
    proxy.cutAfter(100_000, 'to-server');
    const cut = publisher.publish(to(queue, Buffer.alloc(1_000_000)));
    await expect(cut).rejects.toMatchObject({ code: 'broker-unavailable', facts: { wasSent: true } });
    await eventually(async () => await publisher.publish(to(queue, 'whole')));
    expect(await drain(queue)).toEqual(['whole']);
  });

  test('stopping waits for confirms, and not beyond its deadline', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const { publisher } = await openPublisher({}, { urls: [proxy.urlOf(AMQP_URL)] });
    const queue = await broker.queue();
    const confirmed = publisher.publish(to(queue, 'x'));
    await publisher.stop(inMs(5_000));
    await confirmed;
    await expect(publisher.publish(to(queue, 'y'))).rejects.toMatchObject({ code: 'broker-unavailable' });

    const { publisher: stalled } = await openPublisher({}, { urls: [proxy.urlOf(AMQP_URL)] });
    proxy.pause();
    const open = stalled.publish(to(queue, 'z'));
    const beganMs = systemClock.monotonicMs();
    await Promise.all([stalled.stop(inMs(300)), expect(open).rejects.toMatchObject({ code: 'broker-unavailable' })]);
    expect(systemClock.monotonicMs() - beganMs).toBeLessThan(4_000);
    proxy.resume();
  });
});

test('invariant 1: of 200 publishes over ten cuts, every confirmed one has arrived', async () => {
  await using proxy = await FaultyProxy.open(AMQP_URL);
  const { publisher } = await openPublisher({}, { urls: [proxy.urlOf(AMQP_URL)] });
  const queue = await broker.queue();
  const confirmed = new Set<string>();
  let settled = 0;
  for (let index = 0; index < 200; index += 1) {
    if (index % 20 === 10) proxy.cut();
    const body = String(index);
    publisher
      .publish(to(queue, body))
      .then(
        () => confirmed.add(body),
        () => undefined,
      )
      .finally(() => (settled += 1));
    await systemClock.sleep(5);
  }
  await eventually(() => expect(settled).toBe(200));
  const arrived = new Set(await drain(queue));
  expect(confirmed.size).toBeGreaterThan(0);
  expect([...confirmed].filter((body) => !arrived.has(body))).toEqual([]);
  await eventually(async () => await publisher.publish(to(queue, 'after')));
});
