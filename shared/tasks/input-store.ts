/**
 * Inputs too large for a row (claim check): the bytes go to the store of files before the task is written, and come back at its
 * start, or where they are mended. What no task came to refer to is swept like any other file.
 */
import { createHash } from 'node:crypto';
import { isWarrenError, WarrenError } from '../errors/warren-error.ts';
import { run } from '../postgres/statement.ts';
import { newId } from './ids.ts';
import { outlineOf } from './outline.ts';
import type { InputFile } from './submission.ts';
import type { FileStore } from '../files/file-store.ts';
import { beginInput, findInput } from './input-store.sql.ts';
import { keepFile, piecesOf } from './keep-file.ts';
import type { KeepFileDeps, KeptFile } from './keep-file.ts';

/** What the store of inputs needs. */
export interface InputStoreDeps extends Omit<KeepFileDeps, 'store'> {
  /** `undefined`: none is configured, and nothing is stored. */
  readonly store: FileStore | undefined;
}

/** Its bounds. */
export interface InputStoreOptions {
  /** Bytes that an input may have in its row. */
  readonly rowBytes: number;
  /** Milliseconds from the begin of an upload to the first look of the sweeper; ten minutes where it is less. */
  readonly graceMs: number;
}

/** An input that is in the store, as the row of its task has it. */
export interface KeptInput {
  /** Its outline, as JSON. */
  readonly input: Buffer;
  /** The whole of it. */
  readonly inputFile: InputFile;
}

/** Milliseconds that storing or reading one input may take: a request, a delivery or a batch waits for it. */
const WITHIN_MS = 30_000;
/** Milliseconds that an input at least has until a task refers to it: a replay mends many before it sends them. */
const LEAST_GRACE_MS = 600_000;

/** Stores inputs and reads them. */
export class InputStore {
  readonly #deps: InputStoreDeps;
  readonly #options: InputStoreOptions;

  constructor(deps: InputStoreDeps, options: InputStoreOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** True where an input of so many bytes does not fit its row. */
  isLarge(input: Buffer): boolean {
    return this.#deps.store !== undefined && input.length > this.#options.rowBytes;
  }

  /**
   * Stores an input that is too large for the row of its task, JSON that was checked, and gives what goes there in its place.
   * Throws `file-store-missing`, `file-store-unavailable`, `database-unavailable`.
   */
  async keep(taskId: string, input: Buffer): Promise<KeptInput> {
    const { db, store } = this.#deps;
    if (store === undefined) throw new WarrenError('file-store-missing');
    const id = newId<string>();
    const [begun] = await run(db, beginInput, id, taskId, Math.max(this.#options.graceMs, LEAST_GRACE_MS));
    if (begun === undefined) throw new WarrenError('database-unavailable'); // nobody has taken it for a prefix yet
    const file = { id, key: begun.key, kind: 'input' } as const;
    const signal = AbortSignal.timeout(WITHIN_MS);
    let kept: KeptFile;
    try {
      kept = await keepFile({ ...this.#deps, store }, file, {
        source: piecesOf(input),
        maxBytes: input.length,
        signal,
      });
    } catch (thrown) {
      if (signal.aborted) throw new WarrenError('file-store-unavailable', { reason: 'took too long' }, thrown);
      throw thrown;
    }
    return { input: this.outline(input), inputFile: { id, ...kept } };
  }

  /** What is shown of a large input, as JSON. */
  outline(input: Buffer): Buffer {
    return Buffer.from(JSON.stringify(outlineOf(JSON.parse(input.toString('utf8')))));
  }

  /**
   * Reads a stored input. Throws `input-missing` where it is gone or is not what was stored, `file-store-missing`,
   * `file-store-unavailable`, `database-unavailable`, and the reason of `signal`.
   */
  async read(fileId: string, signal?: AbortSignal): Promise<Buffer> {
    const { db, store, metrics } = this.#deps;
    if (store === undefined) throw new WarrenError('file-store-missing');
    const [file] = await run(db, findInput, fileId);
    if (file === undefined) throw new WarrenError('input-missing', { fileId, reason: 'it was deleted' });
    const late = AbortSignal.timeout(WITHIN_MS);
    const ending = signal === undefined ? late : AbortSignal.any([signal, late]);
    const pieces: Buffer[] = [];
    try {
      const stream = await store.get(file.key);
      const end = (): void => void stream.destroy(ending.reason as Error);
      ending.addEventListener('abort', end, { once: true });
      try {
        for await (const piece of stream) pieces.push(piece as Buffer);
      } finally {
        ending.removeEventListener('abort', end);
      }
    } catch (thrown) {
      signal?.throwIfAborted();
      if (late.aborted) throw new WarrenError('file-store-unavailable', { reason: 'took too long' }, thrown);
      if (isWarrenError(thrown, 'file-not-found')) {
        throw new WarrenError('input-missing', { fileId, reason: 'the store does not have it' }, thrown);
      }
      if (isWarrenError(thrown, 'file-store-unavailable')) metrics.fileFailures.add(1, 'get');
      throw thrown;
    }
    const input = Buffer.concat(pieces);
    const sha256 = createHash('sha256').update(input).digest();
    if (file.sha256?.equals(sha256) === true) return input;
    throw new WarrenError('input-missing', { fileId, reason: 'the store has other bytes than were stored' });
  }
}
