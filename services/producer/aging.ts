/** Aging: what has waited long is invited again at the highest priority, so that no priority starves. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import type { Invitation } from '../../shared/tasks/invitation.ts';
import { countSlots, stillPending } from './aging.sql.ts';
import { WaitingWalk } from './waiting-walk.ts';
import type { WaitingTask } from './waiting-walk.ts';

/** What aging needs. */
export interface AgingDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  /** Publishes an invitation that no outbox row stands for: the one it repeats still waits in its queue. */
  readonly publish: (invitation: Invitation) => Promise<void>;
  readonly metrics: Pick<Metrics, 'invitedAnew'>;
}

/** How aging runs. */
export interface AgingOptions {
  /** Milliseconds between rounds. */
  readonly intervalMs: number;
  /** Milliseconds that a task waits before it is invited again. */
  readonly afterMs: number;
}

const HIGHEST_PRIORITY = 9;
const STEPS_PER_ROUND = 4;

/**
 * Makes the loop. Per queue at most twice the fleet's slots are on their way at the highest priority at once, oldest
 * first: to invite everything again would double an overload. The repeated invitation is one more delivery; whichever comes
 * second loses the claim.
 */
export function createAging(deps: AgingDeps, options: AgingOptions): Loop {
  const aged = new Set<string>(); // invited again and still pending, as of the last round
  const walk = new WaitingWalk(deps.db);

  const invite = async (tasks: readonly WaitingTask[], room: Map<string, number>): Promise<void> => {
    for (const task of tasks) {
      const left = room.get(task.queue) ?? 0;
      // What has the highest priority already gains nothing.
      if (left === 0 || task.priority === HIGHEST_PRIORITY || aged.has(task.taskId)) continue;
      room.set(task.queue, left - 1);
      await deps.publish({ ...task, priority: HIGHEST_PRIORITY });
      deps.metrics.invitedAnew.add(1, 'waited');
      aged.add(task.taskId);
    }
  };

  const round = async (): Promise<boolean> => {
    const room = await roomByQueue(deps.db, aged);
    if (room.size === 0) return false;
    const { afterMs: waitedMs } = options;
    const before = idAtLeast(new Date(deps.clock.now().getTime() - waitedMs));
    const filter = { before, settledBefore: before, queues: [...room.keys()], waitedMs };
    for (let steps = 0, isEnd = false; steps < STEPS_PER_ROUND && !isEnd; steps += 1) {
      const step = await walk.step(filter);
      await invite(step.tasks, room);
      ({ isEnd } = step);
    }
    await invite((await walk.revisit(filter)).tasks, room);
    return false;
  };
  return new Loop({ ...deps, round }, { name: 'aging', intervalMs: options.intervalMs });
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
