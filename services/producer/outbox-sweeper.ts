/** The outbox sweeper: publishes what a crash or an outage left. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { measureOutbox, takeOutbox } from '../../shared/tasks/outbox.sql.ts';

/** What the sweeper needs. */
export interface OutboxSweeperDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** True where publishing can succeed: connected and not blocked. */
  readonly canPublish: () => boolean;
  /** Told how many invitations wait, and in how many rows. */
  readonly onMeasured: (invitations: number, rows: number) => void;
}

/** How the sweeper runs. */
export interface OutboxSweeperOptions {
  /** Milliseconds between rounds. */
  readonly intervalMs: number;
  /** Rows in one round; each holds what one transaction made claimable. 1 to 1 000. */
  readonly batchSize: number;
  /** Milliseconds until a row that was taken may be taken again. */
  readonly retryInMs: number;
}

/** Makes the sweeper. Nothing is published inside a transaction: taking a row only moves its `retry_at`. */
export function createOutboxSweeper(deps: OutboxSweeperDeps, options: OutboxSweeperOptions): Loop {
  let measuredAtMs = Number.NEGATIVE_INFINITY;

  const round = async (): Promise<boolean> => {
    // Reads the whole outbox: between rounds that follow at once, in a million rows, it would take most of the time.
    if (deps.clock.monotonicMs() - measuredAtMs >= options.intervalMs) {
      const [size] = await run(deps.db, measureOutbox);
      deps.onMeasured(Number(size?.invitations ?? 0), Number(size?.rows ?? 0));
      measuredAtMs = deps.clock.monotonicMs();
    }
    if (!deps.canPublish()) return false;
    const rows = await run(deps.db, takeOutbox, options.batchSize, options.retryInMs);
    if (rows.length === 0) return false;
    const confirmed = await Promise.all(rows.map(async (row) => await deps.invite(toOutboxRow(row))));
    deps.log.info('outbox swept', { rows: rows.length, confirmed: confirmed.filter(Boolean).length });
    return rows.length === options.batchSize && confirmed.every(Boolean);
  };
  return new Loop({ ...deps, round }, { name: 'outbox-sweeper', intervalMs: options.intervalMs });
}

function toOutboxRow(row: {
  readonly id: string;
  readonly task_ids: readonly string[];
  readonly types: readonly string[];
  readonly queues: readonly string[];
  readonly priorities: readonly number[];
  readonly generations: readonly number[];
}): OutboxRow {
  const invitations = row.task_ids.map((taskId, index) => ({
    taskId,
    type: row.types[index] ?? '',
    queue: row.queues[index] ?? '',
    priority: row.priorities[index] ?? 0,
    generation: row.generations[index] ?? 1,
  }));
  return { id: row.id, invitations };
}
