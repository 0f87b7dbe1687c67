/** The arithmetic of the ledger: what was counted, what the tasks' rows say, and by how much the two differ. */

/** Milliseconds of an hour: the books have a line for each, in UTC. */
export const HOUR_MS = 3_600_000;

/** What is counted of tasks. Each count only rises. */
export const LEDGER_ENTRIES = ['accepted', 'succeeded', 'dead', 'revived', 'cancelled', 'expired', 'retired'] as const;

/** One of `LEDGER_ENTRIES`. */
export type LedgerEntry = (typeof LEDGER_ENTRIES)[number];

/** Counts of one hour and type. */
export type Counts = Readonly<Record<LedgerEntry, number>>;

/** Tasks of one hour and type by where they stand: in one of the ends, or in none. */
export interface Standing {
  readonly succeeded: number;
  readonly dead: number;
  readonly cancelled: number;
  readonly expired: number;
  readonly inProgress: number;
}

/** Nothing counted. */
export const NO_COUNTS: Counts = {
  accepted: 0,
  succeeded: 0,
  dead: 0,
  revived: 0,
  cancelled: 0,
  expired: 0,
  retired: 0,
};

/** No tasks. */
export const NO_TASKS: Standing = { succeeded: 0, dead: 0, cancelled: 0, expired: 0, inProgress: 0 };

/** Where the books say that tasks stand: accepted = succeeded + dead + cancelled + expired + in progress. */
export function standingOf(counts: Counts): Standing {
  const { accepted, succeeded, cancelled, expired } = counts;
  const dead = counts.dead - counts.revived; // a replay takes a death back
  return { succeeded, dead, cancelled, expired, inProgress: accepted - succeeded - dead - cancelled - expired };
}

/**
 * Of how many tasks, at the least, row or count must be wrong; 0 where the books are right. `found` was counted from the rows
 * while the counts went from `before` to `after`: since counts only rise, each number of rows has a lowest and a highest value
 * that is no difference. Where nothing happened meanwhile, or all was read by one statement, the two are one.
 */
export function differenceOf(before: Counts, after: Counts, found: Standing): number {
  const lowest = bounds(before, after);
  const highest = bounds(after, before);
  let tooMany = 0;
  let tooFew = 0;
  for (const each of Object.keys(NO_TASKS) as (keyof Standing)[]) {
    tooMany += Math.max(0, found[each] - highest[each]);
    tooFew += Math.max(0, lowest[each] - found[each]);
  }
  // One row in the wrong state is one too many there and one too few elsewhere.
  return Math.max(tooMany, tooFew - after.retired);
}

/** The lowest standing that a walk may find, or the highest, where `rising` is what comes later. */
function bounds(rising: Counts, falling: Counts): Standing {
  const { succeeded, cancelled, expired } = rising;
  return {
    succeeded,
    cancelled,
    expired,
    dead: rising.dead - falling.revived,
    inProgress:
      rising.accepted + rising.revived - falling.succeeded - falling.dead - falling.cancelled - falling.expired,
  };
}

/** The instant at which an hour of the books begins. */
export function instantOf(hour: number): Date {
  return new Date(hour * HOUR_MS);
}

/** The hour of the books that holds an instant. */
export function hourOf(at: Date): number {
  return Math.floor(at.getTime() / HOUR_MS);
}

/** An id below every id that was made in this hour or later, and above all that were made before. */
export function idBefore(hour: number): string {
  const hex = Math.max(0, hour * HOUR_MS)
    .toString(16)
    .padStart(12, '0');
  return hex.length > 12 ? LARGEST_ID : `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

const LARGEST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
