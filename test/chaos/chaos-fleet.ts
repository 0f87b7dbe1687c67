/** The fleet under fire: every service more than once, each process behind proxies of its own. */
import { join, resolve } from 'node:path';
import type { ServiceName } from '../../scripts/fleet.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';
import { ANY_PORT, quickSettings } from '../support/quick-settings.ts';
import { Supervised } from './supervised.ts';

/** What a fleet is made of. */
export interface ChaosFleetOptions {
  readonly prefix: string;
  readonly amqpUrl: string;
  readonly databaseUrl: string;
  /** Folder of the run. */
  readonly dir: string;
  readonly counts: Readonly<Record<ServiceName, number>>;
  /** Added to the environment of every process. */
  readonly env: Readonly<Record<string, string>>;
}

/** The only work queue. */
export const QUEUE = 'default';
/** Milliseconds until a lease lapses. */
export const LEASE_MS = 3_000;
const READY_WITHIN_MS = 120_000;
const TASKS = [
  './dist/test/support/tasks/well-behaved.js',
  './dist/test/support/tasks/ill-behaved.js',
  './dist/test/chaos/tasks.js',
];

/** Times at test speed. What waits is not invited again only because it grew old: that would hide what was lost. */
const SETTINGS = {
  WARREN_AMQP_HEARTBEAT_SECONDS: '2',
  WARREN_AMQP_CONNECT_TIMEOUT_MS: '3000',
  WARREN_AMQP_CONFIRM_WITHIN_MS: '4000',
  WARREN_POSTGRES_CONNECT_TIMEOUT_MS: '2000',
  WARREN_POSTGRES_STATEMENT_TIMEOUT_MS: '5000',
  WARREN_WORKER_LOCAL_WAIT_MS: '5000',
  WARREN_RECONCILER_INTERVAL_MS: '1000',
  WARREN_AGING_AFTER_MS: '86400000',
  // So that a large input need not be large.
  WARREN_LIMITS_MESSAGE_BYTES: '2048',
  WARREN_FILES_SWEEP_INTERVAL_MS: '500',
} as const;

/** Starts everything; nothing is ready yet. */
export async function openChaosFleet(options: ChaosFleetOptions): Promise<ChaosFleet> {
  const { amqpUrl, databaseUrl, dir, prefix, counts, env } = options;
  const places: Supervised[] = [];
  for (const service of ['producer', 'worker', 'dead-letter-handler'] as const) {
    for (let count = 1; count <= counts[service]; count += 1) {
      const broker = await FaultyProxy.open(amqpUrl);
      const postgres = await FaultyProxy.open(databaseUrl);
      const own = {
        ...quickSettings({ prefix, queues: `${QUEUE}:8`, tasks: TASKS, leaseMs: LEASE_MS, tempDir: join(dir, 'temp') }),
        ...ANY_PORT,
        ...SETTINGS,
        WARREN_FILES_STORE: 'fs',
        WARREN_FILES_DIRECTORY: resolve(dir, 'files'),
        AMQP_URL: broker.urlOf(amqpUrl),
        DATABASE_URL: postgres.urlOf(databaseUrl),
        ...env,
      };
      places.push(new Supervised({ service, name: `${service}-${count}`, env: own, broker, postgres }));
    }
  }
  return new ChaosFleet(places);
}

/** All processes. */
export class ChaosFleet {
  readonly places: readonly Supervised[];

  constructor(places: readonly Supervised[]) {
    this.places = places;
    for (const place of places) place.start();
  }

  /** The places of one service. */
  of(service: ServiceName): readonly Supervised[] {
    return this.places.filter((place) => place.service === service);
  }

  /** URL of one of a service that is up. */
  url(service: ServiceName, choice: number): string | undefined {
    const urls = this.of(service).flatMap(({ url }) => (url === undefined ? [] : [url]));
    return urls[Math.floor(choice * urls.length)];
  }

  async ready(): Promise<void> {
    await Promise.all(this.places.map(async (place) => await place.ready(READY_WITHIN_MS)));
  }

  /** Mends every link and thaws every process. */
  heal(): void {
    for (const { broker, postgres, process } of this.places) {
      for (const proxy of [broker, postgres]) {
        proxy.accept();
        proxy.resume();
      }
      process.thaw();
    }
  }

  /** Ends every process in order. */
  async stop(): Promise<void> {
    await Promise.all(this.places.map(async (place) => await place.stop()));
  }

  /** Closes the proxies. */
  async close(): Promise<void> {
    for (const { broker, postgres } of this.places) {
      await broker[Symbol.asyncDispose]();
      await postgres[Symbol.asyncDispose]();
    }
  }
}
