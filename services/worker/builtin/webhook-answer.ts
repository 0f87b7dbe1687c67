/** What webhooks have in common, whatever they tell: how they are signed, and what their receivers' answers mean. */
import { Webhook } from 'standardwebhooks';
import { NonRetryable, RetryAfter } from '../../../shared/tasks/handler-errors.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { retryAfterMs } from './http-request.ts';

/** An answer, as far as it is judged. */
export interface WebhookAnswer {
  readonly status: number;
  /** The header. */
  readonly retryAfter: string | null;
  /** The start of the body, without secrets. */
  readonly said: string;
}

/** Bytes of an answer that are read. */
export const MOST_ANSWER_BYTES = 4_096;

/**
 * The headers of Standard Webhooks. The same `id` says that it is the same message, however often it is delivered. Signed with
 * each secret, so that a receiver may know the old or the new one while they are changed.
 */
export function standardHeaders(
  secrets: readonly string[],
  id: string,
  now: Date,
  body: string,
): Readonly<Record<string, string>> {
  return {
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1_000)),
    'webhook-signature': secrets.map((secret) => new Webhook(secret).sign(id, now, body)).join(' '),
  };
}

/** Throws where an answer says that the message was not taken: NonRetryable, RetryAfter, or a plain error. `who` begins its text. */
export function judgeAnswer(who: string, { status, retryAfter, said }: WebhookAnswer, clock: Clock): void {
  if (status >= 300 && status < 400) {
    throw new NonRetryable(`${who}: answered ${status}, and redirects are not followed`);
  }
  const message = `${who}: answered ${status}: ${said}`;
  if (status === 408 || status === 429 || status >= 500) {
    const delayMs = retryAfterMs(retryAfter, clock);
    throw delayMs === undefined ? new Error(message) : new RetryAfter(delayMs, message);
  }
  if (status >= 400) throw new NonRetryable(message);
}
