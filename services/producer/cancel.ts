/** Cancels tasks: at once where they wait, through their worker where they run. */
import { Bug, WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { isTerminal, TASK_STATES } from '../../shared/tasks/state-machine.ts';
import { cancelOne } from './cancel.sql.ts';

/** Who cancels what, and why. */
export interface Cancellation {
  readonly taskId: string;
  readonly actor: Actor;
  /** Kept in the audit. */
  readonly reason: string | undefined;
}

/** `cancelled` now, or asked for: the worker aborts the attempt, and the task ends as the attempt does. */
export type Cancelled = { readonly kind: 'cancelled' } | { readonly kind: 'requested'; readonly requestedAt: Date };

/** Times that the row may change under the statement before that is a bug. */
const MOST_TRIES = 20;

/**
 * Cancels one task and records who did. Throws `task-not-found`, `task-finished` with `state`, and as `Queryable.query`.
 * Asking again while it runs changes nothing and is answered alike.
 */
export async function cancelTask(db: Queryable, { taskId, actor, reason }: Cancellation): Promise<Cancelled> {
  const detail = JSON.stringify(reason === undefined ? {} : { reason });
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const [row] = await run(db, cancelOne, taskId, newId(), actor.name, actor.role, detail);
    if (row === undefined) throw new WarrenError('task-not-found', { taskId });
    if (row.is_cancelled) return { kind: 'cancelled' };
    if (row.requested_at !== null) return { kind: 'requested', requestedAt: row.requested_at };
    const state = TASK_STATES.find((each) => each === row.was);
    if (state !== undefined && isTerminal(state)) throw new WarrenError('task-finished', { taskId, state });
  }
  throw new Bug('a task changed its state at every try to cancel it');
}
