/** An AMQP front door over a real broker and a real database. */
import { partDeps } from './core.ts';
import type { GetMessage } from 'amqplib';
import { randomInt } from 'node:crypto';
import type { Options } from 'amqplib';
import { Consumer } from '../../shared/amqp/consumer.ts';
import { DEFAULT_PUBLISHER, Publisher } from '../../shared/amqp/publisher.ts';
import { applyTopology } from '../../shared/amqp/topology-apply.ts';
import { isOwnQueue, namesOf, topologyOf } from '../../shared/amqp/topology.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { checkMessage } from '../../shared/tasks/check-submission.ts';
import type { CheckedSubmission, SubmissionLimits } from '../../shared/tasks/check-submission.ts';
import type { TaskTypeDescription } from '../../shared/tasks/define-task.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { Ingress } from '../../services/producer/ingress.ts';
import { Submitter } from '../../services/producer/submit.ts';
import { openBroker } from './broker.ts';
import type { TestBroker } from './broker.ts';
import { openDatabase } from './database.ts';
import type { TestDatabase } from './database.ts';
import { eventually } from './eventually.ts';
import { DEFAULT_LIMITS, SERVICE_PLANS } from './task-api.ts';

/** A front door that takes messages. */
export interface TestFrontDoor extends AsyncDisposable {
  readonly db: TestDatabase;
  readonly broker: TestBroker;
  readonly names: Names;
  readonly ingress: Ingress;
  readonly metrics: Metrics;
  setOutboxFull(isFull: boolean): void;
  /** Publishes to the front door and waits for the broker's confirm. */
  publish(type: string, body: string | Buffer, options?: Options.Publish): Promise<void>;
  /** Rows of a query. */
  rows<T = Record<string, unknown>>(sql: string): Promise<readonly T[]>;
  /** Takes the next dead message, waiting for it; `faults` is what the check says of it. */
  nextDead(): Promise<{ readonly message: GetMessage; readonly faults: readonly { code: string; field: string }[] }>;
  /** Takes the next message of a queue, waiting for it. */
  next(queue: string): Promise<GetMessage>;
}

/** How a front door differs from a plain one. */
export interface FrontDoorOptions {
  readonly limits?: Partial<SubmissionLimits>;
  /** The database as the front door sees it; default the test's own. */
  readonly through?: (db: TestDatabase) => Promise<Database>;
  /** URL of the broker as the front door reaches it; default the test's own. */
  readonly amqpUrl?: string;
  /** False to declare all and start nothing. */
  readonly isStarted?: boolean;
}

/** Opens one. */
export async function openFrontDoor(
  types: readonly TaskTypeDescription[],
  options: FrontDoorOptions = {},
): Promise<TestFrontDoor> {
  const db = await openDatabase({ settings: SERVICE_PLANS });
  await announceTypes(db.database, types, 'test');
  const broker = await openBroker();
  const connection = await broker.connect(options.amqpUrl === undefined ? {} : { urls: [options.amqpUrl] });
  const names = namesOf(broker.prefix);
  const queueType = connection.capabilities?.queueType ?? 'classic';
  const base = { clock: systemClock, log: silentLogger, random: () => randomInt(2 ** 32) / 2 ** 32 };
  await applyTopology({ ...base, connection }, topologyOf({ prefix: broker.prefix, queues: [], queueType }));
  const seen = (await options.through?.(db)) ?? db.database;
  const catalog = new TypeCatalog({ ...base, db: seen });
  let isFull = false;
  const submitter = new Submitter(
    {
      db: seen,
      log: silentLogger,
      invite: async () => await Promise.resolve(true),
      isOutboxFull: () => isFull,
      holdReasonOf: () => undefined,
      metrics: partDeps.metrics,
    },
    { maxBatch: 500 },
  );
  const metrics = createMetrics({ service: 'producer', version: '', withProcess: false });
  const publisher = new Publisher({ ...base, connection }, { ...DEFAULT_PUBLISHER, name: 'replies' });
  const limits = { ...DEFAULT_LIMITS, isOwnQueue: (name: string) => isOwnQueue(name, names), ...options.limits };
  const ingress = new Ingress(
    {
      ...base,
      createConsumer: (onDelivery) =>
        new Consumer({ ...base, connection, onDelivery }, { queue: names.ingress, prefetch: 100 }),
      submit: async (submission) => await submitter.submit(submission),
      storeInput: async (submission) => await Promise.resolve(submission),
      catalog,
      publish: async (message) => await publisher.publish(message),
      isDatabaseAvailable: () => seen.isAvailable,
      metrics,
    },
    { limits },
  );
  await catalog.start();
  await publisher.start();
  await eventually(() => {
    if (!publisher.isReady) throw new Error('the publisher is not ready');
  });
  if (options.isStarted !== false) await ingress.start();

  async function next(queue: string): Promise<GetMessage> {
    return await eventually(async () => {
      const message = await broker.raw.get(queue, { noAck: true });
      if (message === false) throw new Error(`nothing in ${queue}`);
      return message;
    });
  }

  return {
    db,
    broker,
    names,
    ingress,
    metrics,
    setOutboxFull: (to) => {
      isFull = to;
    },
    async publish(type, body, properties = {}) {
      await new Promise<void>((resolve, reject) => {
        broker.raw.publish(
          names.tasks,
          type,
          Buffer.from(body),
          { persistent: true, ...properties },
          (refusal: unknown) => (refusal === null ? resolve() : reject(new Error('the broker refused'))),
        );
      });
    },
    async rows<T>(sql: string) {
      return (await db.database.query({ text: sql })).rows as T[];
    },
    next,
    async nextDead() {
      const message = await next(names.dead);
      return { message, faults: faultsOf(message, catalog, limits) };
    },
    async [Symbol.asyncDispose]() {
      await ingress.stop(systemClock.monotonicMs() + 2_000);
      await publisher.stop(systemClock.monotonicMs() + 2_000);
      await catalog.stop(0);
      if (seen !== db.database) await seen.stop(systemClock.monotonicMs() + 2_000);
      await broker[Symbol.asyncDispose]();
      await db[Symbol.asyncDispose]();
    },
  };
}

/** What the front door says of a message that died, its broker's evidence left out. */
function faultsOf(
  { fields, properties, content }: GetMessage,
  catalog: TypeCatalog,
  limits: SubmissionLimits,
): readonly { code: string; field: string }[] {
  const given = Object.entries(properties.headers ?? {}).filter(([name]) => !/^x-(death|first|last)/.test(name));
  const checked: CheckedSubmission = checkMessage(
    {
      body: content,
      exchange: fields.exchange,
      routingKey: fields.routingKey,
      properties: properties as unknown as Record<string, unknown>,
      headers: Object.fromEntries(given),
    },
    catalog,
    limits,
  );
  return checked.kind === 'ok' ? [] : checked.faults.map(({ code, field }) => ({ code, field }));
}
