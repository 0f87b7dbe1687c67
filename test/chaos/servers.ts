/** The private servers that chaos breaks: a database and a broker of their own, in 3.10 or in 4.3, on ports of their own. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { StackFailure } from '../../deploy/local-stack/failure.ts';
import { greetBroker } from '../../deploy/local-stack/greeting.ts';
import type { ServerControl } from '../../deploy/local-stack/server.ts';
import { startStack, stopStack } from '../../deploy/local-stack/stack.ts';

/** A server that can be broken; without a pid it cannot be paused. */
export type Breakable = Pick<ServerControl, 'start' | 'stop' | 'kill' | 'pid' | 'ctl'>;

/** Where a fleet under fire stands. */
export interface ChaosServers {
  readonly amqpUrl: string;
  /** The server's; each run makes a database of its own beside it. */
  readonly databaseUrl: string;
  readonly brokerVersion: string;
  /** Absent: others use it as well, and it must not be touched. */
  readonly broker?: Breakable;
  readonly database?: Breakable;
}

const run = promisify(execFile);
const INSTANCE = 'chaos';

/**
 * Starts them, with the data that is there. Throws a StackFailure. `stop` keeps the data. What a run that was killed left
 * running, or standing still, is stopped first.
 */
export async function startChaosServers(
  root: string,
  version: string,
  log: (line: string) => void,
): Promise<ChaosServers & { stop(): Promise<void> }> {
  if (version !== '3.10' && version !== '4.3') {
    throw new StackFailure(`CHAOS_BROKER is ${version}; it can be 3.10 (the broker of this machine) or 4.3`, 2);
  }
  const only = version === '4.3' ? ({ only: 'database' } as const) : {};
  await stopStack({ name: INSTANCE, root });
  const stack = await startStack({ name: INSTANCE, root, onlyPrivate: true, ...only, log });
  try {
    const second = version === '4.3' ? new SecondBroker(root) : undefined;
    await second?.stop();
    await second?.start();
    const amqpUrl = second?.url ?? stack.amqpUrl;
    const greeting = await greetBroker(amqpUrl, 5_000);
    return {
      amqpUrl,
      databaseUrl: stack.databaseUrl,
      brokerVersion: greeting?.version ?? 'unknown',
      broker: second ?? stack.broker,
      database: stack.database,
      stop: async () => {
        await second?.stop();
        await stack.stop();
      },
    };
  } catch (thrown) {
    await stack.stop();
    throw thrown;
  }
}

/** A RabbitMQ 4.3 of this clone alone, in the root directory that the tests' 4.3 lives in as well. */
class SecondBroker implements Breakable {
  url = '';
  pid: number | undefined;
  readonly #script: string;
  readonly #env: Readonly<Record<string, string>>;

  constructor(root: string) {
    this.#script = join(root, 'deploy/local-stack/rabbitmq43');
    const hash = createHash('sha256').update(root).digest();
    // Two clones on one machine break brokers of their own.
    const place = hash.readUInt16BE(0) % 200;
    this.#env = {
      WARREN_RABBITMQ43_INSTANCE: `${INSTANCE}-${hash.toString('hex', 0, 4)}`,
      WARREN_RABBITMQ43_PORT: String(5_700 + place),
      WARREN_RABBITMQ43_EPMD_PORT: String(4_400 + place),
    };
  }

  async start(): Promise<boolean> {
    const [url = ''] = (await this.#run('start')).trim().split('\n');
    this.url = url;
    this.pid = Number(/pid (\d+)/.exec(await this.#run('status'))?.[1]);
    return true;
  }

  async stop(): Promise<void> {
    await this.#run('stop');
  }

  async kill(): Promise<void> {
    await this.#run('kill');
  }

  async ctl(...args: readonly string[]): Promise<string> {
    return await this.#run('ctl', '--quiet', ...args);
  }

  async #run(...args: readonly string[]): Promise<string> {
    try {
      const env = { ...process.env, ...this.#env };
      return (await run(this.#script, args, { env, maxBuffer: 64 * 1024 * 1024 })).stdout;
    } catch (thrown) {
      const stderr = typeof thrown === 'object' && thrown !== null && 'stderr' in thrown ? String(thrown.stderr) : '';
      throw new StackFailure(`RabbitMQ 4.3: ${stderr.trim().split('\n').at(-1) ?? 'failed'}`, undefined, thrown);
    }
  }
}
