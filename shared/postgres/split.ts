/** A batch must not fail for one of its rows. */
import { isBadData } from './failure.ts';
import { retryConflicts } from './transaction.ts';
import type { Transactional } from './transaction.ts';

/**
 * Runs a batch, again on deadlocks. Where Postgres refuses a value (SQLSTATE class 21, 22 or 23) the batch is split until the
 * guilty rows are alone, and `refuse` answers for each of those. Results come in the order of the items. Other failures throw.
 */
export async function runSplitting<Item, Result>(
  db: Transactional,
  items: readonly Item[],
  runBatch: (items: readonly Item[]) => Promise<readonly Result[]>,
  refuse: (item: Item, thrown: unknown) => Result | Promise<Result>,
): Promise<readonly Result[]> {
  try {
    return await retryConflicts(db, async () => await runBatch(items));
  } catch (thrown) {
    if (!isBadData(thrown)) throw thrown;
    const [only] = items;
    if (only === undefined) return [];
    if (items.length === 1) return [await refuse(only, thrown)];
    const middle = Math.ceil(items.length / 2);
    return [
      ...(await runSplitting(db, items.slice(0, middle), runBatch, refuse)),
      ...(await runSplitting(db, items.slice(middle), runBatch, refuse)),
    ];
  }
}
