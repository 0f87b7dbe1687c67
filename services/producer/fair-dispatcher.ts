/** Gives the tasks of fair queues their turns: keeps a few invited, and lets each key have its share of them. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import { run } from '../../shared/postgres/statement.ts';
import { releaseBy } from '../../shared/tasks/held-back.ts';
import { findTurnQueues, releaseTurns } from './fair.sql.ts';
import type { ReleaserDeps } from './releaser.ts';

/** Milliseconds between rounds: with a depth of 100 a queue gets up to 2 000 tasks a second. */
const EVERY_MS = 50;
/** Milliseconds between looks where no queue had anything that waits. */
const LOOK_EVERY_MS = 1_000;
/** As many as one statement invites: then more may wait. */
const MOST_INVITED = 500;

/** Makes the loop. Replicas share the work: a queue is served by one of them at a time. */
export function createFairDispatcher(deps: ReleaserDeps): Loop {
  const { db, clock, metrics } = deps;
  let restUntilMs = Number.NEGATIVE_INFINITY;

  const serve = async (queue: string): Promise<boolean> => {
    const { looked, freed } = await releaseBy(async () => await run(db, releaseTurns, queue), deps);
    metrics.released.add(freed, 'turn');
    return looked === MOST_INVITED;
  };

  const round = async (): Promise<boolean> => {
    if (clock.monotonicMs() < restUntilMs) return false;
    const queues = await run(db, findTurnQueues);
    if (queues.length === 0) restUntilMs = clock.monotonicMs() + LOOK_EVERY_MS;
    let isMore = false;
    for (const { queue } of queues) {
      if (queue !== null && (await serve(queue))) isMore = true;
    }
    return isMore;
  };
  return new Loop({ ...deps, round }, { name: 'fair dispatcher', intervalMs: EVERY_MS });
}
