/** Settings with which a fleet does in seconds what it does in minutes elsewhere. */

/** What a fleet of a test is told. */
export interface QuickFleet {
  /** Start of all its names on the broker. */
  readonly prefix: string;
  /** `default:8`: queue and slots. */
  readonly queues: string;
  /** Modules of task types, paths from the root of the repository. */
  readonly tasks: readonly string[];
  /** Milliseconds until a lease lapses. */
  readonly leaseMs: number;
  /** Folder for temporary files of attempts. */
  readonly tempDir: string;
}

/** The environment of each process, but for where broker and database are. */
export function quickSettings({ prefix, queues, tasks, leaseMs, tempDir }: QuickFleet): Record<string, string> {
  return {
    WARREN_PREFIX: prefix,
    WARREN_QUEUES: queues,
    WARREN_TASKS: tasks.join(','),
    WARREN_WORKER_TEMP_DIR: tempDir,
    WARREN_WORKER_DRAIN_MS: '10000',
    WARREN_LEASE_RENEW_MS: String(Math.max(100, Math.floor(leaseMs / 5))),
    WARREN_LEASE_LAPSE_MS: String(leaseMs),
    WARREN_REAPER_INTERVAL_MS: '300',
    WARREN_DISPATCHER_INTERVAL_MS: '150',
    WARREN_SWEEPER_INTERVAL_MS: '300',
    WARREN_SWEEPER_AFTER_MS: '2000',
    WARREN_AMQP_RECONNECT_MIN_MS: '100',
    WARREN_AMQP_RECONNECT_MAX_MS: '1000',
    WARREN_POSTGRES_POOL_MAX: '6',
  };
}

/** The port of each service: any free one. */
export const ANY_PORT = {
  WARREN_HTTP_PRODUCER_PORT: '0',
  WARREN_HTTP_WORKER_PORT: '0',
  WARREN_HTTP_DEAD_LETTER_HANDLER_PORT: '0',
} as const;
