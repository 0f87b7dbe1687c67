/**
 * Files in a folder. An object is written beside, flushed to the disk and then given its name, so that a name never leads to
 * half a file, whatever dies in between. Only this user can read what is there.
 */
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { codeOf } from '../errors/to-error.ts';
import { Bug, WarrenError } from '../errors/warren-error.ts';
import { storeFailure } from './file-store.ts';
import type { ByteRange, FileStore, StoredObject } from './file-store.ts';

const KEY = /^[a-z0-9-]+(\/[a-z0-9-]+)*$/;
/** Where uploads under way are: a name that no key can begin with. */
const UNFINISHED = '.unfinished';
const PRIVATE_FOLDER = 0o700;
const PRIVATE_FILE = 0o600;

/** A store in `root`, which is made when the first file comes. On several machines it must be one shared file system. */
export class FsStore implements FileStore {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  async put(key: string, source: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    const path = this.#pathOf(key);
    const folder = join(this.#root, UNFINISHED, firstStepOf(key));
    const beside = join(folder, randomUUID());
    const reading = source[Symbol.asyncIterator]();
    try {
      await guarded(async () => {
        await makeFolder(folder);
        await makeFolder(dirname(path));
      });
      const file = await guarded(async () => await open(beside, 'wx', PRIVATE_FILE));
      try {
        for (;;) {
          const piece = await reading.next(); // what this throws is the source's, not the store's
          signal.throwIfAborted();
          if (piece.done === true) break;
          await guarded(async () => await file.writeFile(piece.value));
        }
        await guarded(async () => await file.sync());
      } finally {
        await guarded(async () => await file.close());
      }
      await guarded(async () => {
        await rename(beside, path);
        await syncFolder(dirname(path));
      });
    } catch (thrown) {
      await reading.return?.();
      await rm(beside, { force: true }).catch(() => undefined); // what cannot be removed now is swept later
      throw thrown;
    }
  }

  async get(key: string, range?: ByteRange): Promise<Readable> {
    const path = this.#pathOf(key);
    const stream = createReadStream(path, range);
    return await new Promise((resolve, reject) => {
      stream.once('open', () => resolve(stream));
      stream.once('error', (thrown) =>
        reject(codeOf(thrown) === 'ENOENT' ? new WarrenError('file-not-found', {}, thrown) : storeFailure(thrown)),
      );
    });
  }

  async delete(keys: readonly string[]): Promise<void> {
    const paths = keys.map((key) => this.#pathOf(key));
    await guarded(async () => {
      for (const path of paths) await rm(path, { force: true });
    });
  }

  async list(prefix: string, after: string | undefined, limit: number): Promise<readonly StoredObject[]> {
    if (!KEY.test(prefix.replace(/\/$/, ''))) throw new Bug(`no prefix of a store: ${prefix}`);
    const found: StoredObject[] = [];
    const walk = async (folder: string): Promise<void> => {
      const entries = await readdir(join(this.#root, folder), { withFileTypes: true }).catch((thrown: unknown) => {
        if (codeOf(thrown) === 'ENOENT') return []; // nothing was stored yet, or it went meanwhile
        throw thrown;
      });
      // A folder sorts as its name with the slash, as the keys of an object store do.
      const named = entries.map((entry) => ({
        entry,
        key: join(folder, entry.name) + (entry.isDirectory() ? '/' : ''),
      }));
      for (const { entry, key } of named.toSorted((a, b) => (a.key < b.key ? -1 : 1))) {
        if (found.length >= limit) return;
        if (entry.isDirectory()) {
          if (after === undefined || key > after || after.startsWith(key)) await walk(join(folder, entry.name));
        } else if (entry.isFile() && (after === undefined || key > after)) {
          const storedAt = await modifiedAt(join(this.#root, key));
          if (storedAt !== undefined) found.push({ key, storedAt });
        }
      }
    };
    await guarded(async () => await walk(prefix.replace(/\/$/, '')));
    return found;
  }

  async removeUnfinished(prefix: string, before: Date, limit: number): Promise<number> {
    const folder = join(this.#root, UNFINISHED, firstStepOf(prefix));
    return await guarded(async () => {
      const names = await readdir(folder).catch((thrown: unknown) => {
        if (codeOf(thrown) === 'ENOENT') return [];
        throw thrown;
      });
      let removed = 0;
      for (const name of names) {
        if (removed >= limit) break;
        const touchedAt = await modifiedAt(join(folder, name)); // rises with each piece of an upload under way
        if (touchedAt === undefined || touchedAt >= before) continue;
        await rm(join(folder, name), { force: true });
        removed += 1;
      }
      return removed;
    });
  }

  close(): void {
    // nothing is open between calls
  }

  /** No path from outside reaches the file system: a key that Warren did not make is a bug. */
  #pathOf(key: string): string {
    if (!KEY.test(key)) throw new Bug('no key of a store');
    return join(this.#root, key);
  }
}

async function makeFolder(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: PRIVATE_FOLDER });
}

/** A new name is on the disk once its folder is. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

async function modifiedAt(path: string): Promise<Date | undefined> {
  try {
    return (await stat(path)).mtime;
  } catch (thrown) {
    if (codeOf(thrown) === 'ENOENT') return undefined;
    throw thrown;
  }
}

async function guarded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    throw storeFailure(thrown);
  }
}

const firstStepOf = (key: string): string => key.split('/', 1)[0] ?? '';
