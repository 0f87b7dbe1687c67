/** Side effects that a task does once: what a handler says, and what is kept of it. */
import { isStorableText } from '../text/storable.ts';

/** What to do about a run that was cut in the middle. */
export type OnceDecision<Value> =
  /** It was not done, or doing it twice does no harm: call the function again. */
  | 'again'
  /** It was done, with this result, which is kept. */
  | { readonly result: Value };

/** How a side effect behaves where it does not simply succeed. */
export interface OnceOptions<Value> {
  /**
   * Asked where an earlier run of this key began and never finished: its process died, or it was cut off. `startedAt` is by
   * Postgres's clock. Find out in the outside system what became of it. Without it `once-unknown` is thrown.
   */
  readonly ifUnknown?: (startedAt: Date, attempt: number) => Promise<OnceDecision<Value>> | OnceDecision<Value>;
  /**
   * True for an error after which nobody knows whether the effect was done, such as a call that timed out: then it stays
   * unknown. Any other error says that it was not done, and the next call does it. Default: none is such.
   */
  readonly unknownIf?: (thrown: unknown) => boolean;
}

/**
 * Does `fn` once for the task under `key`: 1 to 200 characters without U+0000, told apart by case. Its value is kept as JSON
 * and comes back as that, from the first call on. Concurrent calls with one key share one run. A task keeps 1 000 keys.
 */
export type Once = <Value>(
  key: string,
  fn: () => Promise<Value> | Value,
  options?: OnceOptions<Value>,
) => Promise<Value>;

/** Longest key, in characters. */
export const LONGEST_ONCE_KEY = 200;
/** Keys of one task at most. */
export const MOST_ONCE_KEYS = 1_000;

/** Why a text cannot be a key; `undefined` where it can. */
export function faultOfOnceKey(key: unknown): string | undefined {
  if (typeof key !== 'string') return 'must be a string';
  if (key === '' || key.length > LONGEST_ONCE_KEY) return `must have 1 to ${LONGEST_ONCE_KEY} characters`;
  return isStorableText(key) ? undefined : 'must not hold U+0000 or a lone surrogate';
}
