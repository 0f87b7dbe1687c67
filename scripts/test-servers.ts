/**
 * The servers that tests run on: private ones, or those that `WARREN_TEST_AMQP_URLS` and `WARREN_TEST_DATABASE_URL` name.
 * `AMQP_URL` and `DATABASE_URL` are never looked at: tests purge, fill and break.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { toError } from '../shared/errors/to-error.ts';
import { greetNamedBroker } from '../deploy/local-stack/named.ts';
import { startStack } from '../deploy/local-stack/stack.ts';
import type { Stack } from '../deploy/local-stack/stack.ts';

const run = promisify(execFile);
/** The instance of the local stack that `make test` uses. */
const INSTANCE = 'test';

/** A broker to run tests on. */
export interface TestBroker {
  readonly amqpUrl: string;
  readonly managementUrl: string | undefined;
  readonly version: string;
}

/** What a test run has. */
export interface TestServers {
  /** One, or with all brokers asked for, every one at hand. */
  readonly brokers: readonly TestBroker[];
  /** True where the user named a server: this machine may have none of its own. */
  readonly areNamed: boolean;
  /** Why a broker that was asked for is not there. */
  readonly skipped: readonly string[];
  /** Variables for jest: `WARREN_TEST_AMQP_URL`, `WARREN_TEST_DATABASE_URL`, `WARREN_TEST_MANAGEMENT_URL`. */
  environmentFor(broker: TestBroker | undefined): Readonly<Record<string, string>>;
  /** Stops what was started. */
  stop(): Promise<void>;
}

/** Finds or starts the servers. `wantsAll`: every broker, else the first. Throws a StackFailure. */
export async function openTestServers(
  root: string,
  wantsAll: boolean,
  log: (line: string) => void,
): Promise<TestServers> {
  const named = await namedBrokers();
  const namedDatabase = process.env['WARREN_TEST_DATABASE_URL'] ?? '';
  const stack = await startPrivate(root, named.length > 0, namedDatabase !== '', log);
  const second = wantsAll && named.length === 0 ? await startRabbitmq43(root, log) : NO_SECOND;
  const found = named.length > 0 ? named : [privateBroker(stack), ...second.brokers];
  const databaseUrl = namedDatabase === '' ? adminUrl(stack?.databaseUrl ?? '') : namedDatabase;
  return {
    brokers: wantsAll ? found : found.slice(0, 1),
    areNamed: named.length > 0 || namedDatabase !== '',
    skipped: second.skipped,
    environmentFor: (broker) => ({
      WARREN_TEST_DATABASE_URL: databaseUrl,
      ...(broker === undefined ? {} : { WARREN_TEST_AMQP_URL: broker.amqpUrl }),
      ...(broker?.managementUrl === undefined ? {} : { WARREN_TEST_MANAGEMENT_URL: broker.managementUrl }),
    }),
    stop: async () => {
      await second.stop();
      await stack?.stop();
    },
  };
}

/** The administrator's database on the same server: tests make their own from there. */
function adminUrl(url: string): string {
  const admin = new URL(url);
  admin.pathname = '/postgres';
  return admin.href;
}

/** `WARREN_TEST_MANAGEMENT_URLS` may name the management APIs in the same order; an empty place is one unknown. */
async function namedBrokers(): Promise<TestBroker[]> {
  const management = listOf('WARREN_TEST_MANAGEMENT_URLS');
  const brokers: TestBroker[] = [];
  for (const [index, amqpUrl] of listOf('WARREN_TEST_AMQP_URLS').entries()) {
    if (amqpUrl === '') continue;
    const { version } = await greetNamedBroker(amqpUrl, 'WARREN_TEST_AMQP_URLS');
    brokers.push({ amqpUrl, managementUrl: management[index] || undefined, version });
  }
  return brokers;
}

function listOf(variable: string): string[] {
  return (process.env[variable] ?? '').split(',').map((each) => each.trim());
}

async function startPrivate(
  root: string,
  hasBroker: boolean,
  hasDatabase: boolean,
  log: (line: string) => void,
): Promise<Stack | undefined> {
  if (hasBroker && hasDatabase) return undefined;
  const only = hasBroker ? ({ only: 'database' } as const) : hasDatabase ? ({ only: 'broker' } as const) : {};
  return await startStack({ name: INSTANCE, root, onlyPrivate: true, ...only, log });
}

function privateBroker(stack: Stack | undefined): TestBroker {
  return {
    amqpUrl: stack?.amqpUrl ?? '',
    managementUrl: stack?.managementUrl,
    version: stack?.brokerVersion ?? 'unknown',
  };
}

/** A second broker, or a line that says why there is none. */
export interface Second {
  readonly brokers: readonly TestBroker[];
  readonly skipped: readonly string[];
  stop(): Promise<void>;
}

const NO_SECOND: Second = { brokers: [], skipped: [], stop: async () => undefined };

/** A RabbitMQ 4.3 beside the private one, where this machine and user can have it; stopped again where it was not running. */
export async function startRabbitmq43(root: string, log: (line: string) => void): Promise<Second> {
  const script = join(root, 'deploy/local-stack/rabbitmq43');
  const wasRunning = await run(script, ['status']).then(
    () => true,
    () => false,
  );
  log('providing RabbitMQ 4.3 (the first time: 2 minutes, 150 MB to download)');
  try {
    const { stdout } = await run(script, ['start'], { maxBuffer: 64 * 1024 * 1024 });
    const [amqpUrl = '', managementUrl] = stdout.trim().split('\n');
    const { version } = await greetNamedBroker(amqpUrl, 'rabbitmq43');
    return {
      brokers: [{ amqpUrl, managementUrl, version }],
      skipped: [],
      stop: async () => {
        if (!wasRunning) await run(script, ['stop']);
      },
    };
  } catch (thrown) {
    const stderr = typeof thrown === 'object' && thrown !== null && 'stderr' in thrown ? String(thrown.stderr) : '';
    const reason = stderr.trim().split('\n').at(-1) || toError(thrown).message;
    return { ...NO_SECOND, skipped: [`integration and faults on RabbitMQ 4.3: ${reason}`] };
  }
}
