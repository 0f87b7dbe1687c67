/** What `make up` left running. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The fleet of `make up`, as kept in `.warren/up.json`. */
export interface RunningFleet {
  readonly processes: readonly {
    readonly name: string;
    readonly pid: number;
    readonly url: string;
    readonly logFile: string;
  }[];
  readonly ports: { readonly producer: number; readonly deadLetterHandler: number };
  /** Of the role admin. */
  readonly token: string;
}

/** Where the state is kept. */
export function stateFile(root: string): string {
  return join(root, '.warren', 'up.json');
}

/** Those processes that still run and are ours: a pid is used again once its process is gone. */
export async function findRunning(fleet: RunningFleet): Promise<RunningFleet['processes']> {
  const checked = await Promise.all(fleet.processes.map(async (each) => ((await isOurs(each.pid)) ? [each] : [])));
  return checked.flat();
}

async function isOurs(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  // Without /proc (macOS) the pid alone has to do.
  const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => undefined);
  return commandLine === undefined || commandLine.includes(join('dist', 'services'));
}
