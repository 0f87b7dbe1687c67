/**
 * Where the bytes of files are kept: one narrow interface, with an implementation for a folder and one for S3. Both hold
 * the same behaviour (`test/once/file-stores.test.ts`).
 */
import type { Readable } from 'node:stream';
import { codeOf, toError } from '../errors/to-error.ts';
import { isWarrenError, WarrenError } from '../errors/warren-error.ts';

/** A part of an object, by bytes. */
export interface ByteRange {
  /** First byte, from 0. */
  readonly start: number;
  /** Last byte, inclusive. */
  readonly end: number;
}

/** An object as a listing shows it. */
export interface StoredObject {
  readonly key: string;
  /** When it was stored, by the clock of the store. */
  readonly storedAt: Date;
}

/**
 * A store. Keys are made by Warren alone: steps of `[a-z0-9-]`, joined by `/`. Everything throws `file-store-unavailable`
 * where the store does not answer, is full or refuses.
 */
export interface FileStore {
  /**
   * Stores all of `source` under `key`. Either all bytes are there under it afterwards, or, where `source` or the store fails or
   * `signal` aborts, none. Rethrows what `source` throws.
   */
  put(key: string, source: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void>;
  /** Gives an object, or a part of it. Throws `file-not-found` where there is none. Destroy the stream where it is not read to its end. */
  get(key: string, range?: ByteRange): Promise<Readable>;
  /** Deletes objects, at most 1 000; one that is not there is fine. */
  delete(keys: readonly string[]): Promise<void>;
  /** At most `limit` objects whose keys begin with `prefix`, in the order of their keys, behind the key `after`. */
  list(prefix: string, after: string | undefined, limit: number): Promise<readonly StoredObject[]>;
  /** Removes what uploads left that nothing was added to since `before` and that never ended, at most `limit`; gives how many. */
  removeUnfinished(prefix: string, before: Date, limit: number): Promise<number>;
  /** Ends idle connections. */
  close(): void;
}

/** What errors of files are called for whoever repairs the store. */
const REASONS: ReadonlyMap<string, string> = new Map([
  ['ENOSPC', 'no space is left (ENOSPC)'],
  ['EDQUOT', 'the quota is used up (EDQUOT)'],
  ['EROFS', 'it is mounted read-only (EROFS)'],
  ['EACCES', 'this user may not write there (EACCES)'],
  ['ECONNREFUSED', 'nothing listens there (ECONNREFUSED)'],
  ['NoSuchBucket', 'there is no such bucket'],
  ['InvalidAccessKeyId', 'it does not know the access key'],
  ['SignatureDoesNotMatch', 'it refuses the secret key'],
  ['AccessDenied', 'the access key may not do this'],
]);

/** The error of a store that failed; an error of Warren stays what it is. */
export function storeFailure(thrown: unknown): WarrenError {
  if (isWarrenError(thrown)) return thrown;
  const error = toError(thrown);
  // The AWS SDK wraps what the network says, and keeps its code in the text alone.
  const code = codeOf(thrown) ?? /\bE[A-Z]{4,}\b/.exec(error.message)?.[0] ?? error.name;
  return new WarrenError(
    'file-store-unavailable',
    { reason: REASONS.get(code) ?? `${code}: ${error.message}` },
    thrown,
  );
}
