/**
 * Finds what is held back, and invites what there is room for: places of lost workers, the next instant of a rate, what a queue held
 * back that is open again.
 */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { HOLD_REASONS, releaseGroup } from '../../shared/tasks/held-back.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { findHeldGroups } from './releaser.sql.ts';

/** What it needs. */
export interface ReleaserDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  readonly metrics: Pick<Metrics, 'released'>;
}

/** Milliseconds between rounds: what a start under a rate may be late by. */
const EVERY_MS = 250;
const GROUPS_PER_ROUND = 200;
/** As many as one statement releases: then more may wait. */
const MOST_RELEASED = 500;
const FIRST = { reason: '', scope: '', key: '' };

/** Makes the loop. Replicas share the work: a row is taken by one of them. */
export function createReleaser(deps: ReleaserDeps): Loop {
  let after = FIRST;
  const round = async (): Promise<boolean> => {
    const groups = await run(deps.db, findHeldGroups, after.reason, after.scope, after.key, GROUPS_PER_ROUND);
    let isMore = false;
    for (const { reason: found, scope, key } of groups) {
      const reason = HOLD_REASONS.find((each) => each === found);
      if (reason === undefined || scope === null || key === null) continue;
      const released = await releaseGroup({ reason, scope, key }, deps);
      deps.metrics.released.add(released, reason);
      isMore ||= released === MOST_RELEASED;
    }
    const last = groups.length < GROUPS_PER_ROUND ? undefined : groups.at(-1);
    after = last === undefined ? FIRST : { reason: last.reason ?? '', scope: last.scope ?? '', key: last.key ?? '' };
    return isMore || last !== undefined;
  };
  return new Loop({ ...deps, round }, { name: 'releaser', intervalMs: EVERY_MS });
}
