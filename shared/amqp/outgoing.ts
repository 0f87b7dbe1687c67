/** What is published, and the check that keeps a bad value from closing the channel that all publishes share. */
import { WarrenError } from '../errors/warren-error.ts';
import { findHeaderFault, headersBytes } from './headers.ts';
import type { Headers } from './headers.ts';

/** AMQP properties that Warren sets. A foreign `user_id` is not among them: the broker refuses one that is not the publisher's own. */
export interface OutgoingProperties {
  readonly messageId?: string;
  readonly correlationId?: string;
  readonly type?: string;
  /** An integer from 0 to 255; a queue of Warren knows 0 to 9. */
  readonly priority?: number;
  readonly headers?: Headers;
  readonly contentType?: string;
  readonly contentEncoding?: string;
  /** Seconds since 1970, an integer. */
  readonly timestamp?: number;
  readonly replyTo?: string;
  /** Milliseconds, an integer from 0 to 4 294 967 295. */
  readonly expiration?: number;
  readonly appId?: string;
}

/** One message to publish. It is always persistent. */
export interface Outgoing {
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly properties: OutgoingProperties;
  /** True to have the publish fail with `unroutable` where no queue takes it. */
  readonly mandatory: boolean;
}

const LONGEST_SHORT_STRING_BYTES = 255;
const HIGHEST_EXPIRATION = 4_294_967_295;
/** amqplib encodes headers in a buffer of 64 KiB, which also keeps them within one frame of 128 KiB. */
const MOST_HEADER_BYTES = 65_000;
/** RabbitMQ 4 closes the channel on a message of more than 16 MiB. Source: rabbitmq.com/docs/configure, max_message_size. */
const MOST_BODY_BYTES = 16_777_216;

const TEXTS = ['messageId', 'correlationId', 'type', 'contentType', 'contentEncoding', 'replyTo', 'appId'] as const;

/** Why a message cannot be published, or `undefined`: `field-invalid`, `headers-too-large` or `body-too-large`. */
export function findFault(message: Outgoing): WarrenError | undefined {
  const { exchange, routingKey, body, properties } = message;
  if (isTooLong(exchange)) return invalid('exchange', 'must be at most 255 bytes');
  if (isTooLong(routingKey)) return invalid('routingKey', 'must be at most 255 bytes');
  if (!Buffer.isBuffer(body)) return invalid('body', 'must be a Buffer');
  if (body.length > MOST_BODY_BYTES) return new WarrenError('body-too-large', { limitBytes: MOST_BODY_BYTES });
  for (const name of TEXTS) {
    const value = properties[name];
    if (value !== undefined && isTooLong(value)) return invalid(name, 'must be a text of at most 255 bytes');
  }
  return (
    findNumberFault(properties) ?? (properties.headers === undefined ? undefined : headersFault(properties.headers))
  );
}

function findNumberFault({ priority, timestamp, expiration }: OutgoingProperties): WarrenError | undefined {
  if (priority !== undefined && !isIntegerWithin(priority, 255)) {
    return invalid('priority', 'must be an integer from 0 to 255');
  }
  if (timestamp !== undefined && !isIntegerWithin(timestamp, Number.MAX_SAFE_INTEGER)) {
    return invalid('timestamp', 'must be an integer of seconds since 1970');
  }
  if (expiration !== undefined && !isIntegerWithin(expiration, HIGHEST_EXPIRATION)) {
    return invalid('expiration', `must be an integer from 0 to ${HIGHEST_EXPIRATION}`);
  }
  return undefined;
}

function headersFault(headers: Headers): WarrenError | undefined {
  const reason = findHeaderFault(headers);
  if (reason !== undefined) return invalid('headers', reason);
  // The broker routes by these two, and closes the channel where they are no list of texts.
  if (Object.hasOwn(headers, 'CC') || Object.hasOwn(headers, 'BCC'))
    return invalid('headers', 'CC and BCC are not allowed');
  const bytes = headersBytes(headers);
  return bytes > MOST_HEADER_BYTES
    ? new WarrenError('headers-too-large', { bytes, limitBytes: MOST_HEADER_BYTES })
    : undefined;
}

function isTooLong(text: string): boolean {
  // A character is at most three bytes in UTF-8 per UTF-16 unit, so most need no counting.
  if (typeof text !== 'string') return true;
  return text.length > 85 && Buffer.byteLength(text) > LONGEST_SHORT_STRING_BYTES;
}

function isIntegerWithin(value: number, highest: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= highest;
}

function invalid(field: string, reason: string): WarrenError {
  return new WarrenError('field-invalid', { field, reason });
}
