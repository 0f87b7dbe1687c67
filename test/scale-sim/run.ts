/** One run: a fleet of its own, scaled by a ScaledObject under a load. */
import {
  createDatabaseBeside,
  deleteTopology,
  dropDatabaseBeside,
  prepareDatabase,
  withDatabase,
} from '../../scripts/provision.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { ANY_PORT } from '../support/quick-settings.ts';
import { seeded } from '../support/seeded.ts';
import { ServiceProcess } from '../support/service-process.ts';
import { SYNC_SECONDS } from './hpa.ts';
import { Autoscaler } from './autoscaler.ts';
import { tasksBetween } from './loads.ts';
import type { Load } from './loads.ts';
import { Pods } from './pods.ts';
import type { ScaledObject } from './scaled-object.ts';
import { countEnded, countFaults, listWaits } from './sim.sql.ts';

/** What a run is made of. */
export interface RunOptions {
  /** Name of the way of scaling, and of the fleet. */
  readonly name: string;
  readonly scaledObject: ScaledObject;
  readonly load: Load;
  readonly amqpUrl: string;
  readonly managementUrl: string;
  /** Of the server: a database is made beside it. */
  readonly serverUrl: string;
  readonly factor: number;
  readonly seed: number;
}

/** Replicas at a time of the simulated clock. */
export interface Moment {
  readonly atSeconds: number;
  readonly desired: number;
  readonly ready: number;
}

/** What a run showed; seconds are simulated. */
export interface RunResult {
  readonly tasks: number;
  readonly waits: readonly number[];
  readonly moments: readonly Moment[];
  /** Attempts that a scale-in cut, or that were lost; tasks that did not succeed. By what they are. */
  readonly faults: Readonly<Record<string, number>>;
  /** Processes that did not end or begin as they should. */
  readonly podFaults: readonly string[];
  /** Figures that could not be had. */
  readonly failedReadings: number;
  readonly startSeconds: readonly number[];
}

const QUEUE = 'default';
const SLOTS = 4;
const DRAIN_SECONDS = 40;
const GRACE_SECONDS = 60;
const SPARES = 4;
const TICK_MS = 250;
/** Simulated seconds after the last task came in within which all must have ended. */
const END_WITHIN_SECONDS = 900;

/** Runs it. Throws where the servers cannot be had. */
export async function runOne(options: RunOptions): Promise<RunResult> {
  const { name, load, amqpUrl, serverUrl } = options;
  const prefix = `warren-sim-${load.name}-${name}`;
  const database = prefix.replaceAll('-', '_');
  await deleteTopology(amqpUrl, prefix, [QUEUE]);
  const databaseUrl = await createDatabaseBeside(serverUrl, database);
  await prepareDatabase(databaseUrl, prefix);
  const env = environment(options, prefix, databaseUrl);
  const producer = new ServiceProcess('producer', `${prefix}-producer`, env);
  const random = seeded(options.seed);
  const pods = new Pods({
    name: prefix,
    env,
    random,
    factor: options.factor,
    graceSeconds: GRACE_SECONDS,
    spares: options.scaledObject.maxReplicaCount + SPARES,
  });
  try {
    await producer.ready();
    await pods.standBy();
    return await withDatabase(databaseUrl, async (db) => {
      const places = { ...options, vhost: vhostOf(amqpUrl), producerUrl: producer.url, prefix };
      return await scale(options, new Autoscaler(options.scaledObject, pods, places), { db, pods, url: producer.url });
    });
  } finally {
    await pods.end();
    await producer.terminate();
    await deleteTopology(amqpUrl, prefix, [QUEUE]);
    await dropDatabaseBeside(serverUrl, database);
  }
}

/** Every period of the product that scaling depends on goes by the simulated clock. */
function environment(
  { amqpUrl, factor }: RunOptions,
  prefix: string,
  databaseUrl: string,
): Readonly<Record<string, string>> {
  const ms = (seconds: number): string => String(Math.round((seconds * 1_000) / factor));
  return {
    ...ANY_PORT,
    AMQP_URL: amqpUrl,
    DATABASE_URL: databaseUrl,
    WARREN_PREFIX: prefix,
    WARREN_QUEUES: `${QUEUE}:${SLOTS}`,
    WARREN_TASKS: './dist/test/scale-sim/tasks.js',
    WARREN_POSTGRES_POOL_MAX: '2',
    WARREN_WORKER_DRAIN_MS: ms(DRAIN_SECONDS),
    WARREN_WORKER_LOCAL_WAIT_MS: ms(20),
    WARREN_LEASE_RENEW_MS: ms(1.5),
    WARREN_AGING_AFTER_MS: ms(60),
    WARREN_AGING_INTERVAL_MS: ms(5),
    WARREN_SCALING_WINDOW_MS: ms(120),
    WARREN_SCALING_WORKER_START_MS: ms(30),
  };
}

const vhostOf = (amqpUrl: string): string => decodeURIComponent(new URL(amqpUrl).pathname.slice(1)) || '/';

interface Stage {
  readonly db: Database;
  readonly pods: Pods;
  /** Of the producer. */
  readonly url: string;
}

async function scale(options: RunOptions, autoscaler: Autoscaler, { db, pods, url }: Stage): Promise<RunResult> {
  const { load, factor, scaledObject, seed } = options;
  const random = seeded(seed + 1);
  pods.scaleTo(scaledObject.minReplicaCount);
  if (scaledObject.minReplicaCount > 0) await untilReady(pods, scaledObject.minReplicaCount);
  const startMs = systemClock.monotonicMs();
  const nowSeconds = (): number => ((systemClock.monotonicMs() - startMs) / 1_000) * factor;
  const moments: Moment[] = [];
  let [sent, due, lastSeconds] = [0, 0, 0];
  let [nextPoll, nextSync] = [0, SYNC_SECONDS];
  for (;;) {
    const atSeconds = nowSeconds();
    due += tasksBetween(load, lastSeconds, atSeconds);
    lastSeconds = atSeconds;
    const more = Math.floor(due) - sent;
    if (more > 0) await submit(url, more, () => Math.round((load.takes(random()) * 1_000) / factor));
    sent += Math.max(0, more);
    if (atSeconds >= nextPoll) {
      await autoscaler.poll(atSeconds);
      nextPoll += scaledObject.pollingInterval;
    }
    if (atSeconds >= nextSync) {
      await autoscaler.sync(atSeconds);
      nextSync += SYNC_SECONDS;
    }
    moments.push({ atSeconds, desired: pods.desired, ready: pods.ready });
    if (atSeconds > load.seconds) {
      const [row] = await run(db, countEnded);
      if (row?.tasks === row?.ended || atSeconds > load.seconds + END_WITHIN_SECONDS) break;
    }
    await systemClock.sleep(TICK_MS);
  }
  await pods.end();
  const faults = await run(db, countFaults);
  return {
    tasks: sent,
    waits: (await run(db, listWaits)).map(({ wait_ms: waitMs }) => ((waitMs ?? 0) / 1_000) * factor),
    moments,
    faults: Object.fromEntries(faults.map(({ what, times }) => [what ?? '', times ?? 0])),
    podFaults: pods.faults,
    failedReadings: autoscaler.failedReadings,
    startSeconds: pods.starts,
  };
}

async function untilReady(pods: Pods, count: number): Promise<void> {
  const untilMs = systemClock.monotonicMs() + 60_000;
  while (pods.ready < count) {
    if (systemClock.monotonicMs() > untilMs) throw new Error(`no worker became ready:\n${pods.faults.join('\n')}`);
    await systemClock.sleep(50);
  }
}

async function submit(url: string, count: number, takesMs: () => number): Promise<void> {
  for (let left = count; left > 0; left -= 500) {
    const tasks = Array.from({ length: Math.min(left, 500) }, () => ({ type: 'sim.work', input: { ms: takesMs() } }));
    const answer = await fetch(`${url}/v1/tasks/batch`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ tasks }),
    });
    if (!answer.ok) throw new Error(`tasks were answered ${answer.status}: ${await answer.text()}`);
  }
}
