/**
 * Where the private servers live. Under `.warren/` of the clone when they can: the scripts of RabbitMQ break on spaces, and
 * as root the servers run as another user, who cannot enter `/root`. Then under `/var/tmp`, and `.warren/elsewhere` says so.
 */
import { createHash } from 'node:crypto';
import { chmod, chown, lstat, mkdir, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { StackFailure } from './failure.ts';
import { findServerUser } from './server-user.ts';
import type { ServerUser } from './server-user.ts';

/** The places of one clone. */
export interface Home {
  /** `.warren/` in the clone: locks, notes. */
  readonly notes: string;
  /** Packages, data and logs of the servers: `notes`, or a directory under `/var/tmp`. */
  readonly servers: string;
  /** Eight hexadecimal digits that stand for this clone. */
  readonly hash: string;
  readonly user: ServerUser | undefined;
}

/** Finds, makes and protects the directories of the clone at `root`. Throws when one of them is somebody else's. */
export async function openHome(root: string): Promise<Home> {
  const user = await findServerUser();
  const notes = join(root, '.warren');
  await mkdir(notes, { recursive: true, mode: 0o755 });
  const hash = createHash('sha256').update(root).digest('hex').slice(0, 8);
  const canStay = isPlainPath(notes) && (user === undefined || (await canOthersEnter(notes)));
  if (canStay) {
    await protect(join(notes, 'servers'), user);
    return { notes, servers: join(notes, 'servers'), hash, user };
  }
  const servers = `/var/tmp/warren-${process.getuid?.() ?? 0}-${hash}`;
  await protect(servers, user);
  await writeFile(join(notes, 'elsewhere'), `${servers}\n`);
  return { notes, servers, hash, user };
}

/** True when scripts that do not quote can bear the path. */
export function isPlainPath(path: string): boolean {
  return /^[A-Za-z0-9/._+-]+$/.test(path);
}

/** Makes a directory that only `user` may read (ourselves when `undefined`). */
export async function mkdirFor(path: string, user: ServerUser | undefined): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  if (user !== undefined) await chown(path, user.uid, user.gid);
}

async function canOthersEnter(path: string): Promise<boolean> {
  const { mode } = await stat(path);
  if ((mode & 0o001) === 0) return false;
  return path === dirname(path) ? true : await canOthersEnter(dirname(path));
}

/** `/var/tmp` is everybody's: a directory that waits there under our name, made by somebody else, is a trap. */
async function protect(path: string, user: ServerUser | undefined): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  const found = await lstat(path);
  if (!found.isDirectory() || found.uid !== process.getuid?.()) {
    throw new StackFailure(`${path} is not a directory of ours; remove it, or move the clone`);
  }
  await chmod(path, user === undefined ? 0o700 : 0o711); // as root: the servers' user passes through, and reads nothing
}
