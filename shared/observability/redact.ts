/** Takes secrets out of what is logged: passwords in URLs, tokens, values under secret names. */

import { isDate } from 'node:util/types';

const SECRET_NAME = /pass(word|wd)?$|secret|token|authorization|cookie|api[-_]?key|credential/i;
// Bounded, so that a text without URLs costs one pass and not one for each of its words.
const URL_PASSWORD = /\b([a-z][a-z0-9+.-]{0,30}:\/\/)([^\s/?#@"']{0,512})@/gi;
const BEARER = /\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}/gi;
const DEEPEST = 8;
const MOST_MEMBERS = 100;
const LONGEST_TEXT = 8_192;

/** Masks credentials in a text: `amqp://user:secret@host` becomes `amqp://***@host`. */
export function redactText(text: string): string {
  const masked = text.replaceAll(URL_PASSWORD, '$1***@').replaceAll(BEARER, '$1 ***');
  return masked.length > LONGEST_TEXT ? `${masked.slice(0, LONGEST_TEXT)}… (${masked.length} characters)` : masked;
}

/** A copy that can be written as JSON, without secrets, without cycles, bounded in depth and width. Never throws. */
export function redact(value: unknown): unknown {
  return copy(value, 0, new Set());
}

function copy(value: unknown, depth: number, above: Set<object>): unknown {
  if (typeof value === 'string') return redactText(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'function' || typeof value === 'symbol') return `[${typeof value}]`;
  if (typeof value !== 'object' || value === null) return value;
  if (isDate(value)) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
  if (Buffer.isBuffer(value)) return `[${value.length} bytes]`;
  if (depth >= DEEPEST) return '[deeper]';
  if (above.has(value)) return '[circular]';
  above.add(value);
  try {
    return isErrorShaped(value) ? copyError(value, depth, above) : copyMembers(value, depth, above);
  } catch {
    return '[unreadable]';
  } finally {
    above.delete(value);
  }
}

function copyMembers(value: object, depth: number, above: Set<object>): unknown {
  if (Array.isArray(value)) return value.slice(0, MOST_MEMBERS).map((item: unknown) => copy(item, depth + 1, above));
  const result: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const [name, member] of Object.entries(value).slice(0, MOST_MEMBERS)) {
    result[name] =
      SECRET_NAME.test(name) && member !== undefined && member !== null ? '***' : copy(member, depth + 1, above);
  }
  return result;
}

function isErrorShaped(value: object): value is Error {
  return 'stack' in value && 'message' in value;
}

function copyError(error: Error, depth: number, above: Set<object>): unknown {
  const { name, message, stack, cause, ...rest } = {
    ...(copyMembers(error, depth, above) as Record<string, unknown>),
    name: error.name,
    message: error.message,
    stack: error.stack,
    cause: error.cause,
  };
  return {
    name: copy(name, depth + 1, above),
    message: copy(message, depth + 1, above),
    ...rest,
    stack: copy(stack, depth + 1, above),
    ...(cause === undefined ? {} : { cause: copy(cause, depth + 1, above) }),
  };
}
