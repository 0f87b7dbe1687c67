/** When a failed attempt is tried again, and after how long. */
import { codeOf } from '../errors/to-error.ts';
import { backoffMs } from '../resilience/backoff.ts';
import { handlerSignalOf } from './handler-errors.ts';

/** Errors by their `code` or `name`, or a predicate over the error. A predicate that throws decides nothing. */
export type ErrorRule = readonly string[] | ((error: Error) => boolean);

/** The retry policy of a task type. */
export interface RetryPolicy {
  /** All runs that may fail, the first included. 1 to 100; 1 means no retry. Default 5. */
  readonly maxAttempts: number;
  /** Longest delay before attempt 2, in milliseconds; doubles with each failure. 0 to 86 400 000. Default 1 000. */
  readonly firstDelayMs: number;
  /** No delay is longer, in milliseconds. `firstDelayMs` to 2 592 000 000. Default 3 600 000. */
  readonly maxDelayMs: number;
  /** Only these errors are tried again. Default: all. */
  readonly retryOn?: ErrorRule;
  /** These errors are not tried again; stronger than `retryOn`. Default: none. */
  readonly neverOn?: ErrorRule;
}

/** What a type gets that says nothing. */
export const DEFAULT_RETRY: RetryPolicy = { maxAttempts: 5, firstDelayMs: 1_000, maxDelayMs: 3_600_000 };

/**
 * Milliseconds until the next attempt after the `failures`-th failure, from 1: full jitter from a tenth of `firstDelayMs`,
 * the minimum delay, up to `firstDelayMs · 2^(failures-1)`, at most `maxDelayMs`. The minimum keeps an unlucky draw from
 * hitting a dependency that failed a moment ago.
 */
export function retryDelayMs(policy: RetryPolicy, failures: number, random: () => number): number {
  return backoffMs({ ...policy, minDelayMs: Math.ceil(policy.firstDelayMs / 10) }, failures, random);
}

/** Whether trying again can help. `delayMs` is what the handler asked for with RetryAfter, instead of the backoff. */
export interface Classification {
  readonly retryable: boolean;
  readonly delayMs?: number;
  /** The rule that threw, to be logged: an author's mistake that nobody would see otherwise. */
  readonly brokenRule?: 'retryOn' | 'neverOn';
}

/** Judges one error. What a handler said itself (NonRetryable, RetryAfter) is stronger than the policy. Never throws. */
export function classify(error: Error, policy: RetryPolicy): Classification {
  const signal = handlerSignalOf(error);
  if (signal?.kind === 'non_retryable') return { retryable: false };
  if (signal?.kind === 'retry_after') return { retryable: true, delayMs: signal.delayMs };
  const never = matches(policy.neverOn, error);
  if (never === true) return { retryable: false };
  const wanted = matches(policy.retryOn, error);
  const brokenRule = never === 'broken' ? 'neverOn' : wanted === 'broken' ? 'retryOn' : undefined;
  const retryable = wanted !== false; // a rule that broke kills nothing
  return brokenRule === undefined ? { retryable } : { retryable, brokenRule };
}

function matches(rule: ErrorRule | undefined, error: Error): boolean | undefined | 'broken' {
  if (rule === undefined) return undefined;
  try {
    if (typeof rule === 'function') return rule(error) === true;
    const code = codeOf(error);
    return (code !== undefined && rule.includes(code)) || rule.includes(error.name);
  } catch {
    return 'broken';
  }
}
