/** Invites tasks that were held back on purpose, once there is room for them. */
import type { Database } from '../postgres/pool.ts';
import { run } from '../postgres/statement.ts';
import type { RowOf } from '../postgres/statement.ts';
import { retryConflicts } from '../postgres/transaction.ts';
import type { heldColumns } from './beside.sql.ts';
import { releaseDraining, releasePaused, releasePlaces, releaseStarts } from './held-back.sql.ts';
import type { OutboxRow } from './invitation.ts';
import { outboxRowsOf } from './outbox.ts';

const STATEMENTS = {
  concurrency: releasePlaces,
  rate: releaseStarts,
  paused: releasePaused,
  draining: releaseDraining,
} as const;

/** Why a task is held back. */
export type HoldReason = keyof typeof STATEMENTS;

/** Every reason, as groups are looked through. */
export const HOLD_REASONS = Object.keys(STATEMENTS) as readonly HoldReason[];

/** What holds tasks back: a limit of a type (`scope`) per key, or the mode of a queue (`scope`). */
export interface HeldGroup {
  readonly reason: HoldReason;
  readonly scope: string;
  readonly key: string;
}

/** What inviting needs. */
export interface ReleaseDeps {
  readonly db: Database;
  /** Publishes what was made claimable; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
}

/** Rounds over rows whose tasks no longer wait; what is left is for the next call. */
const MOST_ROUNDS = 20;

/** Invites what the group has room for, at most 500. Answers how many tasks that were. Throws as `Queryable.query`. */
export async function releaseGroup({ reason, scope, key }: HeldGroup, { db, invite }: ReleaseDeps): Promise<number> {
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const { looked, freed } = await releaseBy(async () => await run(db, STATEMENTS[reason], scope, key), {
      db,
      invite,
    });
    // Rows without a task that waits gave nobody the room that there is.
    if (freed > 0 || looked === 0) return freed;
  }
  return 0;
}

/** Sends a statement that lets held tasks go, and publishes their invitations. Throws as `Queryable.query`. */
export async function releaseBy(
  release: () => Promise<readonly RowOf<typeof heldColumns>[]>,
  { db, invite }: ReleaseDeps,
): Promise<{ readonly looked: number; readonly freed: number }> {
  const rows = await retryConflicts(db, release);
  const freed = rows.flatMap((row) => (row.id === null ? [] : [{ ...row, id: row.id }]));
  for (const row of outboxRowsOf(freed, ({ id }) => id)) void invite(row); // never rejects
  return { looked: rows[0]?.looked ?? 0, freed: freed.length };
}
