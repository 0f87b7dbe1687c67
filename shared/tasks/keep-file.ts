/**
 * Takes the bytes of a file to the store, once its row is there: then the row says that they are. Whatever dies in between leaves a
 * row that the sweeper of the producers finds. Nothing holds more than a few pieces of a file.
 */
import { createHash } from 'node:crypto';
import { toError } from '../errors/to-error.ts';
import { isWarrenError, WarrenError } from '../errors/warren-error.ts';
import type { Logger } from '../observability/log.ts';
import type { Metrics } from '../observability/metrics.ts';
import { run } from '../postgres/statement.ts';
import type { Queryable } from '../postgres/statement.ts';
import type { FileStore } from '../files/file-store.ts';
import { finishFile, forgetFile } from './keep-file.sql.ts';

/** What keeping a file needs. */
export interface KeepFileDeps {
  readonly db: Queryable;
  readonly store: FileStore;
  readonly log: Logger;
  readonly metrics: Pick<Metrics, 'filesSaved' | 'fileBytesSaved' | 'fileFailures'>;
}

/** A file whose row was begun. */
export interface BegunFile {
  readonly id: string;
  readonly key: string;
  readonly kind: 'saved' | 'result' | 'input';
}

/** What was stored. */
export interface KeptFile {
  readonly bytes: number;
  /** 64 hexadecimal digits. */
  readonly sha256: string;
}

/**
 * Stores `source` and says what was stored. Throws `file-too-large`, `file-store-unavailable`, `database-unavailable`, `file-unsaved` where
 * it is being deleted already, the reason of `signal`, and what its source throws; then nothing is kept.
 */
export async function keepFile(
  { db, store, log, metrics }: KeepFileDeps,
  { id, key, kind }: BegunFile,
  {
    source,
    maxBytes,
    signal,
  }: { readonly source: AsyncIterable<Uint8Array>; readonly maxBytes: number; readonly signal: AbortSignal },
): Promise<KeptFile> {
  const hash = createHash('sha256');
  let bytes = 0;
  async function* counted(): AsyncGenerator<Uint8Array> {
    for await (const piece of source) {
      bytes += piece.byteLength;
      if (bytes > maxBytes) throw new WarrenError('file-too-large', { maxBytes });
      hash.update(piece);
      yield piece;
    }
  }
  try {
    await store.put(key, counted(), signal);
  } catch (thrown) {
    if (isWarrenError(thrown, 'file-store-unavailable')) metrics.fileFailures.add(1, 'put');
    await forget();
    // The reason of the abort says more than that of whatever it broke off.
    throw signal.aborted ? toError(signal.reason) : thrown;
  }
  const sha256 = hash.digest();
  const [finished] = await run(db, finishFile, id, String(bytes), sha256);
  if (finished === undefined) {
    await store.delete([key]);
    throw new WarrenError('file-unsaved');
  }
  metrics.filesSaved.add(1, kind);
  metrics.fileBytesSaved.add(bytes);
  return { bytes, sha256: sha256.toString('hex') };

  /** Nothing of it was stored. A row that stays is swept. */
  async function forget(): Promise<void> {
    try {
      await run(db, forgetFile, id);
    } catch (thrown) {
      log.debug('row of an unsaved file kept', { fileId: id, err: toError(thrown) });
    }
  }
}

/** The bytes at hand as a source. */
export async function* piecesOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield await Promise.resolve(bytes);
}
