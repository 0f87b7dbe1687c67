/** How fast a handler takes note of dead letters: the broker's evidence of dead tasks, and messages that never became tasks. */
import { connect } from 'amqplib';
import type { Channel, ConfirmChannel } from 'amqplib';
import { join } from 'node:path';
import { startProcess } from '../../../scripts/fleet.ts';
import { withDatabase } from '../../../scripts/provision.ts';
import { encodeInvitation } from '../../../shared/amqp/message.ts';
import { namesOf, topologyOf } from '../../../shared/amqp/topology.ts';
import { applyTopology } from '../../../shared/amqp/topology-apply.ts';
import { AmqpConnection, DEFAULT_AMQP } from '../../../shared/amqp/connection.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import type { Database } from '../../../shared/postgres/pool.ts';
import { run } from '../../../shared/postgres/statement.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { countUngrouped, makeDeadTasks, recordingSpan } from './dead-letters.sql.ts';

/** Where the benchmark of dead letters runs. */
export interface DeadLetterSite {
  readonly root: string;
  readonly amqpUrl: string;
  readonly databaseUrl: string;
  readonly prefix: string;
}

/** What recording gave. */
export interface RecordingFigures {
  /** Letters a second, from when the first is recorded until the last one is in its group. */
  readonly perSecond: number;
}

const CHUNK = 5_000;
const WITHIN_MS = 300_000;
const REFUSED_SHARE = 0.2;

/** Fills the dead-letter queue with `letters` messages, four of five of dead tasks, then lets one handler loose on them. */
export async function measureRecording(site: DeadLetterSite, letters: number): Promise<RecordingFigures> {
  return await withDatabase(site.databaseUrl, async (db) => {
    const refused = Math.round(letters * REFUSED_SHARE);
    await fill(site, db, { ofTasks: letters - refused, refused });
    const handler = await startHandler(site);
    try {
      await untilGrouped(db, letters);
      const [span] = await run(db, recordingSpan);
      return { perSecond: letters / (span?.seconds ?? Number.NaN) };
    } finally {
      await handler.stop();
    }
  });
}

/** One dead-letter-handler as a process. */
export async function startHandler(site: DeadLetterSite): ReturnType<typeof startProcess> {
  return await startProcess({
    root: site.root,
    service: 'dead-letter-handler',
    name: 'dead-letter-handler',
    logDir: join(site.root, '.warren', 'bench'),
    env: {
      AMQP_URL: site.amqpUrl,
      DATABASE_URL: site.databaseUrl,
      WARREN_PREFIX: site.prefix,
      WARREN_HTTP_DEAD_LETTER_HANDLER_PORT: '0',
      WARREN_LOG_LEVEL: 'info',
    },
  });
}

/** Waits until `letters` letters are recorded and in their groups. */
export async function untilGrouped(db: Database, letters: number): Promise<void> {
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  for (;;) {
    const [left] = await run(db, countUngrouped);
    if (left !== undefined && left.letters >= letters && left.ungrouped === 0 && left.unrecorded === 0) return;
    if (systemClock.monotonicMs() > untilMs) throw new Error(`not in time: ${JSON.stringify(left)}`);
    await systemClock.sleep(100);
  }
}

async function fill(
  { amqpUrl, prefix }: DeadLetterSite,
  db: Database,
  { ofTasks, refused }: { readonly ofTasks: number; readonly refused: number },
): Promise<void> {
  const names = namesOf(prefix);
  await declareTopology(amqpUrl, prefix);
  const connection = await connect(amqpUrl);
  const publishing = await connection.createConfirmChannel();
  for (let made = 0; made < ofTasks; made += CHUNK) {
    const tasks = await run(db, makeDeadTasks, Math.min(CHUNK, ofTasks - made), made);
    for (const { id, type } of tasks) {
      const body = encodeInvitation({ taskId: id, type, generation: 1 });
      publishing.publish(names.work, 'default', body, { persistent: true, messageId: id, priority: 4 });
    }
    await publishing.waitForConfirms();
  }
  await publishRefused(publishing, names.tasks, refused);
  const rejecting = await connection.createChannel();
  await rejectAll(rejecting, names.queue('default'), ofTasks);
  await rejectAll(rejecting, names.ingress, refused);
  await untilMoved(publishing, names.dead, ofTasks + refused);
  await connection.close();
}

async function publishRefused(channel: ConfirmChannel, exchange: string, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += 1) {
    const properties = { persistent: true, messageId: `refused-${sent}`, contentType: 'application/json' };
    channel.publish(exchange, `no.such.type${sent % 5}`, Buffer.from(`{"order":${sent}}`), properties);
    if (sent % CHUNK === CHUNK - 1) await channel.waitForConfirms();
  }
  await channel.waitForConfirms();
}

async function rejectAll(channel: Channel, queue: string, count: number): Promise<void> {
  if (count === 0) return;
  await channel.prefetch(1_000);
  let taken = 0;
  await new Promise<void>((resolve, reject) => {
    channel
      .consume(
        queue,
        (message) => {
          if (message === null) return;
          channel.reject(message, false);
          taken += 1;
          if (taken === count) resolve();
        },
        { consumerTag: queue },
      )
      .catch(reject);
  });
  await channel.cancel(queue);
}

async function untilMoved(channel: Channel, queue: string, count: number): Promise<void> {
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  while ((await channel.checkQueue(queue)).messageCount < count) {
    if (systemClock.monotonicMs() > untilMs) throw new Error('the broker did not move the rejected messages in time');
    await systemClock.sleep(100);
  }
}

/** Declares what a fleet of this prefix has. */
export async function declareTopology(amqpUrl: string, prefix: string): Promise<void> {
  const connection = new AmqpConnection(
    { clock: systemClock, log: silentLogger, random: Math.random },
    { ...DEFAULT_AMQP, urls: [amqpUrl], connectionName: 'warren-bench' },
  );
  await connection.start();
  try {
    await whenConnected(connection);
    const queueType = connection.capabilities?.queueType ?? 'classic';
    await applyTopology(
      { connection, clock: systemClock, log: silentLogger },
      topologyOf({ prefix, queues: ['default'], queueType }),
    );
  } finally {
    await connection.stop(systemClock.monotonicMs() + 2_000);
  }
}

async function whenConnected(connection: AmqpConnection): Promise<void> {
  const untilMs = systemClock.monotonicMs() + 10_000;
  while (!connection.isConnected) {
    if (systemClock.monotonicMs() > untilMs) throw new Error('RabbitMQ does not answer');
    await systemClock.sleep(20);
  }
}
