/** What happens to letters without anybody's doing: evidence that never came is given up, open letters are counted. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { measureOpen, recordUnseen } from './recorder.sql.ts';
import { countOpenReplays } from './replays.sql.ts';

/** What bookkeeping needs. */
export interface BookkeepingDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<Metrics, 'deadLetters' | 'deadLettersOpen' | 'deadLettersOldestSeconds' | 'replaysOpen'>;
}

/** How bookkeeping runs. */
export interface BookkeepingOptions {
  /** Milliseconds between rounds. */
  readonly intervalMs: number;
  /** Milliseconds after a death from which the broker's evidence is no longer waited for. */
  readonly giveUpAfterMs: number;
}

/** Defaults. */
export const DEFAULT_BOOKKEEPING: BookkeepingOptions = { intervalMs: 5_000, giveUpAfterMs: 60_000 };

const PER_ROUND = 500;

type OpenState = Parameters<Metrics['replaysOpen']['set']>[1];

/**
 * Makes the bookkeeping. A letter whose task died with its worker has no evidence, and one whose message was purged loses
 * it; both are complete without. Evidence that comes later all the same is still added.
 */
export function createBookkeeping(deps: BookkeepingDeps, options: BookkeepingOptions = DEFAULT_BOOKKEEPING): Loop {
  const { db, metrics } = deps;
  const round = async (): Promise<boolean> => {
    const unseen = await run(db, recordUnseen, options.giveUpAfterMs, PER_ROUND);
    for (const { reason } of unseen) metrics.deadLetters.add(1, reason);
    const [measured] = await run(db, measureOpen);
    if (measured !== undefined) {
      metrics.deadLettersOpen.set(Number(measured.open));
      metrics.deadLettersOldestSeconds.set(measured.oldest_seconds);
    }
    for (const { state, replays } of await run(db, countOpenReplays)) {
      metrics.replaysOpen.set(replays ?? 0, state as OpenState);
    }
    return unseen.length === PER_ROUND;
  };
  return new Loop({ ...deps, round }, { name: 'dead letter bookkeeping', intervalMs: options.intervalMs });
}
