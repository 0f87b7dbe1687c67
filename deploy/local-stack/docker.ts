/** The servers as containers, where a Docker engine answers: `deploy/local-stack/servers.yaml`. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { toError } from '../../shared/errors/to-error.ts';
import { StackFailure } from './failure.ts';
import { databaseUrlOf } from './postgres.ts';
import { brokerUrlOf } from './rabbitmq.ts';
import type { PrivateServerOptions, ServerControl } from './server.ts';
import { loadState, newState, saveState, settlePorts } from './state.ts';
import type { ServerState } from './state.ts';

const run = promisify(execFile);

/** True when the engine behind the `docker` command answers and has compose. */
export async function hasDocker(): Promise<boolean> {
  const ask = async (...args: string[]): Promise<boolean> =>
    await run('docker', args, { timeout: 10_000 }).then(
      () => true,
      () => false,
    );
  return (await ask('info')) && (await ask('compose', 'version'));
}

/** What a container is told. */
export interface DockerServerOptions extends PrivateServerOptions {
  /** The clone. */
  readonly root: string;
  /** Compose's project: the name and the clone, so that no two share a container. */
  readonly project: string;
  readonly service: 'rabbitmq' | 'postgres';
}

const PORTS = { rabbitmq: ['amqp', 'management'], postgres: ['postgres'] } as const;

/** One service of `deploy/local-stack/servers.yaml`. */
export class DockerServer implements ServerControl {
  readonly source = 'docker';
  readonly pid = undefined;
  readonly #options: DockerServerOptions;
  #state: ServerState | undefined;

  constructor(options: DockerServerOptions) {
    this.#options = options;
  }

  /** With the credentials. Known after the first start. */
  get url(): string {
    return this.#options.service === 'rabbitmq' ? brokerUrlOf(this.#known) : databaseUrlOf(this.#known);
  }

  /** The management API, with the credentials; `undefined` for Postgres. */
  get managementUrl(): string | undefined {
    const { user, password, ports } = this.#known;
    if (this.#options.service !== 'rabbitmq') return undefined;
    return `http://${user}:${password}@127.0.0.1:${ports['management'] ?? 0}`;
  }

  get service(): 'rabbitmq' | 'postgres' {
    return this.#options.service;
  }

  /** True when a container of this instance runs. False where there never was one: Docker is not asked then. */
  async isUp(): Promise<boolean> {
    this.#state ??= await loadState(this.#options.dir);
    if (this.#state === undefined) return false;
    const up = await this.#compose('ps', '--status', 'running', '--quiet', this.#options.service).catch(() => '');
    return up.trim() !== '';
  }

  async start(): Promise<boolean> {
    const { dir, service, tell } = this.#options;
    const isUp = await this.isUp();
    if (!isUp) {
      this.#state = await settlePorts(this.#state ?? newState(), PORTS[service], tell);
      await saveState(dir, this.#state);
      tell(`starting ${service} in Docker (the first time it is downloaded: 2 minutes, 250 MB)`);
    }
    await this.#compose('up', '--detach', '--wait', '--wait-timeout', '300', service);
    return !isUp;
  }

  async stop(): Promise<void> {
    this.#state ??= await loadState(this.#options.dir);
    if (this.#state !== undefined) await this.#compose('stop', this.#options.service);
  }

  async kill(): Promise<void> {
    this.#state ??= await loadState(this.#options.dir);
    if (this.#state !== undefined) await this.#compose('kill', this.#options.service);
  }

  /** Removes the container and its data. */
  async remove(): Promise<void> {
    this.#state ??= await loadState(this.#options.dir);
    if (this.#state !== undefined) await this.#compose('rm', '--stop', '--force', '--volumes', this.#options.service);
  }

  get #known(): ServerState {
    if (this.#state === undefined) throw new Error('the container was not started');
    return this.#state;
  }

  async #compose(...args: string[]): Promise<string> {
    const { root, project, service } = this.#options;
    const { user, password, ports } = this.#known;
    const file = join(root, 'deploy/local-stack/servers.yaml');
    try {
      const { stdout } = await run('docker', ['compose', '--project-name', project, '--file', file, ...args], {
        env: {
          ...process.env,
          WARREN_BROKER_USER: user,
          WARREN_BROKER_PASSWORD: password,
          WARREN_DATABASE_USER: user,
          WARREN_DATABASE_PASSWORD: password,
          WARREN_AMQP_PORT: String(ports['amqp'] ?? 0),
          WARREN_MANAGEMENT_PORT: String(ports['management'] ?? 0),
          WARREN_DATABASE_PORT: String(ports['postgres'] ?? 0),
        },
        maxBuffer: 16 * 1024 * 1024,
      });
      return stdout;
    } catch (thrown) {
      const stderr = typeof thrown === 'object' && thrown !== null && 'stderr' in thrown ? String(thrown.stderr) : '';
      const words = stderr.trim().split('\n').slice(-20).join('\n    ') || toError(thrown).message;
      throw new StackFailure(`docker compose ${args[0] ?? ''} ${service} failed:\n    ${words}`, undefined, thrown);
    }
  }
}
