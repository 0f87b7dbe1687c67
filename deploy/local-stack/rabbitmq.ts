/** A private RabbitMQ: everything on 127.0.0.1, its own epmd, its own cookie, a random user in the place of `guest`. */
import { execFile } from 'node:child_process';
import { chmod, chown, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { BrokerBinaries } from './binaries.ts';
import { greetBroker } from './greeting.ts';
import { mkdirFor } from './home.ts';
import { START_WITHIN_MS, STOP_WITHIN_MS } from './server.ts';
import type { PrivateServerOptions, ServerControl } from './server.ts';
import { endProcess, isRunning, startDetached, waitUntilReady } from './server-process.ts';
import { loadState, newState, saveState, settlePorts } from './state.ts';
import type { ServerState } from './state.ts';

const run = promisify(execFile);
/** Milliseconds that a command of `rabbitmqctl` may take; a virtual machine is started for each. */
const CTL_WITHIN_MS = 60_000;

/** A private broker, started or not. */
export class PrivateBroker implements ServerControl {
  readonly source = 'private';
  readonly #binaries: BrokerBinaries;
  readonly #options: PrivateServerOptions;
  #state: ServerState | undefined;

  constructor(binaries: BrokerBinaries, options: PrivateServerOptions) {
    this.#binaries = binaries;
    this.#options = options;
  }

  get pid(): number | undefined {
    return this.#state?.processes['broker']?.pid;
  }

  /** With the credentials. Known after the first start. */
  get url(): string {
    return brokerUrlOf(this.#known);
  }

  /** The management API, with the credentials; `undefined` when the plugin is not there. */
  get managementUrl(): string | undefined {
    const { user, password, ports } = this.#known;
    return this.#binaries.hasManagement
      ? `http://${user}:${password}@127.0.0.1:${ports['management'] ?? 0}`
      : undefined;
  }

  async start(): Promise<boolean> {
    const { dir, user, tell } = this.#options;
    let state = (await loadState(dir)) ?? newState();
    this.#state = state;
    if (await isRunning(state.processes['broker'])) {
      await this.#waitUntilReady(state);
      return false;
    }
    await endProcess(state.processes['epmd'], 'SIGTERM', STOP_WITHIN_MS);
    state = await settlePorts(state, ['amqp', 'management', 'distribution', 'epmd'], tell);
    for (const folder of ['home', 'data', 'log']) await mkdirFor(join(dir, folder), user);
    await this.#writeConfiguration(state);
    tell(`starting RabbitMQ on 127.0.0.1:${state.ports['amqp'] ?? 0}`);
    const epmd = await startDetached({
      ...this.#process('epmd', state),
      file: this.#binaries.epmd,
      args: ['-port', String(state.ports['epmd'] ?? 0), '-address', '127.0.0.1'],
    });
    await this.#save({ ...state, processes: { epmd } });
    const broker = await startDetached({ ...this.#process('rabbitmq', state), file: this.#binaries.server, args: [] });
    await this.#save({ ...state, processes: { epmd, broker } });
    await this.#waitUntilReady(this.#known);
    return true;
  }

  async stop(): Promise<void> {
    await stopPrivateBroker(this.#options.dir);
  }

  async kill(): Promise<void> {
    await endProcess(this.#state?.processes['broker'], 'SIGKILL', STOP_WITHIN_MS);
  }

  async ctl(...args: readonly string[]): Promise<string> {
    const { cwd, env, user } = this.#process('rabbitmqctl', this.#known);
    const { stdout } = await run(join(dirname(this.#binaries.server), 'rabbitmqctl'), ['--quiet', ...args], {
      cwd,
      env: { ...env, RABBITMQ_CTL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}' },
      timeout: CTL_WITHIN_MS,
      ...(user === undefined ? {} : { uid: user.uid, gid: user.gid }),
    });
    return stdout;
  }

  get #known(): ServerState {
    if (this.#state === undefined) throw new Error('the broker was not started');
    return this.#state;
  }

  async #save(state: ServerState): Promise<void> {
    this.#state = state;
    await saveState(this.#options.dir, state);
  }

  async #waitUntilReady(state: ServerState): Promise<void> {
    const identity = state.processes['broker'];
    if (identity === undefined) return;
    // The AMQP port opens last, when the broker can take work.
    const isReady = async (): Promise<boolean> => (await greetBroker(this.url, 1_000)) !== undefined;
    await waitUntilReady('RabbitMQ', { identity, logFile: this.#logFile('rabbitmq'), isReady }, START_WITHIN_MS);
  }

  #logFile(name: string): string {
    return join(this.#options.dir, `${name}.log`);
  }

  async #writeConfiguration(state: ServerState): Promise<void> {
    const files = {
      'rabbitmq.conf': renderConfiguration(state, this.#binaries.hasManagement, this.#options.brokerLines),
      enabled_plugins: this.#binaries.hasManagement ? '[rabbitmq_management].\n' : '[].\n',
      'rabbitmq-env.conf': '', // in the place of the machine's own under /etc
    };
    for (const [name, text] of Object.entries(files)) {
      const file = join(this.#options.dir, name);
      await writeFile(file, text, { mode: 0o600 });
      await chmod(file, 0o600);
      if (this.#options.user !== undefined) await chown(file, this.#options.user.uid, this.#options.user.gid);
    }
  }

  #process(log: string, state: ServerState): Omit<Parameters<typeof startDetached>[0], 'file' | 'args'> {
    const { dir, user } = this.#options;
    const { erlang, libraries } = this.#binaries;
    const env = {
      PATH: `${erlang}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin`,
      HOME: join(dir, 'home'), // the cookie lands there
      LANG: 'C.UTF-8',
      ...(libraries.length === 0 ? {} : { LD_LIBRARY_PATH: libraries.join(':') }),
      ERL_EPMD_PORT: String(state.ports['epmd'] ?? 0),
      ERL_EPMD_ADDRESS: '127.0.0.1',
      RUNNING_UNDER_SYSTEMD: 'true', // the script then becomes the broker, so that the pid is the broker's
      RABBITMQ_NODENAME: `warren-${this.#options.name}@localhost`,
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: String(state.ports['amqp'] ?? 0),
      RABBITMQ_DIST_PORT: String(state.ports['distribution'] ?? 0),
      // Without it the distribution port listens on every interface.
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
      RABBITMQ_MNESIA_BASE: join(dir, 'data'),
      RABBITMQ_LOG_BASE: join(dir, 'log'),
      RABBITMQ_ENABLED_PLUGINS_FILE: join(dir, 'enabled_plugins'),
      RABBITMQ_CONFIG_FILE: join(dir, 'rabbitmq.conf'),
      RABBITMQ_CONF_ENV_FILE: join(dir, 'rabbitmq-env.conf'),
    };
    return { cwd: dir, env, user, logFile: this.#logFile(log) };
  }
}

/** Ends the broker whose state is in `dir`, if it is still ours. Nothing happens when there is none. */
export async function stopPrivateBroker(dir: string): Promise<void> {
  const processes = (await loadState(dir))?.processes ?? {};
  if (!(await endProcess(processes['broker'], 'SIGTERM', STOP_WITHIN_MS))) {
    await endProcess(processes['broker'], 'SIGKILL', STOP_WITHIN_MS);
  }
  // epmd outlives the broker that used it.
  await endProcess(processes['epmd'], 'SIGTERM', STOP_WITHIN_MS);
}

/** The URL of the broker with this state, credentials included. */
export function brokerUrlOf({ user, password, ports }: ServerState): string {
  return `amqp://${user}:${password}@127.0.0.1:${ports['amqp'] ?? 0}`;
}

/** The text of `rabbitmq.conf`. `default_user` is made at the first start, in the place of `guest`. */
export function renderConfiguration(state: ServerState, hasManagement: boolean, more: readonly string[] = []): string {
  const lines = [
    `listeners.tcp.1 = 127.0.0.1:${state.ports['amqp'] ?? 0}`,
    `default_user = ${state.user}`,
    `default_pass = ${state.password}`,
    'log.file = false',
    'log.console = true',
    'log.console.level = info',
  ];
  if (hasManagement) {
    lines.push('management.tcp.ip = 127.0.0.1', `management.tcp.port = ${state.ports['management'] ?? 0}`);
  }
  return `${[...lines, ...more].join('\n')}\n`;
}
