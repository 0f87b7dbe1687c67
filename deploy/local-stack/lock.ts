/** A lock between processes of one clone, that a killed holder does not leave behind. */
import { link, readFile, rename, rm, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf } from '../../shared/errors/to-error.ts';
import { EXIT_TRY_LATER, StackFailure } from './failure.ts';
import type { Home } from './home.ts';
import { identityOfSelf, isRunning, waitFor } from './server-process.ts';
import type { ProcessIdentity } from './server-process.ts';

/** A lock held; disposing of it gives it back. */
export interface Lock extends AsyncDisposable {
  release(): Promise<void>;
}

/** How to take a lock. */
export interface LockOptions {
  /** Milliseconds to wait for another holder. 0: fail at once. */
  readonly waitMs: number;
  /** Called once, with its pid, when another process holds the lock. */
  readonly onWait?: (pid: number) => void;
}

/** Takes the lock `name` of the clone. Throws a StackFailure that names the holder when it is not free in time. */
export async function takeLock(home: Pick<Home, 'notes'>, name: string, options: LockOptions): Promise<Lock> {
  const file = join(home.notes, `${name}.lock`);
  const mine = `${file}.${process.pid}`;
  const text = JSON.stringify(await identityOfSelf());
  let holder: ProcessIdentity | undefined;
  let hasTold = false;
  const isTaken = await waitFor(async () => {
    if (await tryTake(file, mine, text)) return true;
    holder = parseIdentity(await readFile(file, 'utf8').catch(() => ''));
    if (!(await isRunning(holder))) await removeStale(file, mine, holder);
    else if (!hasTold && holder !== undefined) {
      hasTold = true;
      options.onWait?.(holder.pid);
    }
    return false;
  }, options.waitMs);
  if (!isTaken && !(await tryTake(file, mine, text))) {
    throw new StackFailure(`another process (pid ${holder?.pid ?? 'unknown'}) holds ${file}`, EXIT_TRY_LATER);
  }
  const release = async (): Promise<void> => {
    if ((await readFile(file, 'utf8').catch(() => '')) === text) await rm(file, { force: true });
  };
  return { release, [Symbol.asyncDispose]: release };
}

/** A link appears with its content, so that no reader sees an empty lock. */
async function tryTake(file: string, mine: string, text: string): Promise<boolean> {
  await writeFile(mine, text, { mode: 0o600 });
  try {
    await link(mine, file);
    return true;
  } catch (thrown) {
    if (codeOf(thrown) === 'EEXIST') return false;
    throw thrown;
  } finally {
    await unlink(mine);
  }
}

/** Two may find the same stale lock: what was taken away is looked at, and put back when it is a new one. */
async function removeStale(file: string, mine: string, stale: ProcessIdentity | undefined): Promise<void> {
  const away = `${mine}.stale`;
  try {
    await rename(file, away);
  } catch {
    return; // somebody else removed it
  }
  const taken = parseIdentity(await readFile(away, 'utf8').catch(() => ''));
  if (taken?.pid !== stale?.pid || taken?.began !== stale?.began) await link(away, file).catch(() => undefined);
  await rm(away, { force: true });
}

/** The identity in the text of a lock; `undefined` for anything else. */
export function parseIdentity(text: string): ProcessIdentity | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || !('pid' in value) || !('began' in value)) return undefined;
    const { pid, began } = value;
    return typeof pid === 'number' && typeof began === 'string' ? { pid, began } : undefined;
  } catch {
    return undefined;
  }
}
