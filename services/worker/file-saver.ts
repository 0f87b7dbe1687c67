/**
 * Takes files of handlers to the store: row first, then the bytes, then the row says that they are there. Whatever dies in
 * between leaves a row that the sweeper of the producers finds. Nothing holds more than a few pieces of a file.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { addAbortSignal } from 'node:stream';
import type { Readable } from 'node:stream';
import { toError } from '../../shared/errors/to-error.ts';
import { isWarrenError, WarrenError } from '../../shared/errors/warren-error.ts';
import { checkDescription } from '../../shared/files/file-reference.ts';
import type { FileDescription, FileReference } from '../../shared/files/file-reference.ts';
import type { FileStore } from '../../shared/files/file-store.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import type { FileSource } from '../../shared/tasks/define-task.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import { beginFile, finishFile, forgetFile } from './file-saver.sql.ts';

/** A file of a running attempt. `result`: what its handler returned, too large for the row. */
export interface FileToSave {
  readonly taskId: TaskId;
  readonly attempt: number;
  readonly kind: 'saved' | 'result';
  readonly source: FileSource;
  readonly description: FileDescription;
  /** Ends the upload; what was stored is removed then. */
  readonly signal: AbortSignal;
}

/** What the saver needs. */
export interface FileSaverDeps {
  readonly db: Queryable;
  /** `undefined`: none is configured. */
  readonly store: FileStore | undefined;
  readonly log: Logger;
  readonly metrics: Pick<Metrics, 'filesSaved' | 'fileBytesSaved' | 'fileFailures'>;
}

/** How it saves. */
export interface FileSaverOptions {
  /** Bytes of one file at most. */
  readonly maxBytes: number;
  /** Milliseconds from the begin of an upload to the first look of the sweeper. */
  readonly graceMs: number;
}

/** Saves files. */
export class FileSaver {
  readonly #deps: FileSaverDeps;
  readonly #options: FileSaverOptions;

  constructor(deps: FileSaverDeps, options: FileSaverOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /**
   * Saves one file. Throws `field-invalid`, `file-store-missing`, `file-too-large`, `file-store-unavailable`,
   * `database-unavailable`, `file-unsaved` where the attempt is no longer this worker's, and what its source throws.
   */
  async save(file: FileToSave): Promise<FileReference> {
    const { db, store, metrics } = this.#deps;
    const { name, contentType } = checkDescription(file.description);
    if (store === undefined) throw new WarrenError('file-store-missing');
    const id = newId<string>();
    const { taskId, attempt, kind } = file;
    const [begun] = await run(db, beginFile, id, taskId, attempt, kind, name, contentType, this.#options.graceMs);
    if (begun === undefined) throw new WarrenError('file-unsaved');
    const counted = { bytes: 0, hash: createHash('sha256') };
    try {
      await store.put(begun.key, this.#count(open(file.source, file.signal), counted), file.signal);
    } catch (thrown) {
      if (isWarrenError(thrown, 'file-store-unavailable')) metrics.fileFailures.add(1, 'put');
      await this.#forget(id);
      // The reason of the abort says more than that of whatever it broke off.
      throw file.signal.aborted ? toError(file.signal.reason) : thrown;
    }
    const { bytes } = counted;
    const [finished] = await run(db, finishFile, id, String(bytes), counted.hash.digest());
    if (finished === undefined) {
      await store.delete([begun.key]);
      throw new WarrenError('file-unsaved');
    }
    metrics.filesSaved.add(1, kind);
    metrics.fileBytesSaved.add(bytes);
    return { $file: id, name, contentType, bytes };
  }

  async *#count(
    source: AsyncIterable<Uint8Array>,
    counted: { bytes: number; readonly hash: ReturnType<typeof createHash> },
  ): AsyncGenerator<Uint8Array> {
    const { maxBytes } = this.#options;
    for await (const piece of source) {
      counted.bytes += piece.byteLength;
      if (counted.bytes > maxBytes) throw new WarrenError('file-too-large', { maxBytes });
      counted.hash.update(piece);
      yield piece;
    }
  }

  /** Nothing of it was stored. A row that stays is swept. */
  async #forget(id: string): Promise<void> {
    try {
      await run(this.#deps.db, forgetFile, id);
    } catch (thrown) {
      this.#deps.log.debug('row of an unsaved file kept', { fileId: id, err: toError(thrown) });
    }
  }
}

/** The pieces of a source. Throws `field-invalid` for what is none. */
function open(source: FileSource, signal: AbortSignal): AsyncIterable<Uint8Array> {
  if (typeof source === 'string') return createReadStream(source, { signal });
  if (ArrayBuffer.isView(source)) return once(source);
  if (typeof source === 'object' && source !== null && Symbol.asyncIterator in source && 'destroy' in source) {
    return bytesOf(addAbortSignal(signal, source));
  }
  const reason = 'must be the path of a file, a Buffer or a Readable';
  throw new WarrenError('field-invalid', { field: 'source', reason });
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield await Promise.resolve(bytes);
}

/** A stream may give texts, or in object mode anything. */
async function* bytesOf(stream: Readable): AsyncGenerator<Uint8Array> {
  for await (const piece of stream as AsyncIterable<unknown>) {
    if (typeof piece === 'string') yield Buffer.from(piece);
    else if (ArrayBuffer.isView(piece)) yield piece as Uint8Array;
    else throw new WarrenError('field-invalid', { field: 'source', reason: 'must give bytes or texts' });
  }
}
