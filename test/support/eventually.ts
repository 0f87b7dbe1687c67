/** Waits for what a test expects. */
import { systemClock } from '../../shared/time/clock.ts';

/**
 * Calls `fn` until it does not throw, and returns its value; rethrows its last error once `withinMs` has passed. Put the
 * expectations inside.
 */
export async function eventually<T>(
  fn: () => T | Promise<T>,
  { withinMs = 20_000, everyMs = 20 }: { readonly withinMs?: number; readonly everyMs?: number } = {},
): Promise<T> {
  const endMs = systemClock.monotonicMs() + withinMs;
  for (;;) {
    try {
      return await fn();
    } catch (thrown) {
      if (systemClock.monotonicMs() >= endMs) throw thrown;
    }
    await systemClock.sleep(everyMs);
  }
}
