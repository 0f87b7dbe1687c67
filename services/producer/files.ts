/** Files of tasks: lists, links, and the bytes behind a link. */
import { Readable } from 'node:stream';
import { WarrenError, isWarrenError } from '../../shared/errors/warren-error.ts';
import { signLink, verifyLink } from '../../shared/files/link.ts';
import type { ByteRange, FileStore } from '../../shared/files/file-store.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { listFiles, markLink, readFile, readTaskState } from './files.sql.ts';

/** What files need. */
export interface FilesDeps {
  readonly db: Queryable;
  /** `undefined`: none is configured. */
  readonly store: FileStore | undefined;
  /** Signs links. */
  readonly linkSecret: string;
  readonly clock: Pick<Clock, 'now'>;
  readonly metrics: Pick<Metrics, 'fileFailures'>;
}

/** A whole file. */
export interface StoredFile {
  readonly id: string;
  readonly kind: string;
  readonly name: string;
  readonly contentType: string;
  readonly bytes: number;
  /** 64 hexadecimal digits. */
  readonly sha256: string;
  readonly createdAt: Date;
  /** When the last link to it expires. */
  readonly linkExpiresAt: Date | undefined;
  /** Its name in the store. */
  readonly key: string;
}

/** Files of a task that can be had, in the order in which they were saved. Throws `task-not-found`. */
export async function findFiles(db: Queryable, taskId: string): Promise<readonly StoredFile[]> {
  const rows = await run(db, listFiles, taskId);
  if (rows.length === 0) await stateOf(db, taskId);
  return rows.map((row) => fileOf(row));
}

/** Makes a link. Throws `file-store-missing`, `task-not-found`, `file-not-found`. */
export async function makeLink(
  { db, store, linkSecret }: FilesDeps,
  {
    taskId,
    fileId,
    expiresInSeconds,
  }: { readonly taskId: string; readonly fileId: string; readonly expiresInSeconds: number },
): Promise<{ readonly path: string; readonly expiresAt: Date }> {
  if (store === undefined) throw new WarrenError('file-store-missing');
  const [marked] = await run(db, markLink, taskId, fileId, expiresInSeconds);
  if (marked !== undefined) {
    return { path: signLink(linkSecret, fileId, marked.expires_at), expiresAt: marked.expires_at };
  }
  const state = await stateOf(db, taskId);
  const hint = state === 'running' ? 'files can be had once the task has succeeded' : undefined;
  throw new WarrenError('file-not-found', { taskId, ...(hint === undefined ? {} : { hint }) });
}

/** The file that a link leads to. Throws `link-invalid`, `link-expired`, `file-not-found`, `file-store-missing`. */
export async function followLink({ db, store, linkSecret, clock }: FilesDeps, path: string): Promise<StoredFile> {
  const id = verifyLink(linkSecret, path, clock.now());
  if (store === undefined) throw new WarrenError('file-store-missing');
  const [row] = await run(db, readFile, id);
  if (row === undefined) throw new WarrenError('file-not-found');
  return fileOf(row);
}

/**
 * The bytes of a file. Throws `file-store-unavailable`, `file-not-found`. It fails where the store has fewer or more than was stored: a client that
 * was promised them would wait for those that do not come.
 */
export async function openFile(deps: FilesDeps, file: StoredFile, range: ByteRange | undefined): Promise<Readable> {
  try {
    if (deps.store === undefined) throw new WarrenError('file-store-missing');
    const bytes = range === undefined ? file.bytes : range.end - range.start + 1;
    return Readable.from(exactly(await deps.store.get(file.key, range), bytes), { objectMode: false });
  } catch (thrown) {
    if (isWarrenError(thrown, 'file-store-unavailable')) deps.metrics.fileFailures.add(1, 'get');
    throw thrown;
  }
}

async function* exactly(body: Readable, bytes: number): AsyncGenerator<Buffer> {
  let left = bytes;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    left -= chunk.length;
    if (left < 0) break;
    yield chunk;
  }
  if (left !== 0)
    throw new WarrenError('file-store-unavailable', { reason: 'the store has another size than was stored' });
}

async function stateOf(db: Queryable, taskId: string): Promise<string> {
  const [task] = await run(db, readTaskState, taskId);
  if (task === undefined) throw new WarrenError('task-not-found', { taskId });
  return task.state;
}

function fileOf(row: RowOf<typeof listFiles.columns>): StoredFile {
  return {
    id: row.id,
    kind: row.kind,
    name: row.name,
    contentType: row.content_type,
    bytes: Number(row.bytes),
    sha256: row.sha256?.toString('hex') ?? '',
    createdAt: row.created_at,
    linkExpiresAt: row.link_expires_at ?? undefined,
    key: row.key,
  };
}
