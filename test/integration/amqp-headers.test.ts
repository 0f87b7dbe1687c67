import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { AmqpConnection } from '../../shared/amqp/connection.ts';
import { Consumer } from '../../shared/amqp/consumer.ts';
import type { Delivery } from '../../shared/amqp/consumer.ts';
import { headersFromStored, headersToStored, withoutBrokerHeaders } from '../../shared/amqp/headers.ts';
import type { StoredHeaders } from '../../shared/amqp/headers.ts';
import { DEFAULT_PUBLISHER, Publisher } from '../../shared/amqp/publisher.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { publishRawHeaders, rawField, rawNest, rawTable } from '../support/raw-headers.ts';

let broker: TestBroker;
let connection: AmqpConnection;
let consumers: Consumer[] = [];

beforeAll(async () => {
  broker = await openBroker();
  connection = await broker.connect();
});

afterEach(async () => {
  for (const consumer of consumers) await consumer.stop(systemClock.monotonicMs() + 1_000);
  consumers = [];
});

afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function consume(queue: string, answer: 'ack' | 'reject'): Promise<Delivery[]> {
  const got: Delivery[] = [];
  const onDelivery = (delivery: Delivery): void => {
    got.push(delivery);
    delivery[answer]();
  };
  const deps = { connection, clock: systemClock, log: silentLogger, random: () => 0, onDelivery };
  const consumer = new Consumer(deps, { queue, prefetch: 10 });
  consumers.push(consumer);
  await consumer.start();
  return got;
}

const FIELDS = Buffer.concat([
  rawField('bool', 't', Buffer.from([1])),
  rawField('int8', 'b', Buffer.from([0x80])),
  rawField('uint8', 'B', Buffer.from([200])),
  rawField('int16', 's', Buffer.from([0x80, 0x00])),
  rawField('uint16', 'u', Buffer.from([0xff, 0xff])),
  rawField('int32', 'I', Buffer.from([0x80, 0, 0, 0])),
  rawField('uint32', 'i', Buffer.from([0xff, 0xff, 0xff, 0xff])),
  rawField('int64', 'l', Buffer.from('0020000000000000', 'hex')),
  rawField('float', 'f', Buffer.from('3fc00000', 'hex')),
  rawField('double', 'd', Buffer.from('3ff199999999999a', 'hex')),
  rawField('decimal', 'D', Buffer.from([2, 0, 0, 4, 210])),
  rawField('time', 'T', Buffer.from('0000000065000000', 'hex')),
  rawField('void', 'V', Buffer.alloc(0)),
  rawField('text', 'S', Buffer.concat([Buffer.from([0, 0, 0, 4]), Buffer.from('a\u0000ü')])),
  rawField('bytes', 'x', Buffer.from([0, 0, 0, 2, 0xff, 0x00])),
  rawField('list', 'A', Buffer.concat([Buffer.from([0, 0, 0, 5]), Buffer.from('b\u0001V'), Buffer.from('t\u0001')])),
  // Names that look like our own marks, and amqplib's.
  rawTable('$', rawField('$', 'b', Buffer.from([1]))),
  rawTable('mark', rawField('!', 'b', Buffer.from([1]))),
  rawTable('__proto__', rawField('polluted', 't', Buffer.from([1]))),
]);

test('headers of every type come through a death, a jsonb column and a publish unchanged', async () => {
  const dead = await broker.queue();
  const queue = await broker.queue({ 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': dead });
  const again = await broker.queue();
  const first = await consume(queue, 'reject');
  await publishRawHeaders(broker.raw, queue, FIELDS);
  const letters = await consume(dead, 'ack');
  await eventually(() => expect([first.length, letters.length]).toEqual([1, 1]));
  expect(first[0]?.undecodedHeaders).toBeUndefined();
  expect(letters[0]?.headers).toHaveProperty('x-death');

  const kept = JSON.parse(
    JSON.stringify(headersToStored(withoutBrokerHeaders(letters[0]?.headers ?? {}))),
  ) as StoredHeaders;
  expect(JSON.stringify(kept)).not.toContain('\\u0000');
  const publisher = new Publisher(
    { connection, clock: systemClock, log: silentLogger },
    { ...DEFAULT_PUBLISHER, name: 't' },
  );
  await publisher.start();
  await eventually(() => expect(publisher.isReady).toBe(true));
  const properties = { headers: headersFromStored(kept) };
  await publisher.publish({ exchange: '', routingKey: again, body: Buffer.from('x'), properties, mandatory: true });
  const replayed = await consume(again, 'ack');
  await eventually(() => expect(replayed).toHaveLength(1));
  expect(replayed[0]?.headers).toEqual(first[0]?.headers);
  expect(Object.getPrototypeOf(replayed[0]?.headers)).toEqual({ polluted: true });
  expect({}).not.toHaveProperty('polluted');
  expect(replayed[0]?.headers).toMatchObject({
    text: 'a\u0000ü',
    void: null,
    int64: 2 ** 53,
    time: { '!': 'timestamp' },
  });
});

test.each([
  ['a table nested 5 000 deep', rawNest(5_000)],
  ['a table nested 17 000 deep', rawNest(17_000)],
  ['an unsigned 64-bit field', rawField('a', 'L', Buffer.alloc(8, 1))],
])(
  'a message with %s does not keep the others away',
  async (_name, table) => {
    const queue = await broker.queue();
    const got = await consume(queue, 'ack');
    const reconnects = connection.reconnects;
    await publishRawHeaders(broker.raw, queue, table);
    broker.raw.sendToQueue(queue, Buffer.from('next'), { messageId: 'm2' });
    await eventually(() => expect(got.map(({ body }) => body.toString())).toEqual(['x', 'next']));
    expect(connection.reconnects).toBe(reconnects);
    expect(got[0]?.properties.contentType).toBe('text/plain');
    // RabbitMQ 4 turns the 64-bit field into one that can be decoded.
    const { undecodedHeaders, headers } = got[0] as Delivery;
    expect(undecodedHeaders?.equals(table) ?? Object.hasOwn(headers, 'a')).toBe(true);
  },
  30_000,
);
