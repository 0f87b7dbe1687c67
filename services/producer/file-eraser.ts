/** Deletes files: the bytes first, so that a row is left where the store fails, and the next round finds it. */
import type { FileStore } from '../../shared/files/file-store.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { deleteFileRows } from './file-eraser.sql.ts';

/** What erasing needs. */
export interface FileEraserDeps {
  readonly db: Queryable;
  readonly store: FileStore;
  readonly metrics: Pick<Metrics, 'filesDeleted'>;
}

/** Why files are deleted. */
export type DeletedWhy = 'expired' | 'unused' | 'stray';

/** A file that nobody gets any more. */
export interface DoomedFile {
  readonly id: string;
  readonly key: string;
}

/** Files in one call of the store, and in one commit. */
export const MOST_ERASED = 500;

/** Deletes the bytes and rows of files that were doomed, at most 500. Throws `file-store-unavailable`, and as `Queryable.query`. */
export async function eraseFiles(
  { db, store, metrics }: FileEraserDeps,
  files: readonly DoomedFile[],
  why: DeletedWhy,
): Promise<void> {
  if (files.length === 0) return;
  await store.delete(files.map(({ key }) => key));
  const deleted = await run(
    db,
    deleteFileRows,
    files.map(({ id }) => id),
  );
  metrics.filesDeleted.add(deleted.length, why);
}
