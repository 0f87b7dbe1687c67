/**
 * The file sweeper: deletes files whose time is over, those of attempts that did not succeed, and what an upload that was cut off left.
 * Each round also walks a piece further through the store itself, for objects that no row names: an old backup of the database
 * makes such, and a store whose answer to an upload was lost.
 */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { StoredObject } from '../../shared/files/file-store.ts';
import { run } from '../../shared/postgres/statement.ts';
import { isUuid } from '../../shared/tasks/ids.ts';
import { eraseFiles, MOST_ERASED } from './file-eraser.ts';
import type { DeletedWhy, FileEraserDeps } from './file-eraser.ts';
import { doomFiles, findKnownKeys, readStoreId } from './file-eraser.sql.ts';

/** What the sweeper needs. */
export interface FileSweeperDeps extends Omit<LoopDeps, 'round'>, FileEraserDeps {}

/** How it sweeps. */
export interface FileSweeperOptions {
  readonly sweepIntervalMs: number;
  readonly keepMs: number;
  readonly keepAfterLinkMs: number;
  /** Milliseconds that what nothing refers to is left alone. */
  readonly graceMs: number;
}

/** Makes the loop. */
export function createFileSweeper(deps: FileSweeperDeps, options: FileSweeperOptions): Loop {
  let storeId: string | undefined;
  let after: string | undefined; // how far the walk through the store has come
  const told = (count: number, why: DeletedWhy): void => {
    if (count > 0) deps.log.info('files deleted', { count, why });
  };

  const sweepRows = async (): Promise<boolean> => {
    const { keepMs, keepAfterLinkMs, graceMs } = options;
    const looked = await run(deps.db, doomFiles, keepMs, keepAfterLinkMs, graceMs, MOST_ERASED);
    for (const why of ['expired', 'unused'] as const) {
      const files = looked.filter((file) => file.is_doomed === true && file.why === why);
      await eraseFiles(deps, files, why);
      told(files.length, why);
    }
    return looked.length === MOST_ERASED;
  };

  const sweepStore = async (): Promise<void> => {
    storeId ??= (await run(deps.db, readStoreId))[0]?.store_id;
    if (storeId === undefined) return; // no process has taken the database for its prefix yet
    const prefix = `${storeId}/`;
    const before = new Date(deps.clock.now().getTime() - options.graceMs);
    const objects = await deps.store.list(prefix, after, MOST_ERASED);
    const stray = await strayOf(objects.filter(({ storedAt }) => storedAt < before));
    await deps.store.delete(stray);
    after = objects.length < MOST_ERASED ? undefined : objects.at(-1)?.key;
    const unfinished = await deps.store.removeUnfinished(prefix, before, MOST_ERASED);
    deps.metrics.filesDeleted.add(stray.length + unfinished, 'stray');
    told(stray.length + unfinished, 'stray');
  };

  const strayOf = async (objects: readonly StoredObject[]): Promise<readonly string[]> => {
    if (objects.length === 0) return [];
    const keys = objects.map(({ key }) => key);
    const ids = keys.map((key) => key.split('/').at(-1)).filter((id) => isUuid(id));
    const known = new Set((await run(deps.db, findKnownKeys, ids, keys)).map(({ key }) => key));
    return keys.filter((key) => !known.has(key));
  };

  const round = async (): Promise<boolean> => {
    const more = await sweepRows();
    if (!more) await sweepStore();
    return more;
  };
  return new Loop({ ...deps, round }, { name: 'file sweeper', intervalMs: options.sweepIntervalMs });
}
