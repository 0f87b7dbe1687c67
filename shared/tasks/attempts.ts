/** The history of a task: every attempt that did not succeed at once. */
import { run } from '../postgres/statement.ts';
import type { Queryable, RowOf } from '../postgres/statement.ts';
import { readAttempts } from './attempts.sql.ts';

/** An attempt that left a row. */
export type AttemptRow = RowOf<typeof readAttempts.columns>;

/** The attempts of a task, newest first, `limit` at most. Throws as `Queryable.query`. */
export async function findAttempts(db: Queryable, taskId: string, limit: number): Promise<readonly AttemptRow[]> {
  return await run(db, readAttempts, taskId, limit);
}
