/** The dead-letter-handler: wires its parts, starts and stops them in order. */
import { Consumer } from '../../shared/amqp/consumer.ts';
import { DEFAULT_PUBLISHER, Publisher } from '../../shared/amqp/publisher.ts';
import { exists } from '../../shared/amqp/topology-drift.ts';
import { fingerprintOf } from '../../shared/dead-letters/fingerprint.ts';
import { compileGroupRules } from '../../shared/dead-letters/group-rules.ts';
import { InputStore } from '../../shared/tasks/input-store.ts';
import { fileStorePart, openFileStore } from '../../shared/files/open-store.ts';
import { HttpServer } from '../../shared/http/server.ts';
import { webhookRuleOf } from '../../shared/http/webhook-url.ts';
import { inOrder } from '../../shared/lifecycle/in-order.ts';
import type { Service, ServiceContext } from '../../shared/lifecycle/process-main.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { createBackbone } from '../../shared/tasks/backbone.ts';
import type { Backbone } from '../../shared/tasks/backbone.ts';
import { TlsFiles } from '../../shared/tls/tls-files.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { FleetFigures } from '../../shared/tasks/fleet-figures.ts';
import { limitsOf } from '../../shared/tasks/submission-limits.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { addAuditRoutes } from './http/audit.routes.ts';
import { addDeadLetterRoutes } from './http/dead-letters.routes.ts';
import { addFailureGroupRoutes } from './http/failure-groups.routes.ts';
import { Alerts } from './alerts.ts';
import { addDiscardRoutes } from './http/discards.routes.ts';
import { addReplayRoutes } from './http/replays.routes.ts';
import { createBookkeeping } from './bookkeeping.ts';
import { createGrouper } from './grouper.ts';
import { Recorder } from './recorder.ts';
import { judgeRefused } from './refusals.ts';
import type { DryRunDeps } from './dry-run.ts';
import { DEFAULT_RUNNER, ReplayRunner } from './replay-runner.ts';
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
      onServerCancel: () => metrics.consumerCancels.add(1, names.dead),
    },
    { queue: names.dead, prefetch: config.deadLetters.prefetch },
  );
  const limits = limitsOf(config, webhookRuleOf(config.webhooks.allowHosts));
  const store = await openFileStore(config.files);
  const inputs = new InputStore(
    { db, store, log, metrics },
    { rowBytes: config.limits.messageBytes, graceMs: config.files.graceMs },
  );
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
  const ruleOf = compileGroupRules(config.deadLetters.groupRules);
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
  const alerts = createAlerts(context, { backbone, metrics, publisher });
  const refreshTypes = async (): Promise<void> => await catalog.refreshAfterMiss();
  const runner = new ReplayRunner(
    {
      db,
      clock,
      log,
      random,
      onFailure,
      metrics,
      invite,
      catalog,
      limits,
      inputs,
      replayer,
      refreshTypes,
      fingerprint: (failure) => fingerprintOf(failure, ruleOf(failure)).id,
    },
    { ...DEFAULT_RUNNER, leaseMs: config.lease.lapseMs },
  );
  const replays = runner.loop();
  metrics.consumerCancels.add(0, names.dead);
  metrics.consumerRegistered.readFrom(() => Number(consumer.isConsuming), names.dead);
  const http = createHttp(context, {
    backbone,
    metrics,
    consumer,
    replays: { db, clock, catalog, limits, inputs, replayer, refreshTypes, wake: () => replays.wake() },
    replayer,
  });

  const part = inOrder(
    [
      { name: 'http', part: http },
      { name: 'recorder', part: recorder },
      { name: 'replays', part: replays },
      { name: 'unfinished replays', part: replayer.loop() },
      { name: 'alerts', part: alerts.loop() },
      { name: 'bookkeeping', part: createBookkeeping({ db, clock, log, random, onFailure, metrics }) },
      { name: 'grouper', part: createGrouper({ db, clock, log, random, onFailure, ruleOf }) },
      {
        name: 'fleet figures',
        part: new FleetFigures({ db, clock, log, random, onFailure, metrics }, { name: 'dead letters' }),
      },
      { name: 'replay publisher', part: publisher },
      { name: 'type catalog', part: catalog },
      fileStorePart(store),
      ...backbone.parts,
    ],
    { clock, log },
  );
  return await Promise.resolve({ part, describe: () => ({ address: http.url }) });
}

interface AlertParts {
  readonly backbone: Backbone;
  readonly metrics: Metrics;
  readonly publisher: Publisher;
}

function createAlerts(
  { config, clock, log, random }: ServiceContext,
  { backbone: { db, names, publishing, onFailure }, metrics, publisher }: AlertParts,
): Alerts {
  const { alerts, amqp, prefix } = config;
  return new Alerts(
    {
      db,
      clock,
      log,
      random,
      onFailure,
      metrics,
      names,
      publish: async (message) => await publisher.publish(message),
      canPublish: () => publisher.isReady,
      hasExchange: async (name) => await exists({ connection: publishing, clock }, 'exchange', name),
    },
    {
      ...alerts,
      installation: prefix,
      // Channels are served one after the other.
      againAfterMs: amqp.confirmWithinMs * (alerts.sendTo.length + 1) + UNFINISHED_MARGIN_MS,
    },
  );
}

interface HttpParts {
  readonly backbone: Backbone;
  readonly metrics: Metrics;
  readonly consumer: Consumer;
  readonly replayer: Replayer;
  readonly replays: DryRunDeps;
}

function createHttp(
  { config, clock, log }: ServiceContext,
  { backbone: { db, publishing, consuming }, metrics, consumer, replayer, replays }: HttpParts,
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
      addRoutes: (app) => {
        addDeadLetterRoutes(app, { db, replayer });
        addFailureGroupRoutes(app, { db });
        addAuditRoutes(app, { db });
        addDiscardRoutes(app, { db, metrics });
        addReplayRoutes(app, replays);
      },
    },
    {
      host: config.http.host,
      port: config.http.deadLetterHandlerPort,
      tls: new TlsFiles(log, 'http', config.http),
      tokens: config.http.tokens,
      bodyBytes: config.limits.messageBytes,
      title: 'Warren Dead Letter API',
      version: '1',
    },
  );
}
