/** The producer: wires its parts, starts and stops them in order. */
import { Consumer } from '../../shared/amqp/consumer.ts';
import { HttpServer } from '../../shared/http/server.ts';
import { inOrder } from '../../shared/lifecycle/in-order.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Service, ServiceContext } from '../../shared/lifecycle/process-main.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { announceQueues } from '../../shared/tasks/announce.ts';
import { createBackbone, whenPostgresAnswers } from '../../shared/tasks/backbone.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import type { Acceptance, Submission } from '../../shared/tasks/submission.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { createAging } from './aging.ts';
import { createDispatcher } from './dispatcher.ts';
import { registerLedgerRoutes } from './http/ledger.routes.ts';
import { registerTaskRoutes } from './http/tasks.routes.ts';
import { Ingress } from './ingress.ts';
import { createLedgerAudit } from './ledger-audit.ts';
import { createOutboxSweeper } from './outbox-sweeper.ts';
import { createQueueDepths } from './queue-depths.ts';
import { createReaper } from './reaper.ts';
import { createReconciler } from './reconciler.ts';
import { Submitter } from './submit.ts';
import { forgetMessageIds } from './submit.sql.ts';

const ROWS_PER_SWEEP = 100;
const MAX_LOST_ALONE = 3;
const FORGET_EVERY_MS = 60_000;
const MOST_FORGOTTEN = 5_000;

/** Makes a producer. */
export async function createProducer(context: ServiceContext): Promise<Service> {
  const { config, clock, log, random } = context;
  const { producer, dispatcher, sweeper, reaper, reconciler, ledger, aging, lease } = config;
  const metrics = createMetrics({ service: 'producer', version: config.worker.codeVersion, withProcess: true });
  let waitingInOutbox = 0;

  const backbone = createBackbone({ ...context, metrics }, { service: 'producer', queues: () => queues() });
  const { db, inviter, publishing, consuming, publisher, topology, names, onFailure } = backbone;
  const catalog = new TypeCatalog({ db, clock, log, random, onFailure });
  const queues = (): readonly string[] => [...new Set([...producer.declaredQueues, ...catalog.queues()])];
  const invite = async (row: OutboxRow): Promise<boolean> => await inviter.invite(row);
  const submitter = new Submitter(
    { db, log, invite, isOutboxFull: () => waitingInOutbox >= producer.outboxMaxRows },
    { maxBatch: producer.maxBatch },
  );
  const canPublish = (): boolean => publishing.isConnected && !publishing.isBlocked;
  const loops = { db, clock, log, random, onFailure, invite, metrics };
  metrics.outboxInvitations.readFrom(() => waitingInOutbox);

  const limits = { ...config.limits, requireMessageId: producer.requireMessageId };
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
          },
          { queue: names.ingress, prefetch: producer.ingressPrefetch },
        ),
      submit,
      catalog,
      publish: (message) => publisher.publish(message),
      isDatabaseAvailable: () => db.isAvailable,
      clock,
      random,
      log,
      metrics,
    },
    { limits, names },
  );
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
          check: () =>
            waitingInOutbox < producer.outboxMaxRows ? undefined : 'is full: RabbitMQ has been away for long',
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
        registerTaskRoutes(app, { db, log, catalog, metrics, limits, submit });
        registerLedgerRoutes(app, { db, clock });
      },
    },
    {
      host: config.http.host,
      port: config.http.producerPort,
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
      { name: 'aging', part: createAging({ ...loops, publish: backbone.invite }, aging) },
      { name: 'queue depths', part: createQueueDepths({ ...loops, connection: consuming, names, queues }) },
      { name: 'message ids', part: createForgetting(loops) },
      { name: 'type catalog', part: catalog },
      {
        name: 'queues',
        part: {
          start: async () =>
            await whenPostgresAnswers(context, async () => await announceQueues(db, producer.declaredQueues)),
          stop: async () => await Promise.resolve(),
        },
      },
      ...backbone.parts,
    ],
    log,
  );
  return await Promise.resolve({ part, describe: () => ({ address: http.url }) });
}

/** Forgets message ids whose seven days are over. */
function createForgetting(deps: Omit<LoopDeps, 'round'> & { readonly db: Database }): Part {
  const round = async (): Promise<boolean> => (await run(deps.db, forgetMessageIds)).length === MOST_FORGOTTEN;
  return new Loop({ ...deps, round }, { name: 'message ids', intervalMs: FORGET_EVERY_MS });
}
