/**
 * Forgets message ids and idempotency keys whose seven days are over, and what stands for unique keys and limits that nobody holds or
 * runs under any more.
 */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { sweepConcurrencyGroups, sweepRateGroups, sweepUniqueKeys } from './key-sweeps.sql.ts';
import { forgetIdempotencyKeys, forgetMessageIds } from './repeats.sql.ts';

/** What it needs. */
export interface ForgettingDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
}

const EVERY_MS = 60_000;
/** Milliseconds between the ends and beginnings of walks through all keys: of a million, one takes some ten seconds. */
const REST_MS = 600_000;
const MOST_FORGOTTEN = 5_000;
const KEYS_PER_STEP = 1_000;
const SWEEPS = [sweepUniqueKeys, sweepConcurrencyGroups, sweepRateGroups] as const;
const START = { type: '', key: '' };

/** Makes the loop. */
export function createForgetting(deps: ForgettingDeps): Part {
  let table = 0;
  let after = START;
  let restUntilMs = Number.NEGATIVE_INFINITY;

  /** One step through a table of keys; true where there is more to look at. */
  const sweep = async (): Promise<boolean> => {
    const statement = SWEEPS[table];
    if (statement === undefined || deps.clock.monotonicMs() < restUntilMs) return false;
    const [step] = await run(deps.db, statement, after.type, after.key, KEYS_PER_STEP);
    const isEnd = step === undefined || step.last_type === null || step.last_key === null;
    after = isEnd ? START : { type: step.last_type ?? '', key: step.last_key ?? '' };
    if (!isEnd) return true;
    table = (table + 1) % SWEEPS.length;
    if (table > 0) return true;
    restUntilMs = deps.clock.monotonicMs() + REST_MS;
    return false;
  };

  const round = async (): Promise<boolean> => {
    const messages = await run(deps.db, forgetMessageIds);
    const keys = await run(deps.db, forgetIdempotencyKeys);
    const isMore = await sweep();
    return isMore || Math.max(messages.length, keys.length) === MOST_FORGOTTEN;
  };
  return new Loop({ ...deps, round }, { name: 'forgetting', intervalMs: EVERY_MS });
}
