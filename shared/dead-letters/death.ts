/**
 * The broker's account of a death, read from `x-death`. Unverified: whoever can publish can write this header, so nothing
 * that matters is decided by it alone, and no shape of it may do harm.
 */
import type { Headers } from '../amqp/headers.ts';
import type { LetterReason } from './reason.ts';

/** The last death of a message, as its header tells it. */
export interface Death {
  readonly reason: LetterReason;
  /** The queue that it died in; absent where the header does not say. */
  readonly queue?: string;
  /** The exchange by which it had come into that queue, empty for the default exchange. */
  readonly exchange?: string;
  /** The routing key that it had come with. */
  readonly routingKey?: string;
}

const REASONS: ReadonlySet<unknown> = new Set<LetterReason>(['rejected', 'expired', 'maxlen', 'delivery_limit']);
const LONGEST_NAME = 255;

/**
 * Reads the last death, which the broker puts first in the list; `undefined` where there is none that can be read. Never
 * throws. Source: rabbitmq.com/docs/dlx, "Dead-lettered effects on messages".
 */
export function readDeath(headers: Headers): Death | undefined {
  const list = own(headers, 'x-death');
  const last: unknown = Array.isArray(list) ? list[0] : undefined;
  if (typeof last !== 'object' || last === null || Array.isArray(last) || Buffer.isBuffer(last)) return undefined;
  const reason = own(last, 'reason');
  const queue = nameOf(own(last, 'queue'));
  const exchange = nameOf(own(last, 'exchange'));
  const keys = own(last, 'routing-keys');
  const routingKey = nameOf(Array.isArray(keys) ? keys[0] : undefined);
  return {
    reason: REASONS.has(reason) ? (reason as LetterReason) : 'unknown',
    ...(queue === undefined ? {} : { queue }),
    ...(exchange === undefined ? {} : { exchange }),
    ...(routingKey === undefined ? {} : { routingKey }),
  };
}

function own(table: object, name: string): unknown {
  return Object.hasOwn(table, name) ? (table as Record<string, unknown>)[name] : undefined;
}

function nameOf(value: unknown): string | undefined {
  return typeof value === 'string' && Buffer.byteLength(value) <= LONGEST_NAME ? value : undefined;
}
