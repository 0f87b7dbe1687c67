import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { MessageProperties } from 'amqplib';
import type { SupervisedChannel } from '../../shared/amqp/channel.ts';
import type { AmqpConnection, AmqpOptions } from '../../shared/amqp/connection.ts';
import { Consumer } from '../../shared/amqp/consumer.ts';
import type { ConsumerDeps, ConsumerOptions, Delivery } from '../../shared/amqp/consumer.ts';
import { queueCounts, readyCount } from '../../shared/amqp/throwaway-channel.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL, openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';

let broker: TestBroker;
let opened: Consumer[] = [];

beforeAll(async () => {
  broker = await openBroker();
});

afterEach(async () => {
  for (const consumer of opened) await consumer.stop(inMs(0));
  opened = [];
});

afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

const inMs = (ms: number): number => systemClock.monotonicMs() + ms;
const bodies = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ body }) => body.toString());

interface Opened {
  readonly consumer: Consumer;
  readonly connection: AmqpConnection;
  readonly got: Delivery[];
}

async function openConsumer(
  options: Partial<ConsumerOptions> & { readonly queue: string },
  deps: Partial<ConsumerDeps> = {},
  amqp: Partial<AmqpOptions> = {},
): Promise<Opened> {
  const got: Delivery[] = [];
  const connection = deps.connection ?? (await broker.connect(amqp));
  const consumer = new Consumer(
    {
      connection,
      clock: systemClock,
      log: silentLogger,
      random: () => 0.1,
      onDelivery: (delivery) => {
        got.push(delivery);
      },
      ...deps,
    },
    { prefetch: 10, ...options },
  );
  opened.push(consumer);
  await consumer.start();
  await eventually(() => expect(consumer.isConsuming).toBe(true));
  return { consumer, connection, got };
}

async function send(queue: string, ...texts: readonly string[]): Promise<void> {
  const sending = texts.map(
    (text) => new Promise((resolve) => broker.raw.sendToQueue(queue, Buffer.from(text), { priority: 3 }, resolve)),
  );
  await Promise.all(sending);
}

/** Messages that stay once the consumer is gone. */
async function left(connection: AmqpConnection, queue: string): Promise<number | undefined> {
  return await readyCount({ connection, clock: systemClock }, queue);
}

describe('answers', () => {
  test('ack removes, nack gives back, reject makes a dead letter', async () => {
    const dead = await broker.queue();
    const queue = await broker.queue({ 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': dead });
    const { got, consumer, connection } = await openConsumer({ queue });
    await send(queue, 'a', 'b', 'c');
    await eventually(() => expect(bodies(got)).toEqual(['a', 'b', 'c']));
    expect(got[0]).toMatchObject({ routingKey: queue, exchange: '', redelivered: false, priority: 3, isAlive: true });
    got[0]?.ack();
    got[1]?.nack();
    got[2]?.reject();
    await eventually(() => expect(bodies(got)).toEqual(['a', 'b', 'c', 'b']));
    expect(got[3]?.redelivered).toBe(true);
    got[3]?.ack();
    await eventually(async () => expect(await left(connection, dead)).toBe(1));
    await consumer.stop(inMs(2_000));
    expect(await left(connection, queue)).toBe(0);
  });

  test('acks given in any order, in one turn or in many, leave what was not answered', async () => {
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer({ queue, prefetch: 50 });
    await send(queue, ...Array.from({ length: 12 }, (_, index) => String(index)));
    await eventually(() => expect(got).toHaveLength(12));
    for (const index of [1, 0, 2, 4]) got[index]?.ack(); // a run from the start, and one behind a gap
    await systemClock.sleep(20);
    got[3]?.nack();
    got[6]?.ack();
    got[5]?.ack();
    await eventually(() => expect(got).toHaveLength(13)); // number 3 comes again
    for (const index of [11, 9, 12]) got[index]?.ack();
    expect(consumer.unanswered).toBe(3);
    await consumer.stop(inMs(0));
    const again = await openConsumer({ queue, prefetch: 50 }, {}, {});
    await eventually(() => expect(bodies(again.got).toSorted()).toEqual(['10', '7', '8']));
    expect(consumer.deadAnswers).toBe(0);
    expect(await left(connection, queue)).toBe(0);
  });

  test('acks given just before the end reach the broker, however many they are', async () => {
    for (let round = 0; round < 4; round += 1) {
      const queue = await broker.queue();
      const { got, consumer, connection } = await openConsumer({ queue, prefetch: 200 });
      await send(queue, ...Array.from({ length: 200 }, (_, index) => String(index)));
      await eventually(() => expect(got).toHaveLength(200));
      await consumer.cancel();
      // Every second one first: with a gap before it, each is an answer of its own.
      for (const delivery of got.filter((_, index) => index % 2 === 1)) delivery.ack();
      await new Promise((resolve) => setImmediate(resolve));
      for (const delivery of got.filter((_, index) => index % 2 === 0)) delivery.ack();
      await consumer.stop(inMs(1_000));
      await systemClock.sleep(100);
      await eventually(async () => expect(await left(connection, queue)).toBe(0), { withinMs: 500 });
    }
  });

  test('a second answer does nothing and harms nobody', async () => {
    const queue = await broker.queue();
    const { got, consumer } = await openConsumer({ queue });
    await send(queue, 'a');
    await eventually(() => expect(got).toHaveLength(1));
    got[0]?.ack();
    got[0]?.ack();
    got[0]?.reject();
    expect(got[0]?.isAlive).toBe(false);
    expect(consumer.deadAnswers).toBe(2);
    expect(consumer.unanswered).toBe(0);
    await send(queue, 'b');
    await eventually(() => expect(bodies(got)).toEqual(['a', 'b']));
  });

  test('a late answer after a reconnect reaches no other message', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer({ queue }, {}, { urls: [proxy.urlOf(AMQP_URL)] });
    await send(queue, 'a');
    await eventually(() => expect(got).toHaveLength(1));
    proxy.cut();
    await eventually(() => expect(bodies(got)).toEqual(['a', 'a']));
    expect(got[0]?.isAlive).toBe(false);
    got[0]?.ack(); // the same delivery tag as the second one has on the new channel
    expect(consumer.deadAnswers).toBe(1);
    expect(consumer.unanswered).toBe(1);
    await consumer.stop(inMs(0));
    expect(await left(await broker.connect(), queue)).toBe(1);
    expect(connection.reconnects).toBe(1);
  });

  test('a handler that throws leaves the consumer alive', async () => {
    const queue = await broker.queue();
    const texts: string[] = [];
    const onDelivery = ({ body }: Delivery): void => {
      texts.push(body.toString());
      throw new Error('on purpose');
    };
    const { consumer } = await openConsumer({ queue }, { onDelivery });
    await send(queue, 'a', 'b');
    await eventually(() => expect(texts).toEqual(['a', 'b']));
    expect(consumer.isConsuming).toBe(true);
  });
});

describe('a consumer comes back', () => {
  test('after three reconnects, with the prefetch that was set', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer(
      { queue, prefetch: 3 },
      {},
      { urls: [proxy.urlOf(AMQP_URL)] },
    );
    for (let round = 1; round <= 3; round += 1) {
      proxy.cut();
      await eventually(() => expect([connection.reconnects, consumer.isConsuming]).toEqual([round, true]));
    }
    await send(queue, ...Array.from({ length: 20 }, (_, index) => String(index)));
    await eventually(() => expect(got).toHaveLength(3));
    expect(await left(connection, queue)).toBe(17);
    got[0]?.ack();
    await eventually(() => expect(got).toHaveLength(4));
    expect(consumer.unanswered).toBe(3);
  });

  test('after a cut in the middle of a delivery, which comes again whole', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const queue = await broker.queue();
    const { got, consumer } = await openConsumer({ queue }, {}, { urls: [proxy.urlOf(AMQP_URL)] });
    const text = 'x'.repeat(1_000_000);
    proxy.cutAfter(300_000, 'to-client');
    await send(queue, text);
    await eventually(() => expect(got).toHaveLength(1));
    expect([got[0]?.isAlive, got[0]?.body.toString() === text]).toEqual([true, true]);
    expect(proxy.accepted).toBe(2);
    expect(consumer.isConsuming).toBe(true);
  });

  test('after its channel died alone; other channels of the connection do not notice', async () => {
    const queue = await broker.queue();
    const other = await broker.queue();
    const connection = await broker.connect();
    const channels = noteChannels(connection);
    const { got, consumer } = await openConsumer({ queue }, { connection });
    const neighbour = await openConsumer({ queue: other }, { connection });
    await send(queue, 'a');
    await send(other, 'n');
    await eventually(() => expect([got.length, neighbour.got.length]).toEqual([1, 1]));
    kill(channels[0]);
    await eventually(() => expect(bodies(got)).toEqual(['a', 'a']));
    got[0]?.ack();
    got[1]?.ack();
    neighbour.got[0]?.ack();
    expect([consumer.deadAnswers, neighbour.consumer.deadAnswers]).toEqual([1, 0]);
    expect(connection.reconnects).toBe(0);
  });

  test('after its queue was deleted, by having it declared again', async () => {
    const queue = await broker.queue();
    let declared = 0;
    const onQueueMissing = async (): Promise<void> => {
      declared += 1;
      await broker.raw.assertQueue(queue);
    };
    const { got, consumer } = await openConsumer({ queue }, { onQueueMissing });
    await broker.raw.deleteQueue(queue);
    await eventually(() => expect([declared, consumer.isConsuming]).toEqual([1, true]));
    await send(queue, 'a');
    await eventually(() => expect(bodies(got)).toEqual(['a']));
  });

  test('after its queue was deleted under deliveries that wait for their answer', async () => {
    const queue = await broker.queue();
    let declared = 0;
    const onQueueMissing = async (): Promise<void> => {
      declared += 1;
      await broker.raw.assertQueue(queue);
    };
    const { got, consumer, connection } = await openConsumer({ queue }, { onQueueMissing });
    await send(queue, 'a');
    await eventually(() => expect(got).toHaveLength(1));
    await broker.raw.deleteQueue(queue);
    await eventually(() => expect([declared, consumer.isConsuming]).toEqual([1, true]));
    got[0]?.ack();
    await send(queue, 'b');
    await eventually(() => expect(bodies(got)).toEqual(['a', 'b']));
    got[1]?.ack();
    await eventually(async () => expect(await left(connection, queue)).toBe(0));
    expect(consumer.isConsuming).toBe(true);
  });

  test('once a queue that nobody declares is there after all; until then it says that it is deaf', async () => {
    const queue = await broker.queue();
    const { got, consumer } = await openConsumer({ queue });
    await broker.raw.deleteQueue(queue);
    await eventually(() => expect(consumer.isConsuming).toBe(false));
    await systemClock.sleep(300);
    expect(consumer.isConsuming).toBe(false);
    await broker.raw.assertQueue(queue);
    await send(queue, 'a');
    await eventually(() => expect(bodies(got)).toEqual(['a']));
  });
});

describe('a cancel by the server that keeps the consumer, as RabbitMQ 4.3 sends after the ack timeout', () => {
  test('is answered by a cancel of ours; what comes before that is taken, and the channel lives on', async () => {
    const queue = await broker.queue();
    const connection = await broker.connect();
    const channels = noteChannels(connection);
    const { got, consumer } = await openConsumer({ queue, prefetch: 100 }, { connection });
    await send(queue, 'before');
    await eventually(() => expect(got).toHaveLength(1));
    const sending = send(queue, ...Array.from({ length: 50 }, (_, index) => String(index)));
    for (let round = 1; round <= 5; round += 1) {
      await eventually(() => expect(consumer.isConsuming).toBe(true));
      channels[0]?.current()?.emit('cancel', { consumerTag: `${queue}.${round}` });
      expect(consumer.isConsuming).toBe(false);
    }
    await sending;
    await eventually(() => expect(new Set(bodies(got)).size).toBe(51));
    expect(got).toHaveLength(51);
    expect(channels[0]?.generation).toBe(1);
    // A quorum queue counts a cancelled consumer until its deliveries are answered.
    for (const delivery of got) delivery.ack();
    await eventually(async () => {
      expect(await queueCounts({ connection, clock: systemClock }, queue)).toEqual({ ready: 0, consumers: 1 });
    });
  });
});

describe('pausing and stopping', () => {
  test('a pause takes nothing new and leaves what was delivered ours', async () => {
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer({ queue });
    await send(queue, 'a');
    await eventually(() => expect(got).toHaveLength(1));
    await consumer.pause();
    expect(consumer.isConsuming).toBe(false);
    await send(queue, 'b');
    await eventually(async () => expect(await left(connection, queue)).toBe(1));
    expect(got[0]?.isAlive).toBe(true);
    got[0]?.ack();
    consumer.resume();
    await eventually(() => expect(bodies(got)).toEqual(['a', 'b']));
    expect(got[1]?.redelivered).toBe(false);
  });

  test('a pause outlasts a reconnect', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer({ queue }, {}, { urls: [proxy.urlOf(AMQP_URL)] });
    await consumer.pause();
    proxy.cut();
    await eventually(() => expect([connection.reconnects, connection.isConnected]).toEqual([1, true]));
    await send(queue, 'a');
    await systemClock.sleep(200);
    expect(got).toHaveLength(0);
    consumer.resume();
    await eventually(() => expect(bodies(got)).toEqual(['a']));
  });

  test('quick pauses and resumes end as the last one says', async () => {
    const queue = await broker.queue();
    const { got, consumer } = await openConsumer({ queue });
    for (let round = 0; round < 10; round += 1) {
      void consumer.pause(); // overtaken on purpose
      consumer.resume();
    }
    await send(queue, 'a');
    await eventually(() => expect(bodies(got)).toEqual(['a']));
    await consumer.pause();
    expect(consumer.isConsuming).toBe(false);
  });

  test('after cancel nothing comes, and what was delivered can still be answered until close', async () => {
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer({ queue });
    await send(queue, 'a', 'b');
    await eventually(() => expect(got).toHaveLength(2));
    await consumer.cancel();
    await send(queue, 'c');
    got[0]?.ack();
    const closing = consumer.close(inMs(5_000));
    got[1]?.ack();
    await closing;
    expect(bodies(got)).toEqual(['a', 'b']);
    expect(await left(connection, queue)).toBe(1);
    consumer.resume();
    expect(consumer.isConsuming).toBe(false);
  });

  test('deliveries on their way during a cancel are neither lost nor doubled', async () => {
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer(
      { queue, prefetch: 100 },
      {
        onDelivery: (delivery) => {
          got.push(delivery);
          delivery.ack();
        },
      },
    );
    const sending = send(queue, ...Array.from({ length: 300 }, (_, index) => String(index)));
    await eventually(() => expect(got.length).toBeGreaterThan(20));
    await consumer.stop(inMs(5_000));
    await sending;
    const taken = got.length;
    await eventually(async () => expect(((await left(connection, queue)) ?? 0) + taken).toBe(300));
  });

  test('close gives back what was not answered by the deadline', async () => {
    const queue = await broker.queue();
    const { got, consumer, connection } = await openConsumer({ queue });
    await send(queue, 'a');
    await eventually(() => expect(got).toHaveLength(1));
    await consumer.stop(inMs(100));
    await eventually(async () => expect(await left(connection, queue)).toBe(1));
    got[0]?.ack();
    expect(consumer.deadAnswers).toBe(1);
  });

  test('stopping over a link that passes nothing on ends at its deadline', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    const queue = await broker.queue();
    const { consumer } = await openConsumer({ queue }, {}, { urls: [proxy.urlOf(AMQP_URL)] });
    proxy.pause();
    const beganMs = systemClock.monotonicMs();
    await consumer.stop(inMs(200));
    expect(systemClock.monotonicMs() - beganMs).toBeLessThan(4_000);
    proxy.resume();
  });
});

test.each([0, -1, 1.5, 65_536])('a prefetch of %d is refused', async (prefetch) => {
  const connection = await broker.connect();
  const deps = { connection, clock: systemClock, log: silentLogger, random: () => 0, onDelivery: () => undefined };
  await expect(new Consumer(deps, { queue: 'q', prefetch }).start()).rejects.toMatchObject({ code: 'config-invalid' });
});

/** Notes the channels that a connection makes from now on. */
function noteChannels(connection: AmqpConnection): SupervisedChannel[] {
  const noted: SupervisedChannel[] = [];
  const make = connection.channel.bind(connection);
  connection.channel = (role) => {
    const channel = make(role);
    noted.push(channel);
    return channel;
  };
  return noted;
}

/** Answers a delivery that there never was, at which the broker closes the channel with 406. */
function kill(channel: SupervisedChannel | undefined): void {
  channel?.current()?.ack({
    content: Buffer.alloc(0),
    fields: { deliveryTag: 4_711, redelivered: false, exchange: '', routingKey: '' },
    properties: {} as MessageProperties,
  });
}
