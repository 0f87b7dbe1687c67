/**
 * Files in a bucket of S3 or of what speaks like it. The only file that knows the AWS SDK, which is loaded when such a store is
 * configured and need not be installed otherwise.
 *
 * Checksums of the SDK are sent only where S3 requires them: many servers that are compatible with S3 refuse the trailers
 * that the SDK sends by default since 3.729. Warren keeps a SHA-256 of its own beside each file.
 */
import { Readable } from 'node:stream';
import type * as S3 from '@aws-sdk/client-s3';
import type * as LibStorage from '@aws-sdk/lib-storage';
import { toError } from '../errors/to-error.ts';
import { Bug, WarrenError } from '../errors/warren-error.ts';
import { storeFailure } from './file-store.ts';
import type { ByteRange, FileStore, StoredObject } from './file-store.ts';

/** Where the bucket is. */
export interface S3Options {
  readonly bucket: string;
  readonly region: string;
  /** `https://host:port` of a server that is not Amazon's; `undefined`: Amazon's. */
  readonly endpoint: string | undefined;
  /** `undefined`: as the SDK finds them (environment, profile, role of the machine). */
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string } | undefined;
}

/** The packages that make the store. */
export interface S3Packages {
  readonly s3: typeof S3;
  readonly upload: typeof LibStorage;
}

/** Bytes of a part of an upload; two are in memory at most. 10 000 parts make 78 GiB. */
const PART_BYTES = 8_388_608;
/** Milliseconds that connecting, and silence on a connection, may last. */
const CONNECT_MS = 5_000;
const SILENCE_MS = 30_000;
const TRIES = 3;
/** S3 tells when an upload began and not when its last part came: one under way is not taken for left behind for so long. */
const LONGEST_UPLOAD_MS = 86_400_000;

/** Loads the packages. Throws `config-invalid` that says what to install where they are not there. */
export async function loadS3Packages(
  load: (name: string) => Promise<unknown> = async (name) => (await import(name)) as unknown,
): Promise<S3Packages> {
  try {
    return {
      s3: (await load('@aws-sdk/client-s3')) as typeof S3,
      upload: (await load('@aws-sdk/lib-storage')) as typeof LibStorage,
    };
  } catch (thrown) {
    const fault =
      'files.store is s3, for which two packages must be installed: npm install @aws-sdk/client-s3 @aws-sdk/lib-storage';
    throw new WarrenError(
      'config-invalid',
      { faults: [`${fault} (${toError(thrown).message.split('\n', 1)[0]})`] },
      thrown,
    );
  }
}

/** A store in a bucket. Large files go up in parts, each tried again by itself. */
export class S3Store implements FileStore {
  readonly #packages: S3Packages;
  readonly #client: S3.S3Client;
  readonly #bucket: string;

  constructor(packages: S3Packages, { bucket, region, endpoint, credentials }: S3Options) {
    this.#packages = packages;
    this.#bucket = bucket;
    this.#client = new packages.s3.S3Client({
      region,
      maxAttempts: TRIES,
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: SILENCE_MS },
      ...(endpoint === undefined ? {} : { endpoint, forcePathStyle: true }),
      ...(credentials === undefined ? {} : { credentials }),
    });
  }

  async put(key: string, source: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    let fromSource: { readonly thrown: unknown } | undefined;
    const body = Readable.from(
      (async function* watched() {
        try {
          for await (const piece of source) {
            signal.throwIfAborted();
            yield piece;
          }
        } catch (thrown) {
          fromSource = { thrown };
          throw thrown;
        }
      })(),
      { objectMode: false, highWaterMark: 65_536 },
    );
    const upload = new this.#packages.upload.Upload({
      client: this.#client,
      params: { Bucket: this.#bucket, Key: key, Body: body },
      partSize: PART_BYTES,
      queueSize: 1,
      leavePartsOnError: false,
    });
    const abort = (): void => void upload.abort(); // never rejects
    signal.addEventListener('abort', abort, { once: true });
    try {
      await upload.done();
    } catch (thrown) {
      signal.throwIfAborted();
      if (fromSource !== undefined) throw fromSource.thrown;
      throw storeFailure(thrown);
    } finally {
      signal.removeEventListener('abort', abort);
      body.destroy();
    }
  }

  async get(key: string, range?: ByteRange): Promise<Readable> {
    const { GetObjectCommand } = this.#packages.s3;
    const Range = range === undefined ? {} : { Range: `bytes=${range.start}-${range.end}` };
    try {
      const { Body } = await this.#client.send(new GetObjectCommand({ Bucket: this.#bucket, Key: key, ...Range }));
      if (!(Body instanceof Readable)) throw new Bug('the SDK gives streams of Node.js on Node.js');
      return Body;
    } catch (thrown) {
      if (toError(thrown).name === 'NoSuchKey') throw new WarrenError('file-not-found', {}, thrown);
      throw storeFailure(thrown);
    }
  }

  async delete(keys: readonly string[]): Promise<void> {
    if (keys.length === 0) return;
    const { DeleteObjectsCommand } = this.#packages.s3;
    await this.#guarded(async () => {
      const Objects = keys.map((key) => ({ Key: key }));
      const { Errors: errors = [] } = await this.#client.send(
        new DeleteObjectsCommand({ Bucket: this.#bucket, Delete: { Objects, Quiet: true } }),
      );
      const [first] = errors;
      if (first !== undefined) {
        const reason = `${errors.length} objects were not deleted; the first: ${first.Code ?? ''} ${first.Message ?? ''}`;
        throw new WarrenError('file-store-unavailable', { reason });
      }
    });
  }

  async list(prefix: string, after: string | undefined, limit: number): Promise<readonly StoredObject[]> {
    // The first form of the listing: it begins behind any key, and there is no compatible server without it.
    const { ListObjectsCommand } = this.#packages.s3;
    return await this.#guarded(async () => {
      const { Contents: contents = [] } = await this.#client.send(
        new ListObjectsCommand({
          Bucket: this.#bucket,
          Prefix: prefix,
          MaxKeys: limit,
          ...(after === undefined ? {} : { Marker: after }),
        }),
      );
      return contents.flatMap(({ Key: key, LastModified: storedAt }) =>
        key === undefined || storedAt === undefined ? [] : [{ key, storedAt }],
      );
    });
  }

  async removeUnfinished(prefix: string, before: Date, limit: number): Promise<number> {
    const { AbortMultipartUploadCommand, ListMultipartUploadsCommand } = this.#packages.s3;
    return await this.#guarded(async () => {
      const { Uploads: uploads = [] } = await this.#client
        .send(new ListMultipartUploadsCommand({ Bucket: this.#bucket, Prefix: prefix, MaxUploads: limit }))
        .catch((thrown: unknown) => {
          // Such a server has to remove them by itself, by a rule of the bucket.
          if (toError(thrown).name === 'NotImplemented') return { Uploads: [] };
          throw thrown;
        });
      const longAgo = new Date(before.getTime() - LONGEST_UPLOAD_MS);
      const old = uploads.filter(({ Initiated: begunAt }) => begunAt !== undefined && begunAt < longAgo);
      for (const { Key, UploadId } of old) {
        await this.#client.send(new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key, UploadId }));
      }
      return old.length;
    });
  }

  close(): void {
    this.#client.destroy();
  }

  async #guarded<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (thrown) {
      throw storeFailure(thrown);
    }
  }
}
