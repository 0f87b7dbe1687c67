/** What a dead letter can be, how it can stand, and why it died. Reference pages and API schemas are made from here. */
import type { ErrorCode } from '../errors/catalogue.ts';

/** Kinds of dead letters, with what each means. */
export const LETTER_KINDS = {
  /** A task died. Its row is the message. */
  task: 'A task that is dead; its row holds the input.',
  /** The front door refused a message, so that it never became a task. */
  refused: 'A message that the front door refused; kept with its bytes.',
  /** Anything else that came through the dead-letter exchange. */
  foreign: 'A message that never was for Warren, or that nobody here can read; kept with its bytes.',
} as const;

/** One of `LETTER_KINDS`. */
export type LetterKind = keyof typeof LETTER_KINDS;

/** States of dead letters, with what each means. */
export const LETTER_STATES = {
  open: 'Waits for somebody to replay or discard it.',
  replaying: 'On its way back to RabbitMQ; RabbitMQ has not confirmed it yet.',
  replayed: 'Runs again, or went back to where it came from.',
  discarded: 'Closed unrun, with a reason.',
} as const;

/** One of `LETTER_STATES`. */
export type LetterState = keyof typeof LETTER_STATES;

/** Why something died: who causes it and when. A foreign letter may also have a reason that no version of RabbitMQ is known to give. */
export const LETTER_REASONS = {
  attempts_exhausted: 'task: every attempt of its budget failed',
  timeout: 'task: its last attempt ran into its timeout',
  non_retryable: 'task: its handler or retry policy said that trying again cannot help',
  invalid_input: 'task, refused: the input does not fit the input schema of its type',
  result_unstorable: 'task: what it returned cannot be stored',
  deadline_passed: 'task: it failed and its deadline has passed',
  worker_lost: 'task: its worker died three times while nothing else ran in it',
  unknown_type: 'refused: no worker has announced this task type',
  id_conflict: 'refused: its message id belongs to another message',
  unique_conflict: 'refused: another task held its unique key, and it asked to be rejected then',
  invalid_message: 'refused: body, properties or headers are not what the front door takes',
  rejected: 'refused: it would be accepted now; foreign: a consumer rejected it',
  expired: 'refused, foreign: it waited in a queue longer than its time to live',
  maxlen: 'refused, foreign: its queue was full',
  delivery_limit: 'refused, foreign: it was delivered too often',
  unroutable: 'foreign: no queue of its exchange took it, so that it came by an alternate exchange',
  unstorable: 'refused, foreign: Postgres takes it only in a reduced form; error_message says why',
  unknown: 'foreign: it carries no evidence of a death that can be read; task: its letter was lost and written anew',
} as const;

/** One of `LETTER_REASONS`. */
export type LetterReason = keyof typeof LETTER_REASONS;

/** The reason of a refused letter, from what the front door finds wrong with it. */
export function reasonOfFault(code: ErrorCode): LetterReason {
  return REASONS_OF_FAULTS.get(code) ?? 'invalid_message';
}

const REASONS_OF_FAULTS: ReadonlyMap<ErrorCode, LetterReason> = new Map([
  ['task-type-unknown', 'unknown_type'],
  ['input-invalid', 'invalid_input'],
  ['id-conflict', 'id_conflict'],
  ['unique-conflict', 'unique_conflict'],
]);
