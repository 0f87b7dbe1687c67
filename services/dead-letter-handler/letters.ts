/** From a dead delivery to what is recorded of it. Pure: no clock, no database. */
import { parseInvitation } from '../../shared/amqp/message.ts';
import type { Invitation } from '../../shared/amqp/message.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { readDeath } from '../../shared/dead-letters/death.ts';
import type { Death } from '../../shared/dead-letters/death.ts';
import { evidenceKeyOf, evidenceOf, messageKeyOf } from '../../shared/dead-letters/evidence.ts';
import type { DeadMessage, Evidence } from '../../shared/dead-letters/evidence.ts';
import { reasonOfFault } from '../../shared/dead-letters/reason.ts';
import type { LetterKind, LetterReason } from '../../shared/dead-letters/reason.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { DeadLetterId } from '../../shared/tasks/ids.ts';
import { storableText } from '../../shared/tasks/outcome.ts';
import type { Refusal } from './refusals.ts';

/** What is kept of bodies. */
export const LETTER_LIMITS = {
  /** Bytes of a body that is kept whole: RabbitMQ's own limit since 4.0, and the most that can be published again. */
  bodyBytes: 16_777_216,
  /** Bytes that are kept of a larger one. */
  keptBytes: 65_536,
} as const;

/** A message that was never an invitation, with what can be read of its death. */
export interface Stray {
  readonly message: DeadMessage;
  readonly evidence: Evidence;
  readonly death: Death | undefined;
}

/** A dead delivery, sorted. */
export type Sorted =
  | {
      readonly kind: 'invitation';
      readonly invitation: Invitation;
      readonly message: DeadMessage;
      readonly evidence: Evidence;
    }
  | ({ readonly kind: 'refused' } & Stray)
  | ({ readonly kind: 'foreign' } & Stray);

/** Says what died: an invitation, what the front door refused, or anything else. Never throws. */
export function sort(message: DeadMessage, names: Names): Sorted {
  const death = readDeath(message.headers);
  const evidence = evidenceOf(message);
  if (death?.exchange === names.work) {
    const invitation = parseInvitation(message.body);
    if (invitation !== undefined) return { kind: 'invitation', invitation, message, evidence };
  }
  if (death === undefined) return { kind: 'foreign', message, evidence, death: unroutable(message, names) };
  return { kind: death.queue === names.ingress ? 'refused' : 'foreign', message, evidence, death };
}

/**
 * What did not die and was not published here has come by an alternate exchange: the broker says of it where it was published.
 * Source: rabbitmq.com/docs/ae.
 */
function unroutable({ exchange, routingKey }: DeadMessage, names: Names): Death | undefined {
  return exchange === names.dlx || exchange === '' ? undefined : { reason: 'unroutable', exchange, routingKey };
}

/** A letter that never was a task, as it is inserted. `null` columns have nothing to say. */
export interface NewLetter {
  readonly id: string;
  readonly kind: Exclude<LetterKind, 'task'>;
  readonly reason: LetterReason;
  readonly type: string | null;
  readonly queue: string | null;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly properties: string | null;
  readonly headers: string | null;
  readonly xDeath: string | null;
  readonly key: Buffer;
}

/** What is recorded of a message that the front door refused; `refusal` is `undefined` where it would be accepted now. */
export function refusedLetter({ message, evidence, death }: Stray, refusal: Refusal | undefined): NewLetter {
  const reason = refusal === undefined ? (death?.reason ?? 'rejected') : reasonOfFault(refusal.code);
  const routingKey = nameOf(message.routingKey);
  return bounded({
    id: newId<DeadLetterId>(),
    kind: 'refused',
    reason,
    type: routingKey,
    queue: null,
    errorCode: refusal?.code ?? null,
    errorMessage: refusal === undefined ? null : storableText(refusal.message, 2_000),
    exchange: nameOf(death?.exchange ?? message.exchange),
    routingKey,
    ...stored(message, evidence),
    // By its publisher's id it is the same message, however often the broker lets it die.
    key: messageKeyOf(message) ?? evidenceKeyOf(message),
  });
}

/** What is recorded of a message that never was for Warren. `note`: what is odd about it, in words. */
export function foreignLetter({ message, evidence, death }: Stray, note?: string): NewLetter {
  return bounded({
    id: newId<DeadLetterId>(),
    kind: 'foreign',
    reason: death?.reason ?? 'unknown',
    type: null,
    queue: death?.queue === undefined ? null : nameOf(death.queue),
    errorCode: null,
    errorMessage: note ?? null,
    exchange: nameOf(death?.exchange ?? message.exchange),
    routingKey: nameOf(death?.routingKey ?? message.routingKey),
    ...stored(message, evidence),
  });
}

/** What is left of a letter that Postgres refused: its bytes, and why. Properties and headers go in one text each. */
export function reducedLetter(letter: NewLetter, why: string): NewLetter {
  return {
    ...letter,
    reason: 'unstorable',
    type: null,
    queue: null,
    errorCode: 'field-invalid',
    errorMessage: storableText(`Postgres refused it: ${why}; kept without properties and headers`, 2_000),
    properties: null,
    headers: null,
    xDeath: null,
  };
}

function stored(
  message: DeadMessage,
  evidence: Evidence,
): Pick<NewLetter, 'body' | 'properties' | 'headers' | 'xDeath' | 'key'> {
  return {
    body: message.body,
    properties: evidence.properties,
    headers: evidence.headers,
    xDeath: evidence.xDeath ?? null,
    key: evidenceKeyOf(message),
  };
}

/** Larger than anything that can be published again: its beginning is kept, its size said. */
function bounded(letter: NewLetter): NewLetter {
  const { length } = letter.body;
  if (length <= LETTER_LIMITS.bodyBytes) return letter;
  return {
    ...letter,
    reason: 'unstorable',
    errorCode: 'body-too-large',
    errorMessage: `${length} bytes, the limit is ${LETTER_LIMITS.bodyBytes}; the first ${LETTER_LIMITS.keptBytes} are kept`,
    body: letter.body.subarray(0, LETTER_LIMITS.keptBytes),
  };
}

const nameOf = (name: string): string => storableText(name, 255);
