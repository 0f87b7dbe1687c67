/** Waits between attempts to connect, to open a channel, to register a consumer. */

/** Bounds of a backoff. */
export interface BackoffOptions {
  /** Longest first wait, milliseconds, 1 or more. */
  readonly minMs: number;
  /** No wait is longer, milliseconds. */
  readonly maxMs: number;
}

/** Milliseconds to wait after `failures` failures in a row (from 1): full jitter, so that a fleet does not return in step. */
export function backoffMs(options: BackoffOptions, failures: number, random: () => number): number {
  const cap = Math.min(options.maxMs, options.minMs * 2 ** Math.min(failures - 1, 30));
  return random() * cap;
}
