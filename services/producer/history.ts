/** The history of a task in pages: however long it is, a page looks at no more than it shows. */
import { z } from 'zod';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { compareKeys, composeHistory } from './history-entries.ts';
import type { EntryKey, HistoryEntry } from './history-entries.ts';
import { readHistoryAttempts, readHistoryAudit, readHistoryLetters, readHistoryTask } from './history.sql.ts';

/** After which entry a page begins, and the highest attempt that was shown before: those below it are done with. */
export const historyKey = z.tuple([z.int().min(0), z.int().min(0), z.int(), z.string().max(36), z.int().min(0)]);
/** See `historyKey`. */
export type HistoryCursor = z.infer<typeof historyKey>;

/** A page of a history, oldest first. */
export interface HistoryPage {
  readonly state: string;
  readonly entries: readonly HistoryEntry['entry'][];
  /** Where the next page begins; `undefined` at the end. */
  readonly next: HistoryCursor | undefined;
}

/** Rows beyond a page that are read of each source: those of the instant where it begins were shown already. */
const MORE = 20;
/** Earlier than anything. */
const FROM_THE_START: HistoryCursor = [0, 0, -1, '', 0];

/** One page. Throws `task-not-found` and as `Queryable.query`. */
export async function findHistory(
  db: Queryable,
  taskId: string,
  { limit, after = FROM_THE_START }: { readonly limit: number; readonly after?: HistoryCursor | undefined },
): Promise<HistoryPage> {
  const [task] = await run(db, readHistoryTask, taskId);
  if (task === undefined) throw new WarrenError('task-not-found', { taskId });
  const [afterMs, attempt, rank, id, fromAttempt] = after;
  const from = new Date(afterMs);
  // More than a page of each: so what is cut off of a source stands behind everything that is shown.
  const most = limit + MORE;
  const entries = composeHistory({
    task,
    attempts: task.attempt === 0 ? [] : await run(db, readHistoryAttempts, taskId, fromAttempt, most),
    letters: await run(db, readHistoryLetters, taskId, from, most),
    audit: await run(db, readHistoryAudit, taskId, from, most),
  }).filter(({ key }) => compareKeys(key, [afterMs, attempt, rank, id]) > 0);
  const shown = entries.slice(0, limit);
  const last = shown.at(-1);
  return {
    state: task.state,
    entries: shown.map(({ entry }) => entry),
    next: entries.length > limit && last !== undefined ? cursorAfter(last.key, shown, fromAttempt) : undefined,
  };
}

function cursorAfter(key: EntryKey, shown: readonly HistoryEntry[], fromAttempt: number): HistoryCursor {
  return [...key, Math.max(fromAttempt, ...shown.map((each) => each.key[1]))];
}
