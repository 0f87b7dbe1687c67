/**
 * Cuts the body of a batch into its items, as bytes. Each item is then checked by itself, so that a number, a text or a
 * depth that is refused in one does not fail the others, and each input stays the bytes that came.
 */
import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { MESSAGE_LIMITS } from '../../../shared/amqp/message.ts';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { fieldInvalid } from '../../../shared/http/body.ts';
import { checkBySchema } from '../../../shared/tasks/check-by-schema.ts';

/** Tasks in one batch at most. */
export const MOST_IN_BATCH = 1_000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN = [0x7b, 0x5b]; // { [
const CLOSE = [0x7d, 0x5d]; // } ]

/** A batch whose items are not looked into. */
export const batchOutline = z.strictObject({
  tasks: z.array(z.unknown()).min(1).max(MOST_IN_BATCH),
  spreadMs: z
    .int()
    .min(1)
    .max(MESSAGE_LIMITS.delayMs)
    .optional()
    .describe(
      'Let the tasks start spread evenly over so many milliseconds, in their order, each at an arbitrary moment of its share. Not together with delayMs or runAt of a task.',
    ),
});

/** A batch, cut up. */
export interface Batch {
  /** Views into the body, one an item. */
  readonly items: readonly Buffer[];
  /** Milliseconds over which the tasks are to start, spread evenly; `undefined`: all at once. */
  readonly spreadMs: number | undefined;
}

/** Cuts `{"tasks": […], "spreadMs": …}`. Throws `body-invalid` and `field-invalid`. */
export function splitBatch(raw: Buffer): Batch {
  if (!isUtf8(raw)) throw invalidBody('is not valid UTF-8');
  let value: unknown;
  try {
    value = JSON.parse(raw.toString('utf8'));
  } catch {
    throw invalidBody('is not valid JSON'); // the parser's own message quotes the content
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalidBody('must be an object');
  const checked = checkBySchema(batchOutline, value);
  if (checked.kind === 'refused') throw fieldInvalid(checked.faults);
  return { items: itemsOf(raw, valueOf(raw, 'tasks')), spreadMs: checked.value.spreadMs };
}

/**
 * Milliseconds by which the `index`-th of `count` tasks is put off: each starts somewhere in a slot of its own. Where in it follows
 * from the batch, so that a batch that comes again under its Idempotency-Key is answered as the first time.
 */
export function spreadDelayMs(
  { index, count, spreadMs }: { readonly index: number; readonly count: number; readonly spreadMs: number },
  digest: Buffer,
): number {
  const place = createHash('sha256').update(digest).update(String(index)).digest().readUInt32BE(0) / 2 ** 32;
  return Math.floor(((index + place) * spreadMs) / count);
}

/** Where the value of a member begins. The grammar is known to be right, so nothing here looks for it. Throws for one given twice. */
function valueOf(raw: Buffer, wanted: string): number {
  const seen = new Map<string, number>();
  let at = skipSpace(raw, skipSpace(raw, 0) + 1);
  while (raw[at] === QUOTE) {
    const afterKey = skipString(raw, at);
    const name = JSON.parse(raw.toString('utf8', at, afterKey)) as string;
    // The second would win in the value and not in the bytes.
    if (seen.has(name)) throw invalidField(name, 'is given twice');
    const start = skipSpace(raw, skipSpace(raw, afterKey) + 1);
    seen.set(name, start);
    at = skipSpace(raw, skipSpace(raw, skipValue(raw, start)) + 1);
  }
  return seen.get(wanted) ?? 0;
}

/** The items of the array that opens at `at`. */
function itemsOf(raw: Buffer, at: number): Buffer[] {
  const found: Buffer[] = [];
  let next = skipSpace(raw, at + 1);
  for (;;) {
    const end = skipValue(raw, next);
    found.push(raw.subarray(next, end));
    const after = skipSpace(raw, end);
    if (raw[after] !== COMMA) return found;
    next = skipSpace(raw, after + 1);
  }
}

function skipValue(raw: Buffer, start: number): number {
  let depth = 0;
  let at = start;
  while (at < raw.length) {
    const byte = raw[at] as number;
    if (byte === QUOTE) {
      at = skipString(raw, at);
      if (depth === 0) return at;
      continue;
    }
    if (OPEN.includes(byte)) depth += 1;
    else if (CLOSE.includes(byte)) {
      if (depth === 0) return at; // the end of a number or a word before it
      depth -= 1;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (byte === COMMA || byte === COLON || isSpace(byte))) return at;
    at += 1;
  }
  return at;
}

/** Past the closing quote of the string that opens at `start`. */
function skipString(raw: Buffer, start: number): number {
  let at = start + 1;
  while (at < raw.length && raw[at] !== QUOTE) at += raw[at] === BACKSLASH ? 2 : 1;
  return at + 1;
}

function skipSpace(raw: Buffer, start: number): number {
  let at = start;
  while (isSpace(raw[at])) at += 1;
  return at;
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

const invalidBody = (reason: string): WarrenError => new WarrenError('body-invalid', { field: 'body', reason });
const invalidField = (field: string, reason: string): WarrenError =>
  new WarrenError('field-invalid', { field, reason });
