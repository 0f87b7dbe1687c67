/** Ends steps of flows whose signal has not come in time. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { expireFlowTimers } from './flows.sql.ts';

const EVERY_MS = 1_000;
const MOST_EXPIRED = 500;

/** Makes the loop. Replicas share the work: a timer is taken by one of them. */
export function createFlowTimers(deps: Omit<LoopDeps, 'round'> & { readonly db: Database }): Loop {
  const round = async (): Promise<boolean> => {
    const [row] = await run(deps.db, expireFlowTimers, MOST_EXPIRED);
    return row?.expired === MOST_EXPIRED;
  };
  return new Loop({ ...deps, round }, { name: 'flow timers', intervalMs: EVERY_MS });
}
