/** Every setting of Warren, in groups: meaning, unit, range, default. Printed as `docs/reference/config.md`. */
import { flag, groupRules, integer, list, oneOf, secretList, secretUrl, secretUrls, text, tokens } from './format.ts';
import { BROKER_ACCESS, DATABASE_ACCESS } from './access-settings.ts';
import { FILE_SETTINGS } from './file-settings.ts';
import { TLS_SETTINGS } from './tls-settings.ts';
import { RETENTION_SETTINGS } from './retention-settings.ts';
import { SCALING_SETTINGS } from './scaling-settings.ts';
import { alertChannels, CHANNEL_NAME, CHANNEL_NAME_IN_WORDS, STANDARD_SECRET } from './alert-channels.ts';
import type { Setting } from './format.ts';
import { WORKER_SETTINGS } from './worker-settings.ts';

/** Where a value came from. */
export type Source = 'default' | 'file' | 'environment' | `file ${string}`;

const NAME = /^[a-z][a-z0-9]*([._-][a-z0-9]+)*$/;
const DAY_MS = 86_400_000;
const HOST = /^[a-z0-9.-]+(:\d{1,5})?$|^\[[0-9a-f:]+\](:\d{1,5})?$/;
const HOST_IN_WORDS = 'host or host:port in lower case';

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
    ...BROKER_ACCESS,
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
    ...TLS_SETTINGS.amqp,
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
    ...DATABASE_ACCESS,
    poolMax: integer('Connections of one process at most.', 10, 2, 1_000),
    schema: text('Schema that holds every table.', 'warren', /^[a-z_][a-z0-9_]{0,62}$/, '1 to 63 of a-z, 0-9 and _'),
    connectTimeoutMs: integer('Milliseconds to wait for a connection, new or free.', 3_000, 100, 60_000),
    statementTimeoutMs: integer('Milliseconds that one statement may take.', 30_000, 100, 600_000),
    lockTimeoutMs: integer('Milliseconds that a statement may wait for a lock.', 2_000, 10, 60_000),
    ...TLS_SETTINGS.postgres,
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
    ...TLS_SETTINGS.http,
    tokens: { ...tokens('Bearer tokens of the APIs, each with a name and a role.'), env: 'WARREN_TOKENS' },
  },
  worker: WORKER_SETTINGS,
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
  following: {
    maxFollowers: integer(
      'Requests of one producer that may follow tasks at once: event streams, and those that wait for an end.',
      500,
      1,
      10_000,
    ),
    maxWaitSeconds: integer('Seconds that a request with "Prefer: wait" may wait at most.', 30, 1, 60),
  },
  events: {
    enabled: flag(
      'Publishes every transition of every task to the exchange of events. Costs each statement that moves tasks; the same in every producer.',
      false,
    ),
  },
  dispatcher: {
    intervalMs: integer('Milliseconds between two looks at what is due.', 250, 10, 60_000),
    maxBatch: integer('Tasks made pending by one statement at most.', 500, 1, 5_000),
  },
  scheduler: {
    intervalMs: integer('Milliseconds between two looks at schedules that are due.', 500, 50, 60_000),
    lateAfterMs: integer(
      'Milliseconds after which an instant of a schedule was missed: it is then caught up as its schedule says.',
      60_000,
      1_000,
      3_600_000,
    ),
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
  retention: RETENTION_SETTINGS,
  aging: {
    intervalMs: integer('Milliseconds between two looks for what has waited too long.', 5_000, 50, 600_000),
    afterMs: integer('Milliseconds of waiting after which a task is invited again at priority 9.', 60_000, 100, DAY_MS),
  },
  scaling: SCALING_SETTINGS,
  deadLetters: {
    prefetch: integer('Dead deliveries taken at once.', 500, 1, 65_535),
    replayDestinations: list(
      'Where letters that never were tasks may be replayed to, as exchange/routing-key; "/queue" is a queue by its name.',
      /^[^/\0]{0,255}\/[^\0]{0,255}$/,
      'exchange/routing-key',
    ),
    groupRules: groupRules(
      'Rules that put failures into a group by its name, whatever their fingerprint: the first whose filter fits; keys are kind, reason, type, errorType, code and error.',
    ),
  },
  alerts: {
    sendTo: list(
      'Names of the channels that alerts are sent to; the dead-letter-handler needs no more of them. Empty: alerts are only counted.',
      CHANNEL_NAME,
      CHANNEL_NAME_IN_WORDS,
    ),
    channels: alertChannels('Channels that workers deliver alerts to, with their secrets.'),
    intervalMs: integer('Milliseconds between two looks for what is worth an alert.', 10_000, 50, 600_000),
    growthLetters: integer(
      'Letters of a failure group within alerts.growthWindowMs that are worth an alert.',
      100,
      1,
      100_000_000,
    ),
    growthWindowMs: integer(
      'Milliseconds over which the growth of a failure group is counted, by whole hours and a share of the first.',
      3_600_000,
      3_600_000,
      7 * DAY_MS,
    ),
    oldestMs: integer(
      'Milliseconds that a dead letter may be open before that is worth an alert.',
      DAY_MS,
      1_000,
      365 * DAY_MS,
    ),
    quietMs: integer(
      'Milliseconds after an alert in which there is no other of its kind about the same failure group.',
      3_600_000,
      1_000,
      30 * DAY_MS,
    ),
    maxPerHour: integer('Alerts within an hour at most; what is beyond waits.', 60, 1, 10_000),
  },
  files: FILE_SETTINGS,
  httpRequest: {
    allowHosts: list('Hosts that http.request tasks may call: host or host:port, exactly.', HOST, HOST_IN_WORDS),
  },
  callbacks: {
    intervalMs: integer(
      'Milliseconds between two looks for ended tasks that somebody wants to be told of.',
      500,
      10,
      60_000,
    ),
    takenMs: integer(
      'Milliseconds after which an end that one producer took to tell, and did not, is told by another.',
      30_000,
      500,
      600_000,
    ),
  },
  webhooks: {
    secrets: secretList(
      'What workers sign webhooks with: the newest first, and the one before it while receivers change over. Empty: this worker calls none.',
      STANDARD_SECRET,
      'whsec_ and 24 to 64 bytes in base64',
    ),
    allowHosts: list(
      'Hosts that webhooks may go to although they have a private address, or by http: host or host:port, exactly.',
      HOST,
      HOST_IN_WORDS,
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
