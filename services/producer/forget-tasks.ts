/**
 * What else goes when a task's time is over. The one place for it: whether a task is removed by itself or with its partition,
 * this is called first, in the same transaction, with at most 500 ids.
 */
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { forgetBeside } from './forget-tasks.sql.ts';

/** Tasks of one transaction at most. */
export const MOST_FORGOTTEN_AT_ONCE = 500;

/** Removes all that stands beside these ended tasks. May be repeated. Throws as `Queryable.query`. */
export async function forgetTasks(tx: Queryable, taskIds: readonly string[]): Promise<void> {
  if (taskIds.length === 0) return;
  await run(tx, forgetBeside, taskIds);
}
