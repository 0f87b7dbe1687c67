import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { capabilitiesOf } from '../../shared/amqp/capabilities.ts';
import type { AmqpConnection } from '../../shared/amqp/connection.ts';
import { Consumer } from '../../shared/amqp/consumer.ts';
import type { Delivery } from '../../shared/amqp/consumer.ts';
import { DEFAULT_PUBLISHER, Publisher } from '../../shared/amqp/publisher.ts';
import type { PublisherDeps } from '../../shared/amqp/publisher.ts';
import { queueCounts, readyCount } from '../../shared/amqp/throwaway-channel.ts';
import { applyTopology } from '../../shared/amqp/topology-apply.ts';
import type { TopologyApplyDeps } from '../../shared/amqp/topology-apply.ts';
import { findDrift } from '../../shared/amqp/topology-drift.ts';
import { TopologyKeeper } from '../../shared/amqp/topology-keeper.ts';
import { namesOf, topologyOf } from '../../shared/amqp/topology.ts';
import type { Topology } from '../../shared/amqp/topology.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { LogFields } from '../../shared/observability/log.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';

const QUEUES = ['high', 'low'];

interface Arranged extends AsyncDisposable {
  readonly broker: TestBroker;
  readonly connection: AmqpConnection;
  readonly deps: TopologyApplyDeps & PublisherDeps;
  readonly topology: Topology;
  readonly warnings: LogFields[];
}

async function arrange(): Promise<Arranged> {
  const broker = await openBroker();
  const connection = await broker.connect();
  const warnings: LogFields[] = [];
  const log = { ...silentLogger, warn: (_message: string, fields: LogFields = {}) => void warnings.push(fields) };
  return {
    broker,
    connection,
    warnings,
    deps: { connection, clock: systemClock, log },
    topology: topologyOf({ prefix: broker.prefix, queues: QUEUES, queueType: broker.queueType }),
    async [Symbol.asyncDispose]() {
      for (const queue of QUEUES) await broker.raw.deleteQueue(namesOf(broker.prefix).queue(queue));
      await broker[Symbol.asyncDispose]();
    },
  };
}

describe('applying the topology', () => {
  test('declares what is missing, and the second time nothing', async () => {
    await using arranged = await arrange();
    const { deps, topology } = arranged;
    expect(await findDrift(deps, topology)).toHaveLength(topology.exchanges.length + topology.queues.length);
    const first = await applyTopology(deps, topology);
    expect(first.created).toHaveLength(topology.exchanges.length + topology.queues.length);
    expect(await applyTopology(deps, topology)).toEqual({ created: [], drift: [] });
    expect(await findDrift(deps, topology)).toEqual([]);
  });

  test('several processes may do it at once', async () => {
    await using arranged = await arrange();
    const { deps, topology } = arranged;
    const results = await Promise.all([1, 2, 3].map(async () => await applyTopology(deps, topology)));
    expect(results.flatMap(({ drift }) => drift)).toEqual([]);
  });

  test('keeps a queue with other arguments, and names each that differs', async () => {
    await using arranged = await arrange();
    const { broker, deps, topology, warnings } = arranged;
    const { ingress, dlx } = namesOf(broker.prefix);
    const other = { ...topology.queues[0]?.arguments, 'x-dead-letter-exchange': 'elsewhere', 'x-max-length': 77 };
    await broker.raw.assertQueue(ingress, { durable: true, arguments: other });
    await new Promise((resolve) => broker.raw.sendToQueue(ingress, Buffer.from('kept'), {}, resolve));

    const { created, drift } = await applyTopology(deps, topology);

    expect(created).not.toContain(ingress);
    expect(drift).toHaveLength(2);
    const differs = { kind: 'queue', name: ingress, problem: 'differs' };
    expect(drift).toContainEqual({ ...differs, argument: 'x-max-length', expected: 'none', actual: '77' });
    expect(drift).toContainEqual({
      ...differs,
      argument: 'x-dead-letter-exchange',
      expected: dlx,
      actual: 'elsewhere',
    });
    expect(warnings[0]).toMatchObject({ err: { code: 'topology-drift', facts: { queue: ingress } } });
    await eventually(async () => expect(await readyCount(deps, ingress)).toBe(1));
  });

  test('keeps a queue of another type, and names the type', async () => {
    await using arranged = await arrange();
    const { broker, deps, topology } = arranged;
    const name = namesOf(broker.prefix).queue('high');
    const type = broker.queueType === 'quorum' ? 'classic' : 'quorum';
    await broker.raw.assertQueue(name, { durable: true, arguments: { 'x-queue-type': type } });
    const { drift } = await applyTopology(deps, topology);
    expect(drift).toMatchObject([{ name, argument: 'x-queue-type', expected: broker.queueType, actual: type }]);
  });

  test('names an exchange of another type', async () => {
    await using arranged = await arrange();
    const { broker, deps, topology } = arranged;
    await broker.raw.assertExchange(namesOf(broker.prefix).dlx, 'fanout');
    const { drift } = await applyTopology(deps, topology);
    expect(drift).toEqual([
      {
        kind: 'exchange',
        name: namesOf(broker.prefix).dlx,
        problem: 'differs',
        argument: 'type',
        expected: 'topic',
        actual: 'fanout',
      },
    ]);
  });
});

describe('a keeper of the topology', () => {
  test('declares nothing where it may not, and is content once another has declared', async () => {
    await using arranged = await arrange();
    const { broker, deps, topology } = arranged;
    await broker.raw.deleteQueue(namesOf(broker.prefix).dead);
    const keeper = new TopologyKeeper(
      { ...deps, random: () => 0.5, queues: () => QUEUES },
      { prefix: broker.prefix, queueType: 'auto', lookAgainMs: 100, mayDeclare: false },
    );
    await keeper.start();
    await keeper.whenApplied(AbortSignal.timeout(1_500)); // some rounds
    const drift = await findDrift(deps, topology);
    expect(keeper.isApplied).toBe(false);
    expect(drift).toContainEqual({ kind: 'queue', name: namesOf(broker.prefix).dead, problem: 'missing' });
    await applyTopology(deps, topology);
    await keeper.whenApplied(AbortSignal.timeout(30_000));
    expect(keeper.isApplied).toBe(true);
    await keeper.stop(systemClock.monotonicMs() + 2_000);
  });

  test('declares exchanges anew that somebody deleted, and binds the front door again', async () => {
    await using arranged = await arrange();
    const { broker, deps } = arranged;
    const keeper = new TopologyKeeper(
      { ...deps, random: () => 0.5, queues: () => QUEUES },
      { prefix: broker.prefix, queueType: 'auto', lookAgainMs: 100, mayDeclare: true },
    );
    await keeper.start();
    await keeper.whenApplied(AbortSignal.timeout(30_000));
    const names = namesOf(broker.prefix);
    await broker.raw.deleteExchange(names.work);
    await broker.raw.deleteExchange(names.tasks);
    await broker.raw.unbindQueue(names.dead, names.dlx, '#');
    await eventually(async () => expect(await findDrift(deps, arranged.topology)).toEqual([]));
    const publisher = new Publisher(deps, { ...DEFAULT_PUBLISHER, name: 'test' });
    await publisher.start();
    for (const [exchange, routingKey] of [
      [names.tasks, 'any.type'],
      [names.work, 'low'],
      [names.dlx, 'any'],
    ] as const) {
      const message = { exchange, routingKey, body: Buffer.from('x'), properties: {}, mandatory: true };
      await eventually(async () => await publisher.publish(message));
    }
    await publisher.stop(systemClock.monotonicMs() + 2_000);
    await keeper.stop(systemClock.monotonicMs() + 2_000);
  });
});

describe('on the declared topology', () => {
  let arranged: Arranged;
  let publisher: Publisher;

  beforeAll(async () => {
    arranged = await arrange();
    await applyTopology(arranged.deps, arranged.topology);
    publisher = new Publisher(arranged.deps, { ...DEFAULT_PUBLISHER, name: 'test' });
    await publisher.start();
  });

  afterAll(async () => {
    await arranged[Symbol.asyncDispose]();
  });

  async function publish(exchange: string, routingKey: string, body: string, priority?: number): Promise<void> {
    const properties = priority === undefined ? {} : { priority };
    const message = { exchange, routingKey, body: Buffer.from(body), properties, mandatory: true };
    await eventually(() => expect(publisher.isReady).toBe(true));
    await publisher.publish(message);
  }

  test('each of the ten priorities counts, highest first', async () => {
    const { broker, connection } = arranged;
    const names = namesOf(broker.prefix);
    for (const priority of [4, 0, 9, 1, 8, 2, 7, 3, 6, 5]) await publish(names.work, 'low', String(priority), priority);
    const got: string[] = [];
    const consumer = new Consumer(
      {
        connection,
        clock: systemClock,
        log: silentLogger,
        random: () => 0,
        onDelivery: (delivery) => {
          got.push(delivery.body.toString());
          delivery.ack();
        },
      },
      { queue: names.queue('low'), prefetch: 1 },
    );
    await consumer.start();
    await eventually(() => expect(got.join('')).toBe('9876543210'));
    await consumer.stop(systemClock.monotonicMs() + 2_000);
  });

  test('an invitation to a queue that is not there is unroutable', async () => {
    const { work } = namesOf(arranged.broker.prefix);
    await expect(publish(work, 'none', 'x')).rejects.toMatchObject({ code: 'unroutable' });
  });

  test('whatever is rejected, with whatever key, comes to the dead queue with the evidence', async () => {
    const { broker, connection, deps } = arranged;
    const names = namesOf(broker.prefix);
    const reject = (delivery: Delivery): void => delivery.reject();
    const common = { connection, clock: systemClock, log: silentLogger, random: () => 0, onDelivery: reject };
    const consumers = [names.ingress, names.queue('high')].map(
      (queue) => new Consumer(common, { queue, prefetch: 10 }),
    );
    for (const consumer of consumers) await consumer.start();
    await publish(names.tasks, 'report.csv', 'a');
    await publish(names.tasks, '', 'b');
    await publish(names.work, 'high', 'c');
    await eventually(async () => expect(await readyCount(deps, names.dead)).toBe(3));
    for (const consumer of consumers) await consumer.stop(systemClock.monotonicMs() + 2_000);
    const letters = new Map<string, { key: string; queue: unknown; reason: unknown }>();
    for (let left = 3; left > 0; left -= 1) {
      const letter = await broker.raw.get(names.dead, { noAck: true });
      if (letter === false) continue;
      const death = letter.properties.headers?.['x-death']?.[0];
      const { routingKey: key } = letter.fields;
      letters.set(letter.content.toString(), { key, queue: death?.queue, reason: death?.reason });
    }
    expect(Object.fromEntries(letters)).toEqual({
      a: { key: 'report.csv', queue: names.ingress, reason: 'rejected' },
      b: { key: '', queue: names.ingress, reason: 'rejected' },
      c: { key: 'high', queue: names.queue('high'), reason: 'rejected' },
    });
  });

  test('counts are those of the queue, and undefined where there is none', async () => {
    const { broker, deps } = arranged;
    const names = namesOf(broker.prefix);
    expect(await queueCounts(deps, names.queue('high'))).toEqual({ ready: 0, consumers: 0 });
    expect(await readyCount(deps, names.queue('none'))).toBeUndefined();
  });

  test('the type that auto chooses is one that this broker takes', () => {
    const version = arranged.connection.brokerVersion ?? '';
    expect(capabilitiesOf(version)).toEqual(arranged.connection.capabilities);
  });
});

test.each(['classic', 'quorum'] as const)('the %s topology is the one on record', async (queueType) => {
  const file = new URL(`../golden/topology-${queueType}.json`, import.meta.url);
  const recorded = JSON.parse(await readFile(file, 'utf8')) as unknown;
  expect(topologyOf({ prefix: 'warren', queues: ['default', 'high'], queueType })).toEqual(recorded);
});
