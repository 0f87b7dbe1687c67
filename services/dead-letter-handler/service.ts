/** The dead-letter-handler: wires its parts, starts and stops them in order. */
import { Consumer } from '../../shared/amqp/consumer.ts';
import { DEFAULT_PUBLISHER, Publisher } from '../../shared/amqp/publisher.ts';
import { exists } from '../../shared/amqp/topology-drift.ts';
import { HttpServer } from '../../shared/http/server.ts';
import { inOrder } from '../../shared/lifecycle/in-order.ts';
import type { Service, ServiceContext } from '../../shared/lifecycle/process-main.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { createBackbone } from '../../shared/tasks/backbone.ts';
import type { Backbone } from '../../shared/tasks/backbone.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { addDeadLetterRoutes } from './http/dead-letters.routes.ts';
import { createBookkeeping } from './bookkeeping.ts';
import { Recorder } from './recorder.ts';
import { judgeRefused } from './refusals.ts';
import { Replayer } from './replayer.ts';

const NAME = 'dead-letter-handler';
const PING_WITHIN_MS = 1_500;
/** Milliseconds beyond the confirm of a replay after which somebody else finishes it. */
const UNFINISHED_MARGIN_MS = 5_000;

/** Makes a dead-letter-handler. */
export async function createDeadLetterHandler(context: ServiceContext): Promise<Service> {
  const { config, clock, log, random } = context;
  const metrics = createMetrics({ service: NAME, version: config.worker.codeVersion, withProcess: true });
  const backbone = createBackbone({ ...context, metrics }, { service: NAME, queues: () => catalog.queues() });
  const { db, names, inviter, publishing, consuming, topology, onFailure } = backbone;
  const catalog = new TypeCatalog({ db, clock, log, random, onFailure });
  const invite = async (row: OutboxRow): Promise<boolean> => await inviter.invite(row);

  const consumer: Consumer = new Consumer(
    {
      connection: consuming,
      clock,
      log,
      random,
      onDelivery: (delivery) => recorder.take(delivery),
      onQueueMissing: async () => await Promise.resolve(topology.declareAgain()),
    },
    { queue: names.dead, prefetch: config.deadLetters.prefetch },
  );
  const limits = { ...config.limits, requireMessageId: config.producer.requireMessageId };
  const recorder = new Recorder({
    db,
    clock,
    log,
    random,
    metrics,
    names,
    consumer,
    invite,
    judge: async (messages) => await judgeRefused(messages, { db, catalog, limits }),
  });
  // Its own channel: a destination that is gone closes it, and no invitation may suffer from that.
  const publisher = new Publisher(
    { connection: publishing, clock, log },
    { ...DEFAULT_PUBLISHER, name: 'replay', confirmWithinMs: config.amqp.confirmWithinMs },
  );
  const replayer = new Replayer(
    {
      db,
      clock,
      log,
      random,
      onFailure,
      metrics,
      names,
      invite,
      publish: async (message) => await publisher.publish(message),
      hasExchange: async (name) => await exists({ connection: publishing, clock }, 'exchange', name),
    },
    {
      destinations: config.deadLetters.replayDestinations,
      unfinishedAfterMs: config.amqp.confirmWithinMs + UNFINISHED_MARGIN_MS,
    },
  );
  metrics.consumerRegistered.readFrom(() => Number(consumer.isConsuming), names.dead);
  const http = createHttp(context, { backbone, metrics, consumer, replayer });

  const part = inOrder(
    [
      { name: 'http', part: http },
      { name: 'recorder', part: recorder },
      { name: 'unfinished replays', part: replayer.loop() },
      { name: 'bookkeeping', part: createBookkeeping({ db, clock, log, random, onFailure, metrics }) },
      { name: 'replay publisher', part: publisher },
      { name: 'type catalog', part: catalog },
      ...backbone.parts,
    ],
    log,
  );
  return await Promise.resolve({ part, describe: () => ({ address: http.url }) });
}

interface HttpParts {
  readonly backbone: Backbone;
  readonly metrics: Metrics;
  readonly consumer: Consumer;
  readonly replayer: Replayer;
}

function createHttp(
  { config, clock, log }: ServiceContext,
  { backbone: { db, publishing, consuming }, metrics, consumer, replayer }: HttpParts,
): HttpServer {
  return new HttpServer(
    {
      clock,
      log,
      metrics,
      checks: [
        { name: 'postgres', check: async () => (await db.ping(PING_WITHIN_MS)).reason },
        {
          name: 'rabbitmq',
          check: () => (publishing.isConnected && consuming.isConnected ? undefined : 'not connected'),
        },
        { name: 'consumer', check: () => (consumer.isConsuming ? undefined : 'not registered') },
      ],
      addRoutes: (app) => addDeadLetterRoutes(app, { db, replayer }),
    },
    {
      host: config.http.host,
      port: config.http.deadLetterHandlerPort,
      tokens: config.http.tokens,
      bodyBytes: config.limits.messageBytes,
      title: 'Warren Dead Letter API',
      version: '1',
    },
  );
}
