/** Cancels tasks: at once where they wait, through their worker where they run. */
import { Bug, WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { isTerminal, TASK_STATES } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { cancelBlockedSteps, cancelTasks } from './cancel.sql.ts';

/** Who cancels, and why. */
export interface CancelOrder {
  readonly actor: Actor;
  /** Kept in the audit. */
  readonly reason: string | undefined;
  /** Of a cancel of many: the line in the audit that each task's own line names. */
  readonly operation?: string;
}

/** `cancelled` now, or asked for: the worker aborts the attempt, and the task ends as the attempt does. */
export type Cancelled = { readonly kind: 'cancelled' } | { readonly kind: 'requested'; readonly requestedAt: Date };

/** What became of one task of a list: as above, or it had ended before. */
export type CancelResult = Cancelled | { readonly kind: 'ended'; readonly state: TaskState };

/** Times that a row may change under the statement before that is a bug. */
const MOST_TRIES = 20;

/**
 * Cancels one task and records who did. Throws `task-not-found`, `task-finished` with `state`, and as `Queryable.query`.
 * Asking again while it runs changes nothing and is answered alike.
 */
export async function cancelTask(db: Transactional, taskId: string, order: CancelOrder): Promise<Cancelled> {
  const result = (await cancelEach(db, [taskId], order)).get(taskId);
  if (result === undefined) throw new WarrenError('task-not-found', { taskId });
  if (result.kind === 'ended') throw new WarrenError('task-finished', { taskId, state: result.state });
  return result;
}

/** Cancels some tasks, in one commit but for those whose row changed meanwhile; of ids that there are none of, nothing is said. */
export async function cancelEach(
  db: Transactional,
  ids: readonly string[],
  { actor, reason, operation }: CancelOrder,
): Promise<ReadonlyMap<string, CancelResult>> {
  const detail = JSON.stringify({ reason, operation }); // without what is undefined
  const results = new Map<string, CancelResult>();
  let left = ids;
  for (let tries = 0; left.length > 0; tries += 1) {
    if (tries === MOST_TRIES) throw new Bug('a task changed its state at every try to cancel it');
    const asked = left;
    const params = [actor.name, actor.role, detail, actor.address ?? null] as const;
    const first = await retryConflicts(db, async () => await run(db, cancelTasks, asked, ...params));
    const blocked = first.filter((row) => row.is_cancelled === null).map(({ id }) => id);
    const steps =
      blocked.length === 0
        ? []
        : await retryConflicts(db, async () => await run(db, cancelBlockedSteps, blocked, ...params));
    const rows = [...first.filter((row) => row.is_cancelled !== null), ...steps];
    // A step that was blocked and is so no more: its flow has moved on, or has cancelled it.
    const stepIds = new Set(steps.map(({ id }) => id));
    const changed: string[] = blocked.filter((id) => !stepIds.has(id));
    for (const row of rows) {
      const state = TASK_STATES.find((each) => each === row.was);
      if (row.is_cancelled === true) results.set(row.id, { kind: 'cancelled' });
      else if (row.requested_at !== null) results.set(row.id, { kind: 'requested', requestedAt: row.requested_at });
      else if (state !== undefined && isTerminal(state)) results.set(row.id, { kind: 'ended', state });
      else changed.push(row.id);
    }
    left = changed;
  }
  return results;
}
