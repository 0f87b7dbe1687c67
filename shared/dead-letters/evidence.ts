/** What a dead message says about itself, in the form in which it is stored, and the key by which it is known again. */
import { createHash } from 'node:crypto';
import { headersToStored } from '../amqp/headers.ts';
import type { Headers } from '../amqp/headers.ts';

/** A message as it came: a `Delivery` has all of it. */
export interface DeadMessage {
  readonly body: Buffer;
  readonly exchange: string;
  readonly routingKey: string;
  readonly properties: Readonly<Record<string, unknown>>;
  readonly headers: Headers;
}

/** A message's evidence, as texts of JSON for jsonb columns. */
export interface Evidence {
  /** Properties without headers, tagged as by `headersToStored`. */
  readonly properties: string;
  /** Headers without `x-death`, tagged. */
  readonly headers: string;
  /** `x-death` of whatever shape, tagged; absent where there is none. Unverified. */
  readonly xDeath?: string;
}

/** Reads the evidence of a message. */
export function evidenceOf({ properties, headers }: DeadMessage): Evidence {
  const { headers: _apart, ...others } = properties;
  const [kept, xDeath] = takeOut(headersToStored(headers), 'x-death');
  return {
    properties: JSON.stringify(headersToStored(others)),
    headers: JSON.stringify(kept),
    ...(xDeath === undefined ? {} : { xDeath: JSON.stringify(xDeath) }),
  };
}

/**
 * SHA-256 over all of a message that does not change when the broker delivers it again. Two deliveries of one message have one
 * key, and so have the copies that a quorum queue's at-least-once dead-lettering may make; two messages that are alike in every
 * byte, without a `message_id`, and that died in the same second are held for one.
 */
export function evidenceKeyOf({ body, properties, headers }: DeadMessage): Buffer {
  const { headers: _apart, ...others } = properties;
  const unchanging = DELIVERY_COUNTS.reduce((table, name) => takeOut(table, name)[0], headersToStored(headers));
  return digestOf([headersToStored(others), unchanging], body);
}

/**
 * The key of a message that its publisher gave an id, without the account of its death: a broker that crashes between moving a
 * message and forgetting it lets the message die again, in another second. `undefined` where there is no id.
 */
export function messageKeyOf({ body, properties, headers }: DeadMessage): Buffer | undefined {
  const { headers: _apart, ...others } = properties;
  const { messageId } = others;
  if (typeof messageId !== 'string' || messageId === '') return undefined;
  const living = ['x-death', ...DELIVERY_COUNTS, ...BROKERS_NOTES].reduce(
    (table, name) => takeOut(table, name)[0],
    headersToStored(headers),
  );
  return digestOf([headersToStored(others), living], body);
}

function digestOf(said: unknown, body: Buffer): Buffer {
  return createHash('sha256').update(canonical(said)).update('\n').update(body).digest();
}

/** Quorum queues count deliveries in these headers of the message itself. Source: rabbitmq.com/docs/quorum-queues. */
const DELIVERY_COUNTS = ['x-delivery-count', 'x-acquired-count'] as const;

/** What else the broker writes into the headers of what died, beside `x-death`. Source: rabbitmq.com/docs/dlx. */
const BROKERS_NOTES = ['first', 'last'].flatMap((which) =>
  ['reason', 'queue', 'exchange'].map((what) => `x-${which}-death-${what}`),
);

type Stored = Readonly<Record<string, unknown>>;

/** One member of a stored table and the table without it. A table with odd names is a list of pairs: see `headersToStored`. */
function takeOut(stored: Stored, name: string): readonly [Stored, unknown] {
  const { $: tag, v } = stored;
  if (tag === 't' && Array.isArray(v)) {
    const pairs = v as (readonly [unknown, unknown])[];
    return [{ $: 't', v: pairs.filter(([key]) => key !== name) }, pairs.find(([key]) => key === name)?.[1]];
  }
  if (!Object.hasOwn(stored, name)) return [stored, undefined];
  const { [name]: taken, ...kept } = stored;
  return [kept, taken];
}

/** JSON with its keys in order: a broker may hand the same table out in another order. */
function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  if (Array.isArray(value)) return `[${(value as unknown[]).map((item) => canonical(item)).join(',')}]`;
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`);
  return `{${members.join(',')}}`;
}
