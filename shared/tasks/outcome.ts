/** How one attempt ended, as the worker settles it. Plain data: it crosses threads. */
import { codeOf, toError } from '../errors/to-error.ts';
import { redactText } from '../observability/redact.ts';

/** How one attempt ended. `mayBeSettled`: the handler called `settleWith`, so the row may say already how it ended. */
export type Outcome = Ending & { readonly mayBeSettled?: true };

type Ending =
  /** The handler returned. `result` is its value as JSON bytes, `undefined` where it returned nothing. */
  | { readonly kind: 'succeeded'; readonly result: Buffer | undefined }
  /** It did not. Counts against the budget; without `retryable` the task dies. */
  | {
      readonly kind: 'failed';
      readonly reason: FailureReason;
      readonly error: AttemptError;
      readonly retryable: boolean;
      /** Milliseconds that the handler asked to wait (RetryAfter); absent: the policy's backoff. */
      readonly delayMs?: number;
      /** True where the handler still runs, having ignored its abort: it may overlap the next attempt. */
      readonly abandoned?: true;
    }
  /** Not now: the handler deferred it, or its circuit is open. Costs no attempt of the budget. */
  | { readonly kind: 'deferred'; readonly delayMs: number; readonly why: 'handler' | 'breaker' }
  /** Cut off from outside. Costs nothing; on `cancel` the task is cancelled, else handed back. */
  | { readonly kind: 'interrupted'; readonly by: Interruption; readonly abandoned?: true };

/** Who cut an attempt off: the worker stops, someone cancelled the task, the worker's lease was lost. */
export type Interruption = 'shutdown' | 'cancel' | 'lease';

/**
 * Why an attempt failed. `error`: the handler threw. `timeout`: it ran past its type's timeout. `non_retryable`: it threw
 * NonRetryable, or its policy says so. `invalid_input`: the type's schema here refuses the input. `result_unstorable`: what
 * it returned is no JSON, or too large.
 */
export type FailureReason = 'error' | 'timeout' | 'non_retryable' | 'invalid_input' | 'result_unstorable';

/** An error as it is stored: texts that Postgres can hold, without credentials, bounded. */
export interface AttemptError {
  /** The error's name, at most 200 characters. */
  readonly type: string;
  /** Its code (`ECONNREFUSED`, an error code of Warren), at most 200 characters. */
  readonly code?: string;
  /** At most 8 192 characters. */
  readonly message: string;
  /** At most 16 384 characters. */
  readonly stack?: string;
  /** Its causes, the nearest first, at most 5. */
  readonly causes: readonly { readonly type: string; readonly code?: string; readonly message: string }[];
}

const MOST_CAUSES = 5;

/** Describes whatever was thrown. Never throws, not even for objects whose getters do. */
export function describeError(thrown: unknown): AttemptError {
  const error = toError(thrown);
  const causes = causesOf(error).map((cause) => headOf(cause));
  const stack = read(() => error.stack);
  return { ...headOf(error), ...(stack === undefined ? {} : { stack: storable(stack, 16_384) }), causes };
}

/** A text as Postgres can hold it: without U+0000 and lone surrogates (each becomes U+FFFD), cut at `most` characters. */
export function storableText(text: string, most: number): string {
  const cut = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return cut.replaceAll('\0', '\uFFFD').replaceAll(/\p{Surrogate}/gu, '\uFFFD');
}

function headOf(error: Error): { type: string; code?: string; message: string } {
  const code = codeOf(error);
  const type = storable(read(() => error.name) ?? 'Error', 200);
  const message = storable(read(() => error.message) ?? 'error without a readable message', 8_192);
  return code === undefined ? { type, message } : { type, code: storable(code, 200), message };
}

function causesOf(error: Error): Error[] {
  const causes: Error[] = [];
  let cause = readCause(error);
  while (cause !== undefined && causes.length < MOST_CAUSES) {
    const found = toError(cause);
    causes.push(found);
    cause = readCause(found);
  }
  return causes;
}

function readCause(error: Error): unknown {
  try {
    return error.cause ?? undefined;
  } catch {
    return undefined;
  }
}

function read(get: () => unknown): string | undefined {
  try {
    const value = get();
    return typeof value === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Cut before it is redacted, since the redactor's time grows faster than the text; well behind the final cut, so that no half of a URL is left. */
const storable = (text: string, most: number): string => storableText(redactText(text.slice(0, most + 2_048)), most);
