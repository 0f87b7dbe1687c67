/** Shows the ledger: the counts of each hour and type, and what their last comparison with the tasks found. */
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { instantOf, NO_TASKS, standingOf } from './ledger-books.ts';
import type { Standing } from './ledger-books.ts';
import { readBooks } from './ledger.sql.ts';

/** A line of the books: accepted = succeeded + dead + cancelled + expired + in progress. */
export interface LedgerFigures extends Standing {
  readonly accepted: number;
  /** Of how many tasks, at the least, row or count is wrong, by the last comparison; 0 before the first. */
  readonly difference: number;
}

/** The books of one hour and type. */
export interface LedgerLine extends LedgerFigures {
  readonly type: string;
  /** The instant at which the hour begins in which the tasks were accepted. */
  readonly hour: Date;
  /** When the tasks were last compared with this line; `undefined` before the first time. */
  readonly comparedAt: Date | undefined;
  /** What the comparison found instead, where it found a difference. */
  readonly found: Standing | undefined;
}

/** Which lines are asked for. */
export interface LedgerFilter {
  /** The first hour, in hours since 1970. */
  readonly from: number;
  /** The hour after the last. */
  readonly before: number;
  readonly type: string | undefined;
}

/** Lines, the newest hour first, at most `limit`. Throws as `Queryable.query`. */
export async function readLedger(
  db: Queryable,
  { from, before, type }: LedgerFilter,
  limit: number,
): Promise<readonly LedgerLine[]> {
  const rows = await run(db, readBooks, from, before, type ?? null, limit);
  return rows.map((row) => {
    const counted = (
      name: 'accepted' | 'succeeded' | 'dead' | 'revived' | 'cancelled' | 'expired' | 'retired',
    ): number => row[name] ?? 0;
    const accepted = counted('accepted');
    const standing = standingOf({
      accepted,
      succeeded: counted('succeeded'),
      dead: counted('dead'),
      revived: counted('revived'),
      cancelled: counted('cancelled'),
      expired: counted('expired'),
      retired: counted('retired'),
    });
    const difference = row.difference ?? 0;
    const found = {
      succeeded: row.found_succeeded ?? 0,
      dead: row.found_dead ?? 0,
      cancelled: row.found_cancelled ?? 0,
      expired: row.found_expired ?? 0,
      inProgress: row.found_in_progress ?? 0,
    };
    return {
      type: row.type ?? '',
      hour: instantOf(row.hour ?? 0),
      accepted,
      ...standing,
      difference,
      comparedAt: row.compared_at ?? undefined,
      found: difference === 0 ? undefined : found,
    };
  });
}

/** The sum of lines. */
export function sumOf(lines: readonly LedgerFigures[]): LedgerFigures {
  const sum = { accepted: 0, ...NO_TASKS, difference: 0 };
  for (const line of lines) {
    for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += line[name];
  }
  return sum;
}
