/** Waits for what a test expects. */
import { systemClock } from '../../shared/time/clock.ts';

/** Test files run beside each other and beside chaos, so all wait longer than alone; what does not come never comes three times later. */
const PATIENCE = 3;
/** Milliseconds below which the time is what the test is about. */
const SHORT_MS = 5_000;
/** Each look is work that the fleets of other tests wait for, so what takes long is looked at less and less often. */
const SLOWER_BY = 1.2;
const SLOWEST_MS = 150;

/**
 * Calls `fn` until it does not throw, and returns its value; rethrows its last error once `withinMs` has passed on a machine that does
 * nothing else. Put the expectations inside. `everyMs`: how often it looks at first; where it is given it stays so.
 */
export async function eventually<T>(
  fn: () => T | Promise<T>,
  { withinMs = 20_000, everyMs }: { readonly withinMs?: number; readonly everyMs?: number } = {},
): Promise<T> {
  const endMs = systemClock.monotonicMs() + (withinMs < SHORT_MS ? withinMs : withinMs * PATIENCE);
  let pauseMs = everyMs ?? 20;
  for (;;) {
    try {
      return await fn();
    } catch (thrown) {
      if (systemClock.monotonicMs() >= endMs) throw thrown;
    }
    await systemClock.sleep(pauseMs);
    if (everyMs === undefined) pauseMs = Math.min(pauseMs * SLOWER_BY, SLOWEST_MS);
  }
}
