/** Which broker tests use, and names of their own on it. */
import amqp from 'amqplib';
import type { ChannelModel, ConfirmChannel } from 'amqplib';
import { randomInt, randomUUID } from 'node:crypto';
import { capabilitiesOf } from '../../shared/amqp/capabilities.ts';
import type { QueueType } from '../../shared/amqp/capabilities.ts';
import { AmqpConnection, DEFAULT_AMQP } from '../../shared/amqp/connection.ts';
import type { AmqpOptions } from '../../shared/amqp/connection.ts';
import { namesOf } from '../../shared/amqp/topology.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** The broker under test: `WARREN_TEST_AMQP_URL`, else the standard port with the standard user. */
export const AMQP_URL = process.env['WARREN_TEST_AMQP_URL'] ?? 'amqp://guest:guest@127.0.0.1:5672';

/** Its management API, where there is one: `WARREN_TEST_MANAGEMENT_URL`. */
export const MANAGEMENT_URL = process.env['WARREN_TEST_MANAGEMENT_URL'];

/** The broker as one test file uses it. */
export interface TestBroker extends AsyncDisposable {
  /** Start of all names of this file. */
  readonly prefix: string;
  /** A started and connected connection of ours; stopped with the broker. */
  connect(options?: Partial<AmqpOptions>, log?: Logger): Promise<AmqpConnection>;
  /** A plain amqplib channel, to do to the broker what Warren would not. */
  readonly raw: ConfirmChannel;
  /** Name of a queue that is removed with the broker. */
  queueName(): string;
  /** The type that Warren chooses on this broker. */
  readonly queueType: QueueType;
  /** Declares a queue of that type with a name of its own, and returns the name. */
  queue(args?: Readonly<Record<string, unknown>>): Promise<string>;
  /** Notes an exchange for removal. */
  exchange(name: string): string;
}

/** Opens the broker for one test file. */
export async function openBroker(url: string = AMQP_URL): Promise<TestBroker> {
  const prefix = `t${randomUUID().replaceAll('-', '').slice(0, 12)}`;
  const model = await amqp.connect(url);
  model.on('error', () => undefined);
  const raw = await model.createConfirmChannel();
  raw.on('error', () => undefined);
  const { queueType } = capabilitiesOf(model.connection.serverProperties.version);
  const opened: AmqpConnection[] = [];
  const queues = new Set<string>();
  const exchanges = new Set<string>();
  let count = 0;

  function queueName(): string {
    count += 1;
    const name = `${prefix}.test-${count}`;
    queues.add(name);
    return name;
  }

  return {
    prefix,
    raw,
    queueType,
    queueName,
    async connect(options, log = silentLogger) {
      const deps = { clock: systemClock, log, random: () => randomInt(2 ** 32) / 2 ** 32 };
      const fast = { ...DEFAULT_AMQP, reconnectMinMs: 20, reconnectMaxMs: 200 };
      const connection = new AmqpConnection(deps, { ...fast, urls: [url], connectionName: prefix, ...options });
      opened.push(connection);
      await connection.start();
      await connection.connected({ withinMs: 10_000 });
      return connection;
    },
    async queue(args = {}) {
      const name = queueName();
      await raw.assertQueue(name, { durable: true, arguments: { 'x-queue-type': queueType, ...args } });
      return name;
    },
    exchange(name) {
      exchanges.add(name);
      return name;
    },
    async [Symbol.asyncDispose]() {
      for (const connection of opened) await connection.stop(systemClock.monotonicMs() + 2_000);
      await removeAll(model, { prefix, queues, exchanges });
      await model.close();
    },
  };
}

interface Leftovers {
  readonly prefix: string;
  readonly queues: ReadonlySet<string>;
  readonly exchanges: ReadonlySet<string>;
}

/** Removes what a test made and the topology under its prefix. `queues` are names without prefix. */
export async function removeTopology(prefix: string, queues: readonly string[], url: string = AMQP_URL): Promise<void> {
  const model = await amqp.connect(url);
  const names = namesOf(prefix);
  await removeAll(model, { prefix, queues: new Set(queues.map((queue) => names.queue(queue))), exchanges: new Set() });
  await model.close();
}

async function removeAll(model: ChannelModel, { prefix, queues, exchanges }: Leftovers): Promise<void> {
  const names = namesOf(prefix);
  const channel = await model.createChannel();
  // Deleting what is not there is no error on RabbitMQ.
  for (const queue of [...queues, names.ingress, names.dead]) await channel.deleteQueue(queue);
  for (const exchange of [...exchanges, names.tasks, names.work, names.dlx, names.events]) {
    await channel.deleteExchange(exchange);
  }
  await channel.close();
}
