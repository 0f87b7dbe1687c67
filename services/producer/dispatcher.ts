/** The dispatcher: what is due becomes an invitation, what waits past its deadline expires. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import { dispatchDue } from './dispatcher.sql.ts';

/** What the dispatcher needs. */
export interface DispatcherDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<Metrics, 'duePending'>;
  readonly invite: (row: OutboxRow) => Promise<boolean>;
}

/** How the dispatcher runs. */
export interface DispatcherOptions {
  /** Milliseconds between rounds while nothing is due: what a due task may be late by. */
  readonly intervalMs: number;
  /** Tasks in one round. 1 to 5 000. */
  readonly batchSize: number;
}

/** Makes the dispatcher. Replicas share the work by SKIP LOCKED. */
export function createDispatcher(deps: DispatcherDeps, options: DispatcherOptions): Loop {
  const round = async (): Promise<boolean> => {
    const rows = await retryConflicts(deps.db, async () => await run(deps.db, dispatchDue, options.batchSize));
    const expired = rows.filter((row) => row.state === 'expired').length;
    deps.metrics.duePending.add(expired, 'expired');
    deps.metrics.duePending.add(rows.filter((row) => row.state === 'pending').length, 'pending');
    if (expired > 0) deps.log.info('tasks expired', { count: expired });
    for (const row of outboxRowsOf(rows, ({ task_id }) => task_id ?? '')) void deps.invite(row); // never rejects
    // Rows that another holds are skipped and come again: only what moved proves that more may wait.
    return rows.length === options.batchSize && rows.some((row) => row.state !== null);
  };
  return new Loop({ ...deps, round }, { name: 'dispatcher', intervalMs: options.intervalMs });
}
