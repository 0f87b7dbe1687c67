/** What is kept of a private server between two starts: ports, passwords, processes. One file, only we may read it. */
import { randomBytes } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { findFreePort, isPortFree } from './ports.ts';
import { waitFor } from './server-process.ts';

const FREED_WITHIN_MS = 3_000;
const identity = z.object({ pid: z.int().positive(), began: z.string() });
const schema = z.object({
  /** Name to port on 127.0.0.1, chosen at the first start and kept. */
  ports: z.record(z.string(), z.int()),
  user: z.string(),
  password: z.string(),
  /** Name to process; those that ended may still be named. */
  processes: z.record(z.string(), identity),
});

/** The kept facts of one private server. */
export type ServerState = z.infer<typeof schema>;

/** Reads what `saveState` wrote in `dir`; `undefined` when nothing or nothing readable is there. */
export async function loadState(dir: string): Promise<ServerState | undefined> {
  try {
    return schema.parse(JSON.parse(await readFile(join(dir, 'state.json'), 'utf8')));
  } catch {
    return undefined; // the first start, or a file cut short: new ports and passwords do no harm to an empty directory
  }
}

/** Replaces the state in one step, so that a kill leaves the old or the new. */
export async function saveState(dir: string, state: ServerState): Promise<void> {
  const file = join(dir, 'state.json');
  await writeFile(`${file}.new`, `${JSON.stringify(state, null, 2)}\n`, { mode: 0o600 });
  await rename(`${file}.new`, file);
}

/** A state with a random user and password, and no ports yet. */
export function newState(): ServerState {
  return {
    ports: {},
    user: `warren_${randomBytes(4).toString('hex')}`,
    password: randomBytes(18).toString('base64url'),
    processes: {},
  };
}

/** Keeps the ports that are free, and chooses new ones for those that are missing or taken; `tell` hears of the taken. */
export async function settlePorts(
  state: ServerState,
  names: readonly string[],
  tell: (line: string) => void,
): Promise<ServerState> {
  const ports: Record<string, number> = {};
  for (const name of names) {
    const kept = state.ports[name];
    // The last threads of a server that was killed hold its ports for a moment.
    const isFree = kept !== undefined && (await waitFor(async () => await isPortFree(kept), FREED_WITHIN_MS));
    const port = isFree ? kept : await findFreePort(Object.values(ports));
    if (kept !== undefined && !isFree) tell(`port ${kept} (${name}) is taken by another process; using ${port}`);
    ports[name] = port;
  }
  return { ...state, ports };
}
