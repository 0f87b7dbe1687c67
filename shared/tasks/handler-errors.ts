/**
 * What a handler throws to say more than "it failed". Recognised by name and members, never by class: a handler may load
 * another copy of this file, or run in a thread.
 */
import { isWarrenError } from '../errors/warren-error.ts';

/** Longest delay that can be asked for: 30 days, in milliseconds. */
export const LONGEST_DELAY_MS = 2_592_000_000;
/** Shortest deferral, in milliseconds: a deferral costs no attempt, so nothing else would slow a handler that always defers. */
export const SHORTEST_DEFERRAL_MS = 100;

/** Thrown by a handler: trying again cannot help. The task dies at once, with this error in its dead letter. */
export class NonRetryable extends Error {
  override readonly name = 'NonRetryable';
}

/** Thrown by a handler: this attempt failed, try again after so long. Counts against the budget like any failure. */
export class RetryAfter extends Error {
  override readonly name = 'RetryAfter';
  /** Milliseconds until the next attempt. */
  readonly delayMs: number;

  /** `delayMs` is cut to 0 to 2 592 000 000 (30 days). Throws RangeError where it is no number. */
  constructor(delayMs: number, message = 'asked to be tried again later', cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.delayMs = boundedDelayMs(delayMs, 0);
  }
}

/** Thrown by `ctx.defer`: not now. Costs no attempt. */
export class Deferred extends Error {
  override readonly name = 'Deferred';
  readonly delayMs: number;

  constructor(delayMs: number, message = 'deferred by its handler') {
    super(message);
    this.delayMs = boundedDelayMs(delayMs, SHORTEST_DEFERRAL_MS);
  }
}

/** What a thrown value asks for, read without trusting it. */
export type HandlerSignal =
  | { readonly kind: 'non_retryable' }
  | { readonly kind: 'retry_after'; readonly delayMs: number }
  | { readonly kind: 'deferred'; readonly delayMs: number; readonly why: 'handler' | 'breaker' };

/**
 * Reads `thrown` as one of the errors above, or as `breaker-open`, `once-unknown` or `once-invalid`, or gives `undefined`. Never throws, whatever its
 * getters do.
 */
export function handlerSignalOf(thrown: unknown): HandlerSignal | undefined {
  try {
    if (typeof thrown !== 'object' || thrown === null || !('name' in thrown)) return undefined;
    if (thrown.name === 'NonRetryable') return { kind: 'non_retryable' };
    // Nothing that a further attempt does makes them better: somebody has to look.
    if (isWarrenError(thrown, 'once-unknown') || isWarrenError(thrown, 'once-invalid'))
      return { kind: 'non_retryable' };
    if (isWarrenError(thrown, 'file-too-large') || isWarrenError(thrown, 'file-store-missing')) {
      return { kind: 'non_retryable' };
    }
    if (isWarrenError(thrown, 'breaker-open')) return deferral(thrown.facts['delayMs'], 'breaker');
    const delayMs = 'delayMs' in thrown ? thrown.delayMs : undefined;
    if (thrown.name === 'Deferred') return deferral(delayMs, 'handler');
    if (thrown.name !== 'RetryAfter' || typeof delayMs !== 'number') return undefined;
    return { kind: 'retry_after', delayMs: boundedDelayMs(delayMs, 0) };
  } catch {
    return undefined;
  }
}

function deferral(delayMs: unknown, why: 'handler' | 'breaker'): HandlerSignal | undefined {
  if (typeof delayMs !== 'number') return undefined;
  return { kind: 'deferred', delayMs: boundedDelayMs(delayMs, SHORTEST_DEFERRAL_MS), why };
}

function boundedDelayMs(delayMs: number, shortestMs: number): number {
  if (typeof delayMs !== 'number' || Number.isNaN(delayMs)) {
    throw new RangeError('delayMs must be a number of milliseconds');
  }
  return Math.round(Math.min(Math.max(delayMs, shortestMs), LONGEST_DELAY_MS));
}
