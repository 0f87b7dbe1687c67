/** Aging: what has waited long is invited again at the highest priority, so that no priority starves. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import type { Invitation } from '../../shared/tasks/invitation.ts';
import { countSlots, stillPending, walkWaiting } from './aging.sql.ts';

/** What aging needs. */
export interface AgingDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  /** Publishes an invitation that no outbox row stands for: the one it repeats still waits in its queue. */
  readonly publish: (invitation: Invitation) => Promise<void>;
}

/** How aging runs. */
export interface AgingOptions {
  /** Milliseconds between rounds. */
  readonly intervalMs: number;
  /** Milliseconds that a task waits before it is invited again. */
  readonly afterMs: number;
}

const HIGHEST_PRIORITY = 9;
const ROWS_PER_STEP = 5_000;
const STEPS_PER_ROUND = 4;
const SMALLEST_ID = '00000000-0000-7000-8000-000000000000';

/**
 * Makes the loop. Per queue at most twice the fleet's slots are on their way at the highest priority at once, oldest
 * first: to invite everything again would double an overload. The repeated invitation is one more delivery; whichever comes
 * second loses the claim.
 */
export function createAging(deps: AgingDeps, options: AgingOptions): Loop {
  const aged = new Set<string>(); // invited again and still pending, as of the last round
  let walkedTo = SMALLEST_ID;
  let endedBefore = SMALLEST_ID; // everything with a smaller id had ended when the last walk began
  let revisitedTo = SMALLEST_ID; // of those, how far the look for replays has come

  /** Looks at the next tasks, invites what has waited, and says how far it came: `undefined` at the end. */
  const step = async (room: Map<string, number>, after: string, before: string): Promise<Step | undefined> => {
    const rows = await run(deps.db, walkWaiting, after, before, options.afterMs, ROWS_PER_STEP);
    const [walk] = rows;
    for (const invitation of rows.flatMap(toInvitation)) {
      const left = room.get(invitation.queue) ?? 0;
      if (left === 0 || aged.has(invitation.taskId)) continue;
      room.set(invitation.queue, left - 1);
      await deps.publish({ ...invitation, priority: HIGHEST_PRIORITY });
      aged.add(invitation.taskId);
    }
    if (walk === undefined || walk.last_id === null) return undefined;
    const hasMore = walk.rows_seen === ROWS_PER_STEP;
    return { lastId: walk.last_id, hasEnded: walk.first_open_id === null, hasMore };
  };

  const round = async (): Promise<boolean> => {
    const room = await roomByQueue(deps.db, aged);
    if (room.size === 0) return false;
    const before = idAtLeast(new Date(deps.clock.now().getTime() - options.afterMs));
    for (let steps = 0; steps < STEPS_PER_ROUND; steps += 1) {
      const seen = await step(room, walkedTo, before);
      if (seen !== undefined && seen.hasEnded && walkedTo === endedBefore) endedBefore = seen.lastId;
      walkedTo = seen?.hasMore === true ? seen.lastId : endedBefore;
      if (seen?.hasMore !== true) break;
    }
    // A replay makes an old task wait again: slowly, what had ended is looked at once more.
    const seen = revisitedTo < endedBefore ? await step(room, revisitedTo, endedBefore) : undefined;
    revisitedTo = seen?.hasMore === true ? seen.lastId : SMALLEST_ID;
    return false;
  };
  return new Loop({ ...deps, round }, { name: 'aging', intervalMs: options.intervalMs });
}

interface Step {
  readonly lastId: string;
  /** True where all that was seen has ended. */
  readonly hasEnded: boolean;
  readonly hasMore: boolean;
}

/** How many more tasks of each queue may be invited at the highest priority. Forgets those that no longer wait. */
async function roomByQueue(db: Database, aged: Set<string>): Promise<Map<string, number>> {
  const room = new Map<string, number>();
  for (const { queue, slots } of await run(db, countSlots)) {
    if (queue !== null && slots !== null) room.set(queue, 2 * slots);
  }
  const waiting = await run(db, stillPending, [...aged]);
  aged.clear();
  for (const { id, queue } of waiting) {
    aged.add(id);
    room.set(queue, Math.max(0, (room.get(queue) ?? 0) - 1));
  }
  return room;
}

function toInvitation(row: {
  readonly id: string | null;
  readonly type: string | null;
  readonly queue: string | null;
  readonly priority: number | null;
  readonly generation: number | null;
}): Invitation[] {
  const { id, type, queue, priority, generation } = row;
  // What has the highest priority already gains nothing.
  if (id === null || type === null || queue === null || generation === null || priority === HIGHEST_PRIORITY) return [];
  return [{ taskId: id, type, queue, priority: HIGHEST_PRIORITY, generation }];
}
