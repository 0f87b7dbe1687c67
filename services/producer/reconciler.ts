/**
 * The reconciler: invites anew what no message stands for any more.
 *
 * A queue that was purged, or deleted, or whose node was lost with its messages leaves tasks that wait for nothing. While a
 * queue holds messages nobody can tell which tasks they are for. Once it reads empty twice, every task that was invited
 * before the first reading has lost its invitation, or a worker holds it unstarted; an invitation too many does no harm.
 */
import type { AmqpConnection } from '../../shared/amqp/connection.ts';
import { readyCount } from '../../shared/amqp/throwaway-channel.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import type { Invitation } from '../../shared/tasks/invitation.ts';
import { readClock } from './reconciler.sql.ts';
import { WaitingWalk } from './waiting-walk.ts';
import type { WaitingTask } from './waiting-walk.ts';

/** What the reconciler needs. */
export interface ReconcilerDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  /** Not one that publishes: an alarm of the broker would leave the question without an answer. */
  readonly connection: AmqpConnection;
  readonly names: Pick<Names, 'queue'>;
  /** The work queues, without prefix. */
  readonly queues: () => readonly string[];
  /** Publishes an invitation that no outbox row stands for; resolves with the broker's confirm. */
  readonly publish: (invitation: Invitation) => Promise<void>;
  /** True where publishing can succeed: connected and not blocked. What the outbox still holds is not lost. */
  readonly canPublish: () => boolean;
  readonly metrics: Pick<Metrics, 'invitedAnew'>;
}

/** How the reconciler runs. */
export interface ReconcilerOptions {
  /** Milliseconds between two readings of a queue, and before a task is invited anew for the second time; doubled each time. */
  readonly intervalMs: number;
}

const STEPS_PER_ROUND = 20;
const PUBLISHED_TOGETHER = 200;
/** Tasks remembered at most; while more than that were invited anew and still wait, no further ones are. */
const MOST_REMEMBERED = 100_000;
/** A task whose id is older than this is committed. */
const SETTLED_AFTER_MS = 60_000;
const LONGEST_PAUSE_MS = 3_600_000;
/** A walk may take this part of the time, however long the table. */
const WALKING_SHARE = 0.1;
/** While it walks it pauses after each step, for so many times what that took: a long walk at once would hold up what runs beside it. */
const PAUSE_PER_STEP = 3;

/** What a task was invited anew so far. */
interface Again {
  readonly times: number;
  readonly at: Date;
}

/** Makes the loop. Replicas reconcile each for itself. */
export function createReconciler(deps: ReconcilerDeps, { intervalMs }: ReconcilerOptions): Loop {
  const { clock } = deps;
  const walk = new WaitingWalk(deps.db);
  const emptyAt = new Map<string, Date>(); // the last reading, where it was zero
  const provenAt = new Map<string, Date>(); // what was invited before has no message in the queue
  let again = new Map<string, Again>();
  let seen = new Map<string, Again>(); // of `again`, what this walk has met
  let readAtMs = Number.NEGATIVE_INFINITY;
  let walkingMs = 0;
  let restUntilMs = 0;
  let isWalking = false;

  /** Reads every queue. True where one is empty for the second time: then there is something to look for. */
  const readQueues = async (stopping: AbortSignal): Promise<boolean> => {
    readAtMs = clock.monotonicMs();
    let isProven = false;
    const [now] = await run(deps.db, readClock);
    for (const queue of deps.queues()) {
      if (now === undefined || stopping.aborted || !deps.connection.isConnected) return false;
      const ready = (await readyCount(deps, deps.names.queue(queue))) ?? 0;
      const before = emptyAt.get(queue);
      emptyAt.delete(queue);
      if (ready > 0) continue;
      emptyAt.set(queue, now.at);
      if (before === undefined) continue;
      provenAt.set(queue, before);
      isProven = true;
    }
    return isProven;
  };

  /** True where the task's last invitation is gone, and it is time for another. */
  const isLost = ({ taskId, queue, invitedAt }: WaitingTask, now: Date): boolean => {
    const proven = provenAt.get(queue);
    const last = again.get(taskId);
    if (proven === undefined || (last?.at ?? invitedAt) >= proven) return false;
    const pauseMs = last === undefined ? 0 : Math.min(intervalMs * 2 ** last.times, LONGEST_PAUSE_MS);
    return now.getTime() - (last?.at.getTime() ?? 0) >= pauseMs;
  };

  const inviteLost = async (tasks: readonly WaitingTask[], now: Date): Promise<void> => {
    const lost = tasks.filter((task) => isLost(task, now)).slice(0, MOST_REMEMBERED - seen.size);
    for (let from = 0; from < lost.length; from += PUBLISHED_TOGETHER) {
      const together = lost.slice(from, from + PUBLISHED_TOGETHER);
      await Promise.all(together.map(async (task) => await deps.publish(task)));
      for (const { taskId } of together) again.set(taskId, { times: (again.get(taskId)?.times ?? 0) + 1, at: now });
    }
    for (const { taskId } of tasks) {
      const entry = again.get(taskId);
      if (entry !== undefined) seen.set(taskId, entry);
    }
    if (lost.length === 0) return;
    deps.metrics.invitedAnew.add(lost.length, 'queue_empty');
    const hint = 'their queue is empty: the messages were lost, or a worker holds them and has not started';
    deps.log.info('tasks invited anew', { count: lost.length, hint });
  };

  const walkStep = async (): Promise<void> => {
    const [clockRow] = await run(deps.db, readClock);
    if (clockRow === undefined) return;
    const { at: now } = clockRow;
    const settledBefore = idAtLeast(new Date(now.getTime() - SETTLED_AFTER_MS));
    const filter = { before: idAtLeast(now), settledBefore, queues: [...provenAt.keys()], waitedMs: 0 };
    const step = await walk.step(filter);
    await inviteLost(step.tasks, now);
    if (!step.isEnd) return;
    await inviteLost((await walk.revisit(filter)).tasks, now);
    // What this walk did not meet waits no longer.
    again = seen;
    seen = new Map();
    isWalking = false;
  };

  const walkSteps = async (stopping: AbortSignal): Promise<void> => {
    for (let steps = 0; steps < STEPS_PER_ROUND && isWalking && !stopping.aborted && deps.canPublish(); steps += 1) {
      const beganMs = clock.monotonicMs();
      await walkStep();
      const tookMs = clock.monotonicMs() - beganMs;
      walkingMs += tookMs;
      if (isWalking) await clock.sleep(tookMs * PAUSE_PER_STEP, stopping);
    }
    if (isWalking) return;
    restUntilMs = clock.monotonicMs() + walkingMs / WALKING_SHARE;
    walkingMs = 0;
  };

  const round = async (stopping: AbortSignal): Promise<boolean> => {
    if (!deps.connection.isConnected || !deps.canPublish()) {
      emptyAt.clear();
      return false;
    }
    if (clock.monotonicMs() - readAtMs >= intervalMs) {
      const isProven = await readQueues(stopping);
      if (isProven && clock.monotonicMs() >= restUntilMs) isWalking = true;
    }
    if (isWalking) await walkSteps(stopping);
    return isWalking && deps.canPublish();
  };
  return new Loop({ ...deps, round }, { name: 'reconciler', intervalMs });
}
