/** Takes files of handlers to the store: row first, then the bytes, then the row says that they are there. */
import { createReadStream } from 'node:fs';
import { addAbortSignal } from 'node:stream';
import type { Readable } from 'node:stream';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { checkDescription } from '../../shared/files/file-reference.ts';
import type { FileDescription, FileReference } from '../../shared/files/file-reference.ts';
import type { FileStore } from '../../shared/files/file-store.ts';
import { keepFile } from '../../shared/tasks/keep-file.ts';
import type { KeepFileDeps } from '../../shared/tasks/keep-file.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { FileSource } from '../../shared/tasks/define-task.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import { beginFile } from './file-saver.sql.ts';

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
export interface FileSaverDeps extends Omit<KeepFileDeps, 'store'> {
  /** `undefined`: none is configured. */
  readonly store: FileStore | undefined;
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
    const { db, store } = this.#deps;
    const { name, contentType } = checkDescription(file.description);
    if (store === undefined) throw new WarrenError('file-store-missing');
    const id = newId<string>();
    const { taskId, attempt, kind } = file;
    const [begun] = await run(db, beginFile, id, taskId, attempt, kind, name, contentType, this.#options.graceMs);
    if (begun === undefined) throw new WarrenError('file-unsaved');
    const { maxBytes } = this.#options;
    const begunFile = { id, key: begun.key, kind };
    const { bytes } = await keepFile({ ...this.#deps, store }, begunFile, {
      source: open(file),
      maxBytes,
      signal: file.signal,
    });
    return { $file: id, name, contentType, bytes };
  }
}

/** The pieces of a source. Throws `field-invalid` for what is none. */
async function* open({ source, signal }: FileToSave): AsyncGenerator<Uint8Array> {
  if (typeof source === 'string') yield* createReadStream(source, { signal });
  else if (ArrayBuffer.isView(source)) yield source;
  else if (typeof source === 'object' && source !== null && Symbol.asyncIterator in source && 'destroy' in source) {
    yield* bytesOf(addAbortSignal(signal, source));
  } else {
    const reason = 'must be the path of a file, a Buffer or a Readable';
    throw new WarrenError('field-invalid', { field: 'source', reason });
  }
}

/** A stream may give texts, or in object mode anything. */
async function* bytesOf(stream: Readable): AsyncGenerator<Uint8Array> {
  for await (const piece of stream as AsyncIterable<unknown>) {
    if (typeof piece === 'string') yield Buffer.from(piece);
    else if (ArrayBuffer.isView(piece)) yield piece as Uint8Array;
    else throw new WarrenError('field-invalid', { field: 'source', reason: 'must give bytes or texts' });
  }
}
