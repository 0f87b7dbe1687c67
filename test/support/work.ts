/** The way from the outbox to a work queue, over a real broker: the backbone as services make it. */
import type { GetMessage } from 'amqplib';
import { loadConfig } from '../../shared/config/load.ts';
import { inOrder } from '../../shared/lifecycle/in-order.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { createBackbone } from '../../shared/tasks/backbone.ts';
import type { Backbone } from '../../shared/tasks/backbone.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL, openBroker } from './broker.ts';
import type { TestBroker } from './broker.ts';
import { partDeps } from './core.ts';
import { openDatabase } from './database.ts';
import type { TestDatabase } from './database.ts';
import { eventually } from './eventually.ts';

/** A backbone that runs. */
export interface TestWork extends AsyncDisposable {
  readonly opened: TestDatabase;
  /** The test's own way to Postgres. */
  readonly db: TestDatabase['database'];
  readonly broker: TestBroker;
  readonly backbone: Backbone;
  readonly metrics: Metrics;
  /** Takes every message that lies in a work queue, by its short name. */
  take(queue?: string): Promise<GetMessage[]>;
  /** Task ids of the invitations that lie in a work queue, waiting for so many. */
  invitations(wanted: number, queue?: string): Promise<string[]>;
}

/** Opens a database, a broker's corner and the backbone over both; `amqpUrl` may lead through a proxy. */
export async function openWork({
  queues = ['default'],
  amqpUrl = AMQP_URL,
}: { readonly queues?: readonly string[]; readonly amqpUrl?: string } = {}): Promise<TestWork> {
  const opened = await openDatabase();
  const broker = await openBroker();
  const { config } = loadConfig({
    user: 'producer',
    env: {
      DATABASE_URL: opened.url,
      AMQP_URL: amqpUrl,
      WARREN_PREFIX: broker.prefix,
      WARREN_AMQP_RECONNECT_MIN_MS: '50',
      WARREN_AMQP_RECONNECT_MAX_MS: '200',
      WARREN_AMQP_CONFIRM_WITHIN_MS: '1000',
    },
  });
  const metrics = createMetrics({ service: 'test', version: '', withProcess: false });
  const backbone = createBackbone({ ...partDeps, config, metrics }, { service: 'test', queues: () => queues });
  const part = inOrder(backbone.parts, partDeps);
  await part.start();
  await backbone.topology.whenApplied(AbortSignal.timeout(30_000));
  await eventually(() => {
    if (!backbone.publisher.isReady) throw new RangeError('the publisher is not ready');
  });

  async function take(queue = 'default'): Promise<GetMessage[]> {
    const messages: GetMessage[] = [];
    for (;;) {
      const message = await broker.raw.get(backbone.names.queue(queue), { noAck: true });
      if (message === false) return messages;
      messages.push(message);
    }
  }

  return {
    opened,
    db: opened.database,
    broker,
    backbone,
    metrics,
    take,
    async invitations(wanted, queue) {
      const found: string[] = [];
      await eventually(async () => {
        for (const { content } of await take(queue)) {
          found.push((JSON.parse(content.toString()) as { taskId: string }).taskId);
        }
        if (found.length < wanted) throw new RangeError(`${found.length} of ${wanted} invitations are there`);
      });
      return found;
    },
    async [Symbol.asyncDispose]() {
      await part.stop(systemClock.monotonicMs() + 3_000);
      for (const queue of queues) await broker.raw.deleteQueue(backbone.names.queue(queue));
      await broker[Symbol.asyncDispose]();
      await opened[Symbol.asyncDispose]();
    },
  };
}
