/** Waits for what a test expects. */
import { systemClock } from '../../shared/time/clock.ts';

/** Test files run beside each other and beside chaos, so all wait longer than alone; what does not come never comes three times later. */
const PATIENCE = 3;
/** Milliseconds below which the time is what the test is about. */
const SHORT_MS = 5_000;

/**
 * Calls `fn` until it does not throw, and returns its value; rethrows its last error once `withinMs` has passed on a machine
 * that does nothing else. Put the expectations inside.
 */
export async function eventually<T>(
  fn: () => T | Promise<T>,
  { withinMs = 20_000, everyMs = 20 }: { readonly withinMs?: number; readonly everyMs?: number } = {},
): Promise<T> {
  const endMs = systemClock.monotonicMs() + (withinMs < SHORT_MS ? withinMs : withinMs * PATIENCE);
  for (;;) {
    try {
      return await fn();
    } catch (thrown) {
      if (systemClock.monotonicMs() >= endMs) throw thrown;
    }
    await systemClock.sleep(everyMs);
  }
}
