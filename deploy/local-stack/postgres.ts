/** A private Postgres: on 127.0.0.1 alone, no socket file, scram with a random password. */
import { execFile } from 'node:child_process';
import { access, chown, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { toError } from '../../shared/errors/to-error.ts';
import type { DatabaseBinaries } from './binaries.ts';
import { StackFailure } from './failure.ts';
import { mkdirFor } from './home.ts';
import { answers } from './named.ts';
import { START_WITHIN_MS, STOP_WITHIN_MS } from './server.ts';
import type { PrivateServerOptions, ServerControl } from './server.ts';
import { endProcess, isRunning, startDetached, waitFor, waitUntilReady } from './server-process.ts';
import { loadState, newState, saveState, settlePorts } from './state.ts';
import type { ServerState } from './state.ts';

const run = promisify(execFile);

/** A private database server, started or not. */
export class PrivateDatabase implements ServerControl {
  readonly source = 'private';
  readonly #binaries: DatabaseBinaries;
  readonly #options: PrivateServerOptions;
  #state: ServerState | undefined;

  constructor(binaries: DatabaseBinaries, options: PrivateServerOptions) {
    this.#binaries = binaries;
    this.#options = options;
  }

  get pid(): number | undefined {
    return this.#state?.processes['database']?.pid;
  }

  /** The superuser's, to the database `postgres`. Known after the first start. */
  get url(): string {
    return databaseUrlOf(this.#known);
  }

  async start(): Promise<boolean> {
    const { dir, user, tell } = this.#options;
    let state = (await loadState(dir)) ?? newState();
    this.#state = state;
    if (await isRunning(state.processes['database'])) {
      await this.#waitUntilReady();
      return false;
    }
    state = await settlePorts(state, ['postgres'], tell);
    await this.#save({ ...state, processes: {} });
    if (!(await exists(join(this.#data, 'PG_VERSION')))) await this.#initialise(state);
    tell(`starting Postgres ${this.#binaries.major} on 127.0.0.1:${state.ports['postgres'] ?? 0}`);
    // Children of a killed server hold its shared memory for a moment.
    const isStarted = async (): Promise<boolean> => {
      const database = await startDetached({
        file: join(this.#binaries.bin, 'postgres'),
        args: ['-D', this.#data, ...renderArguments(state)],
        cwd: dir,
        env: this.#env,
        user,
        logFile: this.#logFile,
      });
      await this.#save({ ...state, processes: { database } });
      try {
        await this.#waitUntilReady();
        return true;
      } catch (thrown) {
        if (!/shared memory block/.test(await readFile(this.#logFile, 'utf8').catch(() => ''))) throw thrown;
        return false;
      }
    };
    if (!(await waitFor(isStarted, START_WITHIN_MS)))
      throw new StackFailure(`Postgres cannot start; see ${this.#logFile}`);
    return true;
  }

  async stop(): Promise<void> {
    await stopPrivateDatabase(this.#options.dir);
  }

  async kill(): Promise<void> {
    await endProcess(this.#state?.processes['database'], 'SIGKILL', STOP_WITHIN_MS);
  }

  get #data(): string {
    return join(this.#options.dir, `data-${this.#binaries.major}`);
  }

  get #logFile(): string {
    return join(this.#options.dir, 'postgres.log');
  }

  get #env(): Record<string, string> {
    const { libraries } = this.#binaries;
    return {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: this.#options.dir,
      LC_ALL: 'C',
      ...(libraries.length === 0 ? {} : { LD_LIBRARY_PATH: libraries.join(':') }),
    };
  }

  get #known(): ServerState {
    if (this.#state === undefined) throw new Error('the database was not started');
    return this.#state;
  }

  async #save(state: ServerState): Promise<void> {
    this.#state = state;
    await saveState(this.#options.dir, state);
  }

  async #waitUntilReady(): Promise<void> {
    const identity = this.#known.processes['database'];
    if (identity === undefined) return;
    const isReady = async (): Promise<boolean> => await answers(this.url);
    await waitUntilReady('Postgres', { identity, logFile: this.#logFile, isReady }, START_WITHIN_MS);
  }

  async #initialise(state: ServerState): Promise<void> {
    const { dir, user, tell } = this.#options;
    tell('making a database cluster');
    const work = `${this.#data}.new`; // renamed at the end: a kill leaves nothing that looks whole
    const passwordFile = join(dir, 'password');
    await rm(work, { recursive: true, force: true });
    await mkdirFor(work, user);
    await writeFile(passwordFile, `${state.password}\n`, { mode: 0o600 });
    if (user !== undefined) await chown(passwordFile, user.uid, user.gid);
    const locale = process.platform === 'linux' ? 'C.UTF-8' : 'C';
    const args = [
      '-D',
      work,
      `--locale=${locale}`,
      '-E',
      'UTF8',
      '-A',
      'scram-sha-256',
      '-U',
      state.user,
      `--pwfile=${passwordFile}`,
    ];
    try {
      await run(join(this.#binaries.bin, 'initdb'), args, {
        cwd: dir,
        env: this.#env,
        ...(user === undefined ? {} : { uid: user.uid, gid: user.gid }),
      });
    } catch (thrown) {
      throw new StackFailure(`initdb failed: ${toError(thrown).message}`, undefined, thrown);
    } finally {
      await rm(passwordFile, { force: true });
    }
    await rename(work, this.#data);
  }
}

/** Ends the database server whose state is in `dir`, if it is still ours. Nothing happens when there is none. */
export async function stopPrivateDatabase(dir: string): Promise<void> {
  const database = (await loadState(dir))?.processes['database'];
  // SIGINT is "fast": it ends the sessions. SIGTERM would wait for them. Source: Postgres manual, "Shutting Down the Server".
  if (!(await endProcess(database, 'SIGINT', STOP_WITHIN_MS))) await endProcess(database, 'SIGKILL', STOP_WITHIN_MS);
}

/** The superuser's URL of the server with this state, to the database `postgres`. */
export function databaseUrlOf({ user, password, ports }: ServerState): string {
  return `postgres://${user}:${password}@127.0.0.1:${ports['postgres'] ?? 0}/postgres`;
}

/** Settings on the command line, so that no file of the cluster has to be changed. */
export function renderArguments(state: Pick<ServerState, 'ports'>): string[] {
  const settings = ['unix_socket_directories=', 'max_connections=200', 'jit=off', 'log_min_messages=warning'];
  return ['-h', '127.0.0.1', '-p', String(state.ports['postgres'] ?? 0), ...settings.flatMap((each) => ['-c', each])];
}

async function exists(file: string): Promise<boolean> {
  return await access(file).then(
    () => true,
    () => false,
  );
}
