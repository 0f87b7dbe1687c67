/** Exponential backoff with full jitter: the one formula by which anything of Warren waits before it tries again. */

/** How long to wait. */
export interface BackoffOptions {
  /** Longest delay after the first failure, in milliseconds. */
  readonly firstDelayMs: number;
  /** Longest delay ever, in milliseconds. */
  readonly maxDelayMs: number;
  /** Shortest delay ever, in milliseconds; at most the longest. */
  readonly minDelayMs: number;
}

/**
 * Milliseconds to wait after the `failures`-th failure in a row, from 1: evenly spread from `minDelayMs` to
 * `firstDelayMs · 2^(failures-1)`, never above `maxDelayMs`. Even spreading takes an outage's echo apart best.
 * Source: AWS Architecture Blog, "Exponential Backoff And Jitter", 2015.
 */
export function backoffMs(options: BackoffOptions, failures: number, random: () => number): number {
  const longest = Math.min(options.maxDelayMs, options.firstDelayMs * 2 ** (Math.max(failures, 1) - 1));
  const shortest = Math.min(options.minDelayMs, longest);
  return shortest + Math.floor(random() * (longest - shortest + 1));
}
