/** The reaper: finds workers whose lease lapsed and frees what they held. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import { followCancelRequests, lapseLeases, readUptime, reapOrphans } from './reaper.sql.ts';

/** What the reaper needs. */
export interface ReaperDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<Metrics, 'reaped' | 'workersLost' | 'attempts'>;
  readonly invite: (row: OutboxRow) => Promise<boolean>;
}

/** How the reaper runs. */
export interface ReaperOptions {
  /** Milliseconds between rounds; at most a quarter of `lapseMs` counts. */
  readonly intervalMs: number;
  /** Milliseconds without a renewal after which a lease lapses. */
  readonly lapseMs: number;
  /** Attempts lost while nothing else ran in their worker, after which a task is dead. */
  readonly maxLostAlone: number;
}

const CLAIMS_PER_ROUND = 50;

/**
 * Makes the reaper. A lease lapses only over time in which Postgres could be reached: nothing is judged for one lease time
 * after Postgres started, or after a gap in the reaper's own rounds, else an outage would reap the whole fleet.
 */
export function createReaper(deps: ReaperDeps, options: ReaperOptions): Loop {
  // A reaper that has just started knows as little of the past as one with a gap.
  let judgesFromMs = deps.clock.monotonicMs() + options.lapseMs;
  let lastRoundMs = deps.clock.monotonicMs();

  const round = async (): Promise<boolean> => {
    const [server] = await run(deps.db, readUptime);
    const nowMs = deps.clock.monotonicMs();
    if (nowMs - lastRoundMs > options.lapseMs / 2) judgesFromMs = nowMs + options.lapseMs;
    lastRoundMs = nowMs;
    if (server === undefined || server.uptime_ms < options.lapseMs || nowMs < judgesFromMs) return false;

    for (const lost of await run(deps.db, lapseLeases, options.lapseMs)) {
      deps.metrics.workersLost.add(1);
      deps.log.warn('worker lost', { workerId: lost.worker, host: lost.host, pid: lost.pid });
    }
    const freed = await retryConflicts(
      deps.db,
      async () => await run(deps.db, reapOrphans, CLAIMS_PER_ROUND, options.maxLostAlone),
    );
    deps.metrics.reaped.add(freed.length);
    for (const { id, attempt, state, type } of freed) {
      deps.metrics.attempts.add(1, type, 'lost');
      deps.log.warn('attempt lost', { taskId: id, attempt, state });
    }
    for (const row of outboxRowsOf(freed, ({ id }) => id)) void deps.invite(row); // never rejects
    await run(deps.db, followCancelRequests);
    return freed.length > 0;
  };
  // Rounds further apart would each look like a gap, and nobody would ever be judged.
  const intervalMs = Math.min(options.intervalMs, options.lapseMs / 4);
  return new Loop({ ...deps, round }, { name: 'reaper', intervalMs });
}
