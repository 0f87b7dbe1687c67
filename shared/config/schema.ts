/** Every setting of Warren, in groups: meaning, unit, range, default. Printed as `docs/reference/config.md`. */
import { integer, flag, list, oneOf, queueSlots, secretUrl, secretUrls, text, tokens } from './format.ts';
import type { Setting } from './format.ts';

/** Where a value came from. */
export type Source = 'default' | 'file' | 'environment' | `file ${string}`;

const NAME = /^[a-z][a-z0-9]*([._-][a-z0-9]+)*$/;
const DAY_MS = 86_400_000;

/**
 * The schema. Environment variables are named after the path: `amqp.connectTimeoutMs` is
 * `WARREN_AMQP_CONNECT_TIMEOUT_MS`, except where a name is given.
 */
export const SCHEMA = {
  prefix: text(
    'First part of every name in RabbitMQ; installations with different prefixes can share a broker, never a database.',
    'warren',
    /^[a-z0-9-]{1,40}$/,
    '1 to 40 of a-z, 0-9 and -',
  ),
  log: {
    level: oneOf('Severity below which nothing is logged.', 'info', ['error', 'warn', 'info', 'debug', 'silent']),
  },
  amqp: {
    urls: {
      ...secretUrls(
        'RabbitMQ servers, tried in turn. The default works only on the machine of the broker.',
        ['amqp://guest:guest@127.0.0.1:5672'],
        ['amqp', 'amqps'],
      ),
      env: 'AMQP_URL',
    },
    heartbeatSeconds: integer('Seconds between heartbeats; a peer that misses two is taken for dead.', 10, 1, 600),
    reconnectMinMs: integer(
      'Milliseconds before the first new try after a lost connection, with jitter.',
      500,
      50,
      60_000,
    ),
    reconnectMaxMs: integer('Milliseconds that the pause between tries grows to.', 15_000, 50, 600_000),
    connectTimeoutMs: integer('Milliseconds that connecting and logging in may take.', 10_000, 100, 120_000),
    confirmWithinMs: integer('Milliseconds within which RabbitMQ must confirm a publish.', 10_000, 100, 600_000),
    ackTimeoutMs: integer(
      "Milliseconds of RabbitMQ's own consumer_timeout. A task that may run for more than half of it is acked when it is claimed.",
      1_800_000,
      1_000,
      30 * DAY_MS,
    ),
    maxUnconfirmed: integer('Publishes of one process that may await their confirm.', 5_000, 1, 1_000_000),
    queueType: oneOf('Kind of queue at first declaration; auto: quorum from RabbitMQ 4.3, classic before.', 'auto', [
      'auto',
      'classic',
      'quorum',
    ]),
  },
  postgres: {
    url: {
      ...secretUrl(
        'The database. PGPASSWORD, PGUSER and the like fill in what it leaves out.',
        'postgres://127.0.0.1:5432/warren',
        ['postgres', 'postgresql'],
      ),
      env: 'DATABASE_URL',
    },
    poolMax: integer('Connections of one process at most.', 10, 2, 1_000),
    schema: text('Schema that holds every table.', 'warren', /^[a-z_][a-z0-9_]{0,62}$/, '1 to 63 of a-z, 0-9 and _'),
    connectTimeoutMs: integer('Milliseconds to wait for a connection, new or free.', 3_000, 100, 60_000),
    statementTimeoutMs: integer('Milliseconds that one statement may take.', 30_000, 100, 600_000),
    lockTimeoutMs: integer('Milliseconds that a statement may wait for a lock.', 2_000, 10, 60_000),
    tlsCaFile: text(
      'File of certificates to trust (PEM) when the URL asks for TLS; empty: those of the system.',
      '',
      /^[^\0]*$/,
      'a path, or empty',
    ),
  },
  http: {
    host: text(
      'Address that the HTTP servers listen on. Beyond loopback, APIs refuse to start without tokens.',
      '127.0.0.1',
      /^[0-9a-zA-Z.:-]{1,255}$/,
      'an IP address or a host name',
    ),
    producerPort: integer('Port of the producer; 0: any free one.', 8080, 0, 65_535),
    deadLetterHandlerPort: integer('Port of the dead-letter-handler; 0: any free one.', 8081, 0, 65_535),
    workerPort: integer('Port of a worker, for health and metrics alone; 0: any free one.', 8082, 0, 65_535),
    tokens: { ...tokens('Bearer tokens of the APIs, each with a name and a role.'), env: 'WARREN_TOKENS' },
  },
  worker: {
    queues: {
      ...queueSlots('Queues to consume, each with the attempts that run at once.', [
        { name: 'default', concurrency: 10 },
      ]),
      env: 'WARREN_QUEUES',
    },
    tasks: {
      ...list('Modules of task types to load: paths or package names.', /^[^\0]{1,1024}$/, 'a path or package name'),
      env: 'WARREN_TASKS',
    },
    prefetch: integer(
      'Deliveries that RabbitMQ leaves with the worker per queue; 0: twice the concurrency.',
      0,
      0,
      65_535,
    ),
    localWaitMs: integer(
      'Milliseconds that a delivery waits in a worker for a slot before it is given back, for others to start it.',
      20_000,
      100,
      600_000,
    ),
    maxAbandoned: integer('Handlers that ignore their abort before the worker drains and restarts.', 10, 1, 10_000),
    drainMs: integer('Milliseconds that running attempts get at shutdown before they are aborted.', 25_000, 0, DAY_MS),
    threads: integer('Threads for task types with isolation "thread"; 0: such types are refused.', 1, 0, 64),
    threadHeapMegabytes: integer(
      'Megabytes of heap of each such thread; beyond it the thread ends and its attempt fails.',
      512,
      16,
      65_536,
    ),
    resultMaxBytes: integer('Bytes that the result of an attempt may have.', 262_144, 0, 16_777_216),
    maxLoopBlockMs: integer(
      'Milliseconds that the event loop may be blocked before the lease is no longer renewed.',
      10_000,
      1_000,
      3_600_000,
    ),
    tempDir: text(
      'Folder for temporary files of attempts; empty: that of the system.',
      '',
      /^[^\0]*$/,
      'a path, or empty',
    ),
    codeVersion: text(
      'Version of the task code, kept with each attempt that did not succeed.',
      '',
      /^[\x20-\x7e]{0,100}$/,
      'up to 100 printable ASCII characters',
    ),
  },
  lease: {
    renewMs: integer('Milliseconds between two renewals of the lease of a worker.', 1_500, 100, 60_000),
    lapseMs: integer(
      'Milliseconds without a renewal after which a worker is taken for dead; at least three renewals.',
      20_000,
      500,
      600_000,
    ),
  },
  producer: {
    ingressPrefetch: integer('Messages of the front door taken at once.', 1_000, 1, 65_535),
    requireMessageId: flag('Refuses a publish without message_id, which could be accepted twice.', false),
    maxBatch: integer('Tasks inserted by one statement at most.', 500, 1, 5_000),
    outboxMaxRows: integer(
      'Invitations that may wait for RabbitMQ before submissions are answered 503.',
      1_000_000,
      1_000,
      100_000_000,
    ),
    declaredQueues: list('Queues that exist whether or not a worker has announced them.', NAME, 'a queue name'),
  },
  dispatcher: {
    intervalMs: integer('Milliseconds between two looks at what is due.', 250, 10, 60_000),
    maxBatch: integer('Tasks made pending by one statement at most.', 500, 1, 5_000),
  },
  sweeper: {
    intervalMs: integer('Milliseconds between two looks at the outbox.', 1_000, 50, 60_000),
    afterMs: integer(
      'Milliseconds after which an invitation is taken for left behind by its publisher.',
      10_000,
      500,
      600_000,
    ),
  },
  reaper: {
    intervalMs: integer('Milliseconds between two looks for lapsed leases.', 2_000, 50, 60_000),
  },
  reconciler: {
    intervalMs: integer(
      'Milliseconds between two readings of the queues; what a queue that is empty twice has no message for is invited anew.',
      10_000,
      50,
      600_000,
    ),
  },
  ledger: {
    intervalMs: integer(
      'Milliseconds between two comparisons of the last two hours with the tasks.',
      10_000,
      50,
      600_000,
    ),
    strandedAfterMs: integer(
      'Milliseconds without any change after which a task can be found to have lost the row that stands for it.',
      60_000,
      100,
      DAY_MS,
    ),
  },
  aging: {
    intervalMs: integer('Milliseconds between two looks for what has waited too long.', 5_000, 50, 600_000),
    afterMs: integer('Milliseconds of waiting after which a task is invited again at priority 9.', 60_000, 100, DAY_MS),
  },
  deadLetters: {
    prefetch: integer('Dead deliveries taken at once.', 500, 1, 65_535),
    replayDestinations: list(
      'Where letters that never were tasks may be replayed to, as exchange/routing-key; "/queue" is a queue by its name.',
      /^[^/\0]{0,255}\/[^\0]{0,255}$/,
      'exchange/routing-key',
    ),
  },
  httpRequest: {
    allowHosts: list(
      'Hosts that http.request tasks may call: host or host:port, exactly.',
      /^[a-z0-9.-]+(:\d{1,5})?$|^\[[0-9a-f:]+\](:\d{1,5})?$/,
      'host or host:port in lower case',
    ),
  },
  limits: {
    messageBytes: integer('Bytes of a submission or message.', 262_144, 1_024, 8_388_608),
    depth: integer('Levels that JSON may nest.', 64, 4, 512),
    headerBytes: integer('Bytes of all AMQP headers together.', 16_384, 1_024, 65_536),
  },
} as const;

type Group = { readonly [name: string]: Setting<never> | Group };
type ValueOf<S> = S extends { readonly default: infer T; readonly format: unknown }
  ? T
  : { readonly [K in keyof S]: ValueOf<S[K]> };

/** The effective configuration: plain, frozen. Each part is handed its group. */
export type Config = ValueOf<typeof SCHEMA>;

/** Every setting with its path and its environment variable, in the order of the schema. */
export function listSettings(): readonly {
  readonly path: string;
  readonly env: string;
  readonly setting: Setting<unknown>;
}[] {
  const found: { path: string; env: string; setting: Setting<unknown> }[] = [];
  const walk = (group: Group, above: readonly string[]): void => {
    for (const [name, member] of Object.entries(group)) {
      const path = [...above, name];
      if (isSetting(member))
        found.push({ path: path.join('.'), env: member.env ?? environmentName(path), setting: member });
      else walk(member as Group, path);
    }
  };
  walk(SCHEMA as unknown as Group, []);
  return found;
}

/** True for a setting, false for a group of them. */
export function isSetting(member: unknown): member is Setting<unknown> {
  return typeof member === 'object' && member !== null && 'format' in member;
}

function environmentName(path: readonly string[]): string {
  return ['WARREN', ...path.map((part) => part.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase())].join('_');
}
