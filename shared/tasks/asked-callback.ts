/** Who is to be told of the end of a task, as a message asks for it, or why that cannot be. Pure. */
import { SUBMISSION_HEADERS } from '../amqp/message.ts';
import { isStorableText } from '../text/storable.ts';
import type { Callback } from './callback.ts';
import { TERMINAL_STATES } from './state-machine.ts';
import type { TaskState } from './state-machine.ts';
import type { SubmissionFault } from './submission.ts';

/** Who may be told. */
export interface CallbackRules {
  /** Why a webhook may not go to this URL, in words; `undefined` where it may. */
  readonly webhookFault: (url: string) => string | undefined;
  /** True for queues of Warren: a publisher must not write into them by our hand. */
  readonly isOwnQueue: (name: string) => boolean;
}

const LONGEST_QUEUE_NAME = 255;

/** Where a publisher wants to be told of the end, or why it cannot be. */
export function replyOf(
  properties: Readonly<Record<string, unknown>>,
  { isOwnQueue }: CallbackRules,
): Callback | SubmissionFault {
  const replyTo = textOf(properties['replyTo']);
  if (replyTo === undefined) return invalid('reply_to', 'is required with warren-reply-outcome');
  if (Buffer.byteLength(replyTo) > LONGEST_QUEUE_NAME || !isStorableText(replyTo)) {
    return invalid('reply_to', 'must be the name of a queue');
  }
  if (isOwnQueue(replyTo)) return invalid('reply_to', 'must not be a queue of Warren');
  const correlationId = textOf(properties['correlationId']) ?? textOf(properties['messageId']);
  return { kind: 'reply', replyTo, ...(correlationId === undefined ? {} : { correlationId }) };
}

/** A webhook that headers ask for, or why it may not be called. */
export function webhookOf(
  url: string | undefined,
  names: readonly string[] | undefined,
  { webhookFault }: CallbackRules,
): Callback | SubmissionFault | undefined {
  if (url === undefined) return undefined;
  const reason = webhookFault(url);
  if (reason !== undefined) return invalid(SUBMISSION_HEADERS.webhookUrl, reason);
  const states = names?.map((name) => TERMINAL_STATES.find((state) => state === name));
  if (states?.some((state) => state === undefined) === true) {
    return invalid(SUBMISSION_HEADERS.webhookStates, `must be some of ${TERMINAL_STATES.join(', ')}`);
  }
  return callTo(url, states as TaskState[] | undefined);
}

/** A webhook that may be called. */
export function callTo(url: string, states: readonly TaskState[] | undefined): Callback {
  return { kind: 'webhook', url, ...(states === undefined ? {} : { states: [...new Set(states)] }) };
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

const invalid = (field: string, reason: string): SubmissionFault => ({ code: 'field-invalid', field, reason });
