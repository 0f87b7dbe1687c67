/**
 * Directories for attempts. Each worker process has one of its own under a root that workers of one machine share; one
 * that belonged to a process that is gone is removed at the next start of any of them.
 */
import { mkdir, readFile, readdir, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { codeOf, toError } from '../../shared/errors/to-error.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Logger } from '../../shared/observability/log.ts';

/** What temporary directories need. */
export interface TempDirsDeps {
  readonly log: Logger;
}

/** Where they are. */
export interface TempDirsOptions {
  /** Directory for all workers of this machine. Not to be shared by containers that have process ids of their own. */
  readonly root: string;
}

const OWNER = /^worker_(.+)_(\d+)_(\d*)$/;

/** The directories of one worker process. */
export class TempDirs implements Part {
  readonly #deps: TempDirsDeps;
  readonly #root: string;
  #own: Promise<string> | undefined;
  #made = 0;

  constructor(deps: TempDirsDeps, options: TempDirsOptions) {
    this.#deps = deps;
    this.#root = options.root;
  }

  /** Removes what dead processes left. A directory that cannot be removed is logged and left. */
  async start(): Promise<void> {
    const names = await readdir(this.#root).catch(() => []); // no root yet: nothing was left
    const own = await ownerName();
    for (const name of names) {
      if (name === own || !(await isOfDeadProcess(name))) continue;
      await this.remove(join(this.#root, name));
      this.#deps.log.info('temporary directory of a dead worker removed', { directory: name });
    }
  }

  /** Removes this process's own directory. */
  async stop(_deadlineMs: number): Promise<void> {
    const own = await this.#own?.catch(() => undefined);
    this.#own = undefined;
    if (own !== undefined) await this.remove(own);
  }

  /** Makes a new directory that only this user can read. Throws what the file system throws. */
  async make(): Promise<string> {
    this.#own ??= ownerName().then((name) => join(this.#root, name));
    const path = join(await this.#own, String((this.#made += 1)));
    await mkdir(path, { recursive: true, mode: 0o700 });
    return path;
  }

  /** Removes a directory with all that is in it. Never throws: a failure is logged. */
  async remove(path: string): Promise<void> {
    try {
      await rm(path, { recursive: true, force: true, maxRetries: 2 });
    } catch (thrown) {
      this.#deps.log.warn('temporary directory not removed', { directory: path, err: toError(thrown) });
    }
  }
}

/** A process is known by host, id and, where /proc tells, its start: ids are used again, after a container's restart at once. */
async function ownerName(): Promise<string> {
  return `worker_${hostname()}_${process.pid}_${await startOf(process.pid)}`;
}

async function isOfDeadProcess(name: string): Promise<boolean> {
  const [, host, pid, start] = OWNER.exec(name) ?? [];
  if (host !== hostname() || pid === undefined) return false;
  try {
    process.kill(Number(pid), 0);
  } catch (thrown) {
    return codeOf(thrown) === 'ESRCH';
  }
  return start !== '' && start !== (await startOf(Number(pid)));
}

/** Clock ticks from boot to the start of a process, field 22 of /proc/<pid>/stat (proc(5)); empty without /proc. */
async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
}
