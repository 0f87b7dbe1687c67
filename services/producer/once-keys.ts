/** The side effects of a task, for people: what was done once, what is unknown, and how to have one done again. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { forgetOnce, listOnce } from './once-keys.sql.ts';

/** A side effect. */
export type OnceRow = RowOf<typeof listOnce.columns>;

/** The side effects of a task, in the order in which they began. Throws `task-not-found`, and as `Queryable.query`. */
export async function findOnceRuns(db: Queryable, taskId: string): Promise<readonly OnceRow[]> {
  const rows = await run(db, listOnce, taskId);
  if (rows.length === 0) throw new WarrenError('task-not-found', { taskId });
  return rows.filter(({ key }) => key !== null);
}

/** Forgets one, and records who did. Throws `task-not-found`, `task-running`, `not-found`, and as `Queryable.query`. */
export async function forgetOnceRun(
  db: Queryable,
  {
    taskId,
    key,
    actor,
    reason,
  }: { readonly taskId: string; readonly key: string; readonly actor: Actor; readonly reason: string },
): Promise<void> {
  const detail = JSON.stringify({ reason });
  const { name, role, address } = actor;
  const [row] = await run(db, forgetOnce, taskId, key, newId(), name, role, detail, address ?? null);
  if (row === undefined) throw new WarrenError('task-not-found', { taskId });
  if (row.is_forgotten) return;
  if (row.state === 'running') throw new WarrenError('task-running', { taskId });
  throw new WarrenError('not-found', { taskId, key });
}
