/** From a stored letter back to a message: what goes again, and what must not. */
import { headersFromStored } from '../amqp/headers.ts';
import type { Headers, StoredHeaders } from '../amqp/headers.ts';
import type { Outgoing, OutgoingProperties } from '../amqp/publisher.ts';

/** A letter as it is stored. */
export interface StoredLetter {
  readonly id: string;
  readonly body: Buffer;
  /** As `evidenceOf` wrote them. */
  readonly properties: StoredHeaders;
  /** As `evidenceOf` wrote them. */
  readonly headers: StoredHeaders;
}

/** Where a letter goes. */
export interface Destination {
  /** Empty for the default exchange. */
  readonly exchange: string;
  readonly routingKey: string;
}

/**
 * Header of a replayed message that names its letter. A marker for people, and what tells a second death from a
 * redelivery of the first; no code path needs it.
 */
export const REPLAY_OF_HEADER = 'x-replay-of';

/** The broker's own headers. Left in, they would count for the next death. `x-*` headers of publishers stay. */
const EVIDENCE = /^x-(death$|first-death-|last-death-|delivery-count$|acquired-count$|opt-|replay-of$)/i;
/** The broker routes by these two. */
const ROUTING: ReadonlySet<string> = new Set(['CC', 'BCC']);

const TEXTS = ['correlationId', 'type', 'contentType', 'contentEncoding', 'replyTo', 'appId'] as const;

/**
 * The message that replays a letter. It keeps body, properties and headers, without the broker's evidence, without
 * `user_id` (the broker refuses another's) and without `expiration` (it would die of the same again). Its
 * `message_id` is the original one, else the letter's id, so that a receiver that de-duplicates takes it once.
 */
export function messageOf(letter: StoredLetter, { exchange, routingKey }: Destination): Outgoing {
  const properties = headersFromStored(letter.properties);
  const messageId = textOf(properties, 'messageId');
  return {
    exchange,
    routingKey,
    body: letter.body,
    properties: {
      ...Object.fromEntries(TEXTS.flatMap((name) => pairOf(name, textOf(properties, name)))),
      ...Object.fromEntries(pairOf('priority', integerOf(properties, 'priority'))),
      ...Object.fromEntries(pairOf('timestamp', integerOf(properties, 'timestamp'))),
      messageId: messageId === undefined || messageId === '' ? letter.id : messageId,
      headers: headersAgain(letter),
    } satisfies OutgoingProperties,
    mandatory: true,
  };
}

function headersAgain({ id, headers }: StoredLetter): Headers {
  const { $: tag, v } = headers;
  const isAgain = (name: unknown): boolean => typeof name !== 'string' || !(EVIDENCE.test(name) || ROUTING.has(name));
  if (tag === 't' && Array.isArray(v)) {
    const pairs = (v as (readonly [unknown, unknown])[]).filter(([name]) => isAgain(name));
    return headersFromStored({ $: 't', v: [...pairs, [REPLAY_OF_HEADER, id]] });
  }
  const kept = Object.entries(headers).filter(([name]) => isAgain(name));
  return headersFromStored({ ...Object.fromEntries(kept), [REPLAY_OF_HEADER]: id });
}

function pairOf<T>(name: string, value: T | undefined): [string, T][] {
  return value === undefined ? [] : [[name, value]];
}

function textOf(properties: Headers, name: string): string | undefined {
  const value = Object.hasOwn(properties, name) ? properties[name] : undefined;
  return typeof value === 'string' ? value : undefined;
}

function integerOf(properties: Headers, name: string): number | undefined {
  const value = Object.hasOwn(properties, name) ? properties[name] : undefined;
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
