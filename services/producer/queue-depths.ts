/**
 * Asks RabbitMQ how many invitations wait in each work queue, and Postgres how many tasks wait for their turn to be invited: what a fleet
 * is scaled by.
 */
import type { AmqpConnection } from '../../shared/amqp/connection.ts';
import { readyCount } from '../../shared/amqp/throwaway-channel.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { run } from '../../shared/postgres/statement.ts';
import { countTurns } from './fair.sql.ts';

/** What the reading needs. */
export interface QueueDepthsDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Queryable;
  /** Not one that publishes: an alarm of the broker would leave the question without an answer. */
  readonly connection: AmqpConnection;
  readonly names: Pick<Names, 'queue'>;
  /** The work queues, without prefix. */
  readonly queues: () => readonly string[];
  readonly metrics: Pick<Metrics, 'queueReady' | 'queueTurns'>;
  /** Told each reading. */
  readonly onRead: (queue: string, ready: number) => void;
}

/** How often it reads. */
export interface QueueDepthsOptions {
  /** Milliseconds between two readings. Default 15 000. */
  readonly intervalMs: number;
}

/** The default: one channel a queue and round, as often as metrics are usually scraped. */
export const DEFAULT_QUEUE_DEPTHS: QueueDepthsOptions = { intervalMs: 15_000 };

/** Makes the reading. A queue that does not exist counts as empty; while RabbitMQ is away the last reading stays. */
export function createQueueDepths(deps: QueueDepthsDeps, options: QueueDepthsOptions = DEFAULT_QUEUE_DEPTHS): Loop {
  const round = async (stopping: AbortSignal): Promise<void> => {
    for (const queue of deps.queues()) {
      if (stopping.aborted || !deps.connection.isConnected) return;
      const ready = (await readyCount(deps, deps.names.queue(queue))) ?? 0;
      deps.metrics.queueReady.set(ready, queue);
      deps.onRead(queue, ready);
    }
    for (const { queue, turns } of await run(deps.db, countTurns)) deps.metrics.queueTurns.set(turns ?? 0, queue);
  };
  return new Loop({ ...deps, round }, { name: 'queue depths', intervalMs: options.intervalMs });
}
