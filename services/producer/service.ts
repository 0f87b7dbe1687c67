/** The producer: wires its parts, starts and stops them in order. */
import { randomBytes } from 'node:crypto';
import { Consumer } from '../../shared/amqp/consumer.ts';
import { InputStore } from '../../shared/tasks/input-store.ts';
import { fileStorePart, openFileStore } from '../../shared/files/open-store.ts';
import { HttpServer } from '../../shared/http/server.ts';
import { webhookRuleOf } from '../../shared/http/webhook-url.ts';
import { inOrder } from '../../shared/lifecycle/in-order.ts';
import type { Service, ServiceContext } from '../../shared/lifecycle/process-main.ts';
import { openTracing } from '../../shared/observability/tracing.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { announceQueues } from '../../shared/tasks/announce.ts';
import { createBackbone, whenPostgresAnswers } from '../../shared/tasks/backbone.ts';
import { FleetFigures } from '../../shared/tasks/fleet-figures.ts';
import { TlsFiles } from '../../shared/tls/tls-files.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import type { Acceptance, Submission } from '../../shared/tasks/submission.ts';
import { limitsOf } from '../../shared/tasks/submission-limits.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { createAging } from './aging.ts';
import { Callbacks } from './callbacks.ts';
import { createDispatcher } from './dispatcher.ts';
import { Estimates } from './estimates.ts';
import { createFairDispatcher } from './fair-dispatcher.ts';
import { FlowStarter } from './flow-starter.ts';
import { createFlowFigures } from './flow-figures.ts';
import { createFlowTimers } from './flow-timers.ts';
import { createForgetting } from './forgetting.ts';
import { registerFlowRoutes } from './http/flows.routes.ts';
import { registerHistoryRoutes } from './http/history.routes.ts';
import { Follower } from './follower.ts';
import { registerFollowRoutes } from './http/follow.routes.ts';
import { createFileSweeper } from './file-sweeper.ts';
import { registerFileRoutes } from './http/files.routes.ts';
import { registerLedgerRoutes } from './http/ledger.routes.ts';
import { registerScheduleRoutes } from './http/schedules.routes.ts';
import { registerQueueRoutes } from './http/queues.routes.ts';
import { registerRetentionRoutes } from './http/retention.routes.ts';
import { registerScalingRoutes } from './http/scaling.routes.ts';
import { registerTaskRoutes } from './http/tasks.routes.ts';
import { Ingress } from './ingress.ts';
import { createLedgerAudit } from './ledger-audit.ts';
import { createLifecycleEvents } from './lifecycle-events.ts';
import { createOutboxSweeper } from './outbox-sweeper.ts';
import { createQueueAges } from './queue-ages.ts';
import { createQueueDepths } from './queue-depths.ts';
import { createReaper } from './reaper.ts';
import { createReconciler } from './reconciler.ts';
import { createReleaser } from './releaser.ts';
import { readRules } from './retention-rules.ts';
import { createRetention } from './retention.ts';
import { createReadyOf, Scaling } from './scaling.ts';
import { createScheduler } from './scheduler.ts';
import { Submitter } from './submit.ts';
import { TaskFinder } from './task-finder.ts';

/** Bodies of a batch, in bodies of one task. */
const BATCH_FACTOR = 32;
const ROWS_PER_SWEEP = 100;
const MAX_LOST_ALONE = 3;

/** Makes a producer. */
export async function createProducer(context: ServiceContext): Promise<Service> {
  const { config, clock, log, random } = context;
  const { producer, following, dispatcher, sweeper, reaper, reconciler, ledger, aging, lease, files } = config;
  const rules = readRules(config.retention);
  const metrics = createMetrics({ service: 'producer', version: config.worker.codeVersion, withProcess: true });
  const tracing = openTracing(config.worker.codeVersion);
  let waitingInOutbox = 0;
  const depths = new Map<string, number>();

  const backbone = createBackbone({ ...context, metrics }, { service: 'producer', queues: () => queues() });
  const { db, inviter, publishing, consuming, publisher, topology, names, onFailure } = backbone;
  const catalog = new TypeCatalog({ db, clock, log, random, onFailure });
  const queues = (): readonly string[] => [...new Set([...producer.declaredQueues, ...catalog.queues()])];
  const invite = async (row: OutboxRow): Promise<boolean> => await inviter.invite(row);
  const isOutboxFull = (): boolean => waitingInOutbox >= producer.outboxMaxRows;
  const holdReasonOf = (queue: string): 'turn' | 'draining' | undefined => catalog.holdReasonOf(queue);
  const submitter = new Submitter(
    { db, log, invite, isOutboxFull, holdReasonOf, metrics, tracing },
    { maxBatch: producer.maxBatch },
  );
  const store = await openFileStore(files);
  // On loopback alone: beyond it the configuration must give one.
  const linkSecret = files.linkSecret === '' ? randomBytes(32).toString('hex') : files.linkSecret;
  const canPublish = (): boolean => publishing.isConnected && !publishing.isBlocked;
  const loops = { db, clock, log, random, onFailure, invite, metrics };
  metrics.outboxInvitations.readFrom(() => waitingInOutbox);
  metrics.outboxMaxInvitations.set(producer.outboxMaxRows);
  const figures = new FleetFigures(loops, { name: 'fleet' });
  const finder = new TaskFinder(db);

  const estimates = new Estimates({
    db,
    clock,
    log,
    random,
    onFailure,
    startsInOrder: (queue) => catalog.startsInOrder(queue),
  });
  const readyOf = createReadyOf({ connection: consuming, clock, log, names });
  const runsOf = (type: string): ReturnType<Estimates['runsOf']> => estimates.runsOf(type);
  const scaling = new Scaling({ db, clock, types: () => catalog.types(), runsOf, readyOf }, config.scaling);
  const follower = new Follower({ db, clock, log, random, onFailure }, { maxWatchers: following.maxFollowers });
  metrics.followers.readFrom(() => follower.watchers);
  const limits = limitsOf(config, webhookRuleOf(config.webhooks.allowHosts));
  const inputs = new InputStore(
    { db, store, log, metrics },
    { rowBytes: config.limits.messageBytes, graceMs: files.graceMs },
  );
  const storeInput = async (submission: Submission): Promise<Submission> => {
    if (!inputs.isLarge(submission.input)) return submission;
    const taskId = newId<string>();
    return { ...submission, taskId, ...(await inputs.keep(taskId, submission.input)) };
  };
  const flowBytes = Math.max(config.limits.messageBytes * BATCH_FACTOR, limits.messageBytes);
  const flows = { db, log, invite, holdReasonOf, metrics, tracing };
  const starter = new FlowStarter(flows);
  // What a schedule starts stands in its row, and does not go through the store of files.
  const runLimits = { task: { ...limits, messageBytes: config.limits.messageBytes }, flowBytes };
  const schedules = { ...flows, clock, catalog, limits: runLimits, starter };
  const submit = (submission: Submission): Promise<Acceptance> => submitter.submit(submission);
  const ingress = new Ingress(
    {
      createConsumer: (onDelivery) =>
        new Consumer(
          {
            connection: consuming,
            clock,
            log,
            random,
            onDelivery,
            onQueueMissing: async () => await topology.restore(),
            onServerCancel: () => metrics.consumerCancels.add(1, names.ingress),
          },
          { queue: names.ingress, prefetch: producer.ingressPrefetch },
        ),
      submit,
      storeInput,
      catalog,
      publish: (message) => publisher.publish(message),
      isDatabaseAvailable: () => db.isAvailable,
      clock,
      random,
      log,
      metrics,
    },
    { limits },
  );
  metrics.consumerCancels.add(0, names.ingress);
  metrics.consumerRegistered.readFrom(() => Number(ingress.isConsuming), names.ingress);
  const http = new HttpServer(
    {
      clock,
      log,
      metrics,
      checks: [
        { name: 'postgres', check: () => (db.isAvailable ? undefined : 'does not answer') },
        { name: 'task types', check: () => (catalog.isLoaded ? undefined : 'not loaded yet') },
        {
          name: 'outbox',
          // RabbitMQ away is not a reason to refuse: what is accepted waits in the outbox until that is full.
          check: () => (isOutboxFull() ? 'is full: RabbitMQ has been away for long' : undefined),
        },
        {
          name: 'rabbitmq',
          isAdvisory: true,
          check: () => {
            if (!publishing.isConnected) return 'not connected: invitations wait in the outbox';
            return publishing.isBlocked ? 'blocks publishes: invitations wait in the outbox' : undefined;
          },
        },
        {
          // A front door that hears nothing must show, and yet take no requests from the one over HTTP.
          name: 'front door',
          isAdvisory: true,
          check: () => {
            if (ingress.isPaused) return 'paused: messages wait in their queue';
            return ingress.isConsuming ? undefined : 'not registered with the broker';
          },
        },
      ],
      addRoutes: (app) => {
        const followed = { estimates, follower, maxWaitSeconds: following.maxWaitSeconds };
        const submitted = { submit, storeInput, inputs, finder, limits, batchBytes: flowBytes };
        registerTaskRoutes(app, { db, log, catalog, metrics, invite, isOutboxFull, ...submitted, ...followed });
        registerFlowRoutes(app, { ...flows, catalog, isOutboxFull, starter, limits, flowBytes });
        registerScheduleRoutes(app, schedules);
        registerFollowRoutes(app, { clock, follower, estimates });
        registerQueueRoutes(app, { db, log, catalog, readyOf: (queue) => depths.get(queue) });
        registerScalingRoutes(app, scaling, config.scaling);
        registerHistoryRoutes(app, { db, log, depth: limits.depth });
        registerFileRoutes(
          app,
          { db, store, linkSecret, clock, metrics, log },
          { ...files, depth: config.limits.depth },
        );
        registerLedgerRoutes(app, { db, clock, lapseMs: lease.lapseMs });
        registerRetentionRoutes(app, { db, clock, rules });
      },
    },
    {
      host: config.http.host,
      port: config.http.producerPort,
      tls: new TlsFiles(log, 'http', config.http),
      tokens: config.http.tokens,
      bodyBytes: config.limits.messageBytes,
      title: 'Warren Task API',
      version: '1',
    },
  );

  // Work comes in at the top: stopped first, so that what was accepted is invited before its connection closes.
  const part = inOrder(
    [
      { name: 'http', part: http },
      { name: 'ingress', part: ingress },
      {
        name: 'dispatcher',
        part: createDispatcher(loops, { intervalMs: dispatcher.intervalMs, batchSize: dispatcher.maxBatch }),
      },
      {
        name: 'outbox sweeper',
        part: createOutboxSweeper(
          {
            ...loops,
            canPublish,
            onMeasured: (invitations, rows) => {
              waitingInOutbox = invitations;
              metrics.outboxRows.set(rows);
            },
          },
          { intervalMs: sweeper.intervalMs, batchSize: ROWS_PER_SWEEP, retryInMs: sweeper.afterMs },
        ),
      },
      {
        name: 'reaper',
        part: createReaper(loops, {
          intervalMs: reaper.intervalMs,
          lapseMs: lease.lapseMs,
          maxLostAlone: MAX_LOST_ALONE,
        }),
      },
      {
        name: 'reconciler',
        part: createReconciler(
          { ...loops, connection: consuming, names, queues, publish: backbone.invite, canPublish },
          reconciler,
        ),
      },
      {
        name: 'ledger audit',
        part: createLedgerAudit(loops, { intervalMs: ledger.intervalMs, strandedAfterMs: ledger.strandedAfterMs }),
      },
      { name: 'releaser', part: createReleaser(loops) },
      { name: 'flow timers', part: createFlowTimers(loops) },
      { name: 'scheduler', part: createScheduler({ ...loops, ...schedules }, config.scheduler) },
      { name: 'flow figures', part: createFlowFigures({ ...loops, figures }) },
      { name: 'fair dispatcher', part: createFairDispatcher(loops) },
      { name: 'retention', part: createRetention(loops, rules, config.retention) },
      { name: 'aging', part: createAging({ ...loops, publish: backbone.invite }, aging) },
      {
        name: 'queue depths',
        part: createQueueDepths({
          ...loops,
          connection: consuming,
          names,
          queues,
          onRead: (queue, ready) => void depths.set(queue, ready),
        }),
      },
      {
        name: 'queue ages',
        part: createQueueAges(
          { ...loops, queues, readyOf: (queue) => depths.get(queue), isShown: () => figures.areOurs },
          { lapseMs: lease.lapseMs },
        ),
      },
      { name: 'fleet figures', part: figures },
      { name: 'forgetting', part: createForgetting(loops) },
      {
        name: 'callbacks',
        part: new Callbacks(
          { ...loops, catalog, submit, publish: (message) => publisher.publish(message), canPublish, names },
          config.callbacks,
        ).loop(),
      },
      {
        name: 'lifecycle events',
        part: createLifecycleEvents(
          { ...loops, exchange: names.events, publish: (message) => publisher.publish(message), canPublish },
          { isEnabled: config.events.enabled, installation: config.prefix },
        ),
      },
      { name: 'follower', part: follower },
      { name: 'estimates', part: estimates },
      ...(store === undefined ? [] : [{ name: 'file sweeper', part: createFileSweeper({ ...loops, store }, files) }]),
      { name: 'type catalog', part: catalog },
      {
        name: 'queues',
        part: {
          start: async () =>
            await whenPostgresAnswers(context, async () => await announceQueues(db, producer.declaredQueues)),
          stop: async () => await Promise.resolve(),
        },
      },
      fileStorePart(store),
      ...backbone.parts,
    ],
    { clock, log },
  );
  return { part, describe: () => ({ address: http.url }) };
}
