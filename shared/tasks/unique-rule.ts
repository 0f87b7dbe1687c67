/** The forms in which a submission asks for uniqueness, and the one rule that they come to. */
import type { SubmissionValues } from '../amqp/message.ts';
import type { KeyHold, Submission, SubmissionFault } from './submission.ts';
import type { SubmissionBody } from './submission-body.ts';

/** What is said of uniqueness, whichever door it came through. */
export interface UniqueValues extends Pick<
  SubmissionValues,
  'uniqueKey' | 'uniqueWhile' | 'uniqueWithinMs' | 'onConflict'
> {
  readonly maxWaitMs?: number;
}

/** Says what is wrong with forms that say the same thing twice. */
export function clashOf({ unique, throttle, debounce, delayMs, runAt }: SubmissionBody): SubmissionFault | undefined {
  if (throttle !== undefined && unique !== undefined) {
    return invalid('throttle', 'must not be given together with unique');
  }
  if (debounce === undefined) return undefined;
  if ((unique ?? throttle) !== undefined) {
    return invalid('debounce', 'must not be given together with unique or throttle');
  }
  if ((delayMs ?? runAt) !== undefined) {
    return invalid('debounce', 'must not be given together with delayMs or runAt: it has a delay of its own');
  }
  const { delayMs: debounceMs, maxWaitMs = debounceMs } = debounce;
  return maxWaitMs < debounceMs ? invalid('debounce.maxWaitMs', 'must not be less than delayMs') : undefined;
}

/** What the forms of a body come to. */
export function uniqueValuesOf({
  unique,
  throttle,
  debounce,
}: Pick<SubmissionBody, 'unique' | 'throttle' | 'debounce'>): UniqueValues & { readonly delayMs?: number } {
  return {
    ...(throttle === undefined ? {} : { uniqueKey: throttle.key, uniqueWithinMs: throttle.withinMs }),
    ...(debounce === undefined
      ? {}
      : {
          uniqueKey: debounce.key,
          uniqueWhile: 'waiting' as const,
          onConflict: 'replace' as const,
          delayMs: debounce.delayMs,
          ...(debounce.maxWaitMs === undefined ? {} : { maxWaitMs: debounce.maxWaitMs }),
        }),
    ...(unique === undefined
      ? {}
      : {
          uniqueKey: unique.key,
          ...(unique.while === undefined ? {} : { uniqueWhile: unique.while }),
          ...(unique.withinMs === undefined ? {} : { uniqueWithinMs: unique.withinMs }),
          ...(unique.onConflict === undefined ? {} : { onConflict: unique.onConflict }),
        }),
  };
}

/** The rule. */
export function uniqueOf({
  uniqueKey: key,
  uniqueWhile,
  uniqueWithinMs: withinMs,
  onConflict = 'return',
  maxWaitMs,
}: { readonly [K in keyof UniqueValues]: UniqueValues[K] | undefined }): Pick<Submission, 'unique'> {
  if (key === undefined) return {};
  const hold: KeyHold = withinMs === undefined ? { kind: uniqueWhile ?? 'unfinished' } : { kind: 'window', withinMs };
  return { unique: { key, hold, onConflict, ...(maxWaitMs === undefined ? {} : { maxWaitMs }) } };
}

const invalid = (field: string, reason: string): SubmissionFault => ({ code: 'field-invalid', field, reason });
