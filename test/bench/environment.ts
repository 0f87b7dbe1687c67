/** What the services of a benchmark are configured with. */
import { join } from 'node:path';

/** Where they run. */
export interface BenchSite {
  readonly root: string;
  readonly amqpUrl: string;
  readonly databaseUrl: string;
  /** Start of their names on the broker. */
  readonly prefix: string;
}

/** Slots of a worker. */
const CONCURRENCY = 250;

/** The environment of a producer, or of a worker that knows the no-op type. */
export function benchEnvironment({ root, amqpUrl, databaseUrl, prefix }: BenchSite): Record<string, string> {
  return {
    AMQP_URL: amqpUrl,
    DATABASE_URL: databaseUrl,
    WARREN_PREFIX: prefix,
    WARREN_TASKS: join(root, 'dist', 'test', 'bench', 'noop.js'),
    WARREN_QUEUES: `default:${CONCURRENCY}`,
    WARREN_HTTP_PRODUCER_PORT: '0',
    WARREN_HTTP_WORKER_PORT: '0',
    WARREN_LOG_LEVEL: 'info',
  };
}
