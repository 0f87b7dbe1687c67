/** Pauses, drains and opens queues, and makes them fair. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { QueueMode } from '../../shared/tasks/queue-mode.ts';
import { setFairness } from './fair.sql.ts';
import { setQueueMode, showQueues } from './queues.sql.ts';

const ACTIONS: Readonly<Record<QueueMode, string>> = {
  open: 'queue.resume',
  paused: 'queue.pause',
  draining: 'queue.drain',
};

/** Who sets the mode of which queue, and why. */
export interface ModeChange {
  readonly queue: string;
  readonly mode: QueueMode;
  readonly actor: Actor;
  /** Kept in the audit, and shown with the queue. */
  readonly reason: string | undefined;
}

/** Every queue as it stands, by name. Throws as `Queryable.query`. */
export async function listQueues(db: Queryable): Promise<readonly RowOf<typeof showQueues.columns>[]> {
  return await run(db, showQueues);
}

/** Sets the mode of a queue and records who did. Answers the mode it had. Throws `queue-not-found`, and as `Queryable.query`. */
export async function changeQueueMode(db: Queryable, { queue, mode, actor, reason }: ModeChange): Promise<string> {
  const { name, role, address } = actor;
  const [row] = await run(
    db,
    setQueueMode,
    queue,
    mode,
    reason ?? null,
    newId(),
    name,
    role,
    address ?? null,
    ACTIONS[mode],
  );
  if (row === undefined) throw new WarrenError('queue-not-found', { queue });
  return row.was;
}

/** By what a queue is fair. */
export interface Fairness {
  /** Path of the member of the input whose values take turns: `input.tenantId`. */
  readonly key: string;
  /** Tasks in a turn of a key, 1 to 100; 1 where there is none. */
  readonly weights: Readonly<Record<string, number>>;
  /** Tasks that are invited at a time and have not started, 1 to 1 000. */
  readonly depth: number;
}

/** Invitations at a time where nobody says how many: above the slots of most fleets, below what a newcomer would have to wait for. */
export const DEFAULT_DEPTH = 100;

/**
 * Makes a queue fair, or (`undefined`) first come, first served again, and records who did. What waits already and is invited stays so; what
 * waits for its turn in a queue that is fair no longer goes at once. Throws `queue-not-found`, and as `Queryable.query`.
 */
export async function changeFairness(
  db: Queryable,
  { queue, actor, reason, fairness }: Omit<ModeChange, 'mode'> & { readonly fairness: Fairness | undefined },
): Promise<void> {
  const { name, role, address } = actor;
  const { key = null, weights = {}, depth = DEFAULT_DEPTH } = fairness ?? {};
  const set = JSON.stringify(weights);
  const changed = await run(
    db,
    setFairness,
    queue,
    key,
    set,
    depth,
    newId(),
    name,
    role,
    address ?? null,
    reason ?? null,
  );
  if (changed.length === 0) throw new WarrenError('queue-not-found', { queue });
}
