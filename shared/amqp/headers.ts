/**
 * AMQP headers as amqplib gives them: their size, what cannot be sent, and a form in which they can be kept in a jsonb
 * column and sent again unchanged.
 */
import { isStorableText } from '../text/storable.ts';

/** A table of AMQP fields: texts, numbers, booleans, null, Buffers, lists, tables, `{'!': 'timestamp' | 'decimal', value}`. */
export type Headers = Readonly<Record<string, unknown>>;

/** JSON in which headers are kept; see `headersToStored`. */
export type StoredHeaders = Readonly<Record<string, unknown>>;

/** Levels. amqplib can decode some thousands, each of which costs us stack as well. */
const DEEPEST = 500;
const TAG = '$';

/** Bytes of headers on the wire; `Infinity` where they nest deeper than 500. */
export function headersBytes(headers: Headers): number {
  return tableBytes(headers, 0);
}

/** Why amqplib or the broker could not take these headers, in words, or `undefined`. */
export function findHeaderFault(headers: Headers): string | undefined {
  return findFaultIn(headers, 0);
}

/** Headers for a message that is published again: without `x-*` (the broker's evidence) and CC and BCC (they route). */
export function withoutBrokerHeaders(headers: Headers): Headers {
  return tableOf(entriesOf(headers).filter(([name]) => !/^x-/i.test(name) && name !== 'CC' && name !== 'BCC'));
}

/**
 * Headers as JSON that a jsonb column takes and `headersFromStored` reads back. Plain values stay plain, so that they
 * can be read and searched; what JSON or jsonb cannot hold (bytes, timestamps, decimals, U+0000, NaN) is tagged with `$`.
 * What is lost: below 500 levels, and what amqplib itself loses: the width of numbers, and 64-bit integers beyond 2^53.
 */
export function headersToStored(headers: Headers): StoredHeaders {
  return storedTable(headers, 0) as StoredHeaders;
}

/** Reads what `headersToStored` wrote. Something it never wrote comes back as it is. */
export function headersFromStored(stored: StoredHeaders): Headers {
  const value = fromStored(stored);
  return typeof value === 'object' && value !== null ? (value as Headers) : {};
}

/** Tables with a member `!`, which amqplib takes for a type mark unless it is inherited. */
const wrapped = new WeakSet();

/**
 * The members of a table. A field named `__proto__` that holds a table becomes, in amqplib's hands, the prototype of the
 * decoded object; here it is a member again.
 */
function entriesOf(table: object): [string, unknown][] {
  const prototype = Object.getPrototypeOf(table) as object | null;
  if (prototype !== null && wrapped.has(table)) return entriesOf(prototype);
  const entries = Object.entries(table).filter(([, value]) => value !== undefined) as [string, unknown][];
  // The root of any realm has no prototype itself; a decoded table has one.
  const isRoot = prototype === null || Object.getPrototypeOf(prototype) === null;
  if (!isRoot && !Object.hasOwn(table, '__proto__')) entries.push(['__proto__', prototype]);
  return entries;
}

function tableOf(entries: readonly (readonly [string, unknown])[]): Headers {
  const table: Record<string, unknown> = {};
  for (const [name, value] of entries) {
    // Plain assignment would set the prototype for one name.
    if (name === '__proto__') {
      Object.defineProperty(table, name, { value, enumerable: true, writable: true, configurable: true });
    } else {
      table[name] = value;
    }
  }
  if (!Object.hasOwn(table, '!')) return table;
  const wrapping = Object.create(table) as Headers;
  wrapped.add(wrapping);
  return wrapping;
}

type Special =
  | { readonly kind: 'timestamp'; readonly seconds: number }
  | { readonly kind: 'decimal'; readonly places: number; readonly digits: number };

/** Reads amqplib's form of a timestamp or decimal; anything else with a `!` is a table that happens to have that member. */
function specialOf(value: object): Special | undefined {
  if (!Object.hasOwn(value, '!') || Object.keys(value).length !== 2 || !Object.hasOwn(value, 'value')) return undefined;
  const { '!': mark, value: inner } = value as Headers;
  if (mark === 'timestamp' && typeof inner === 'number' && Number.isInteger(inner) && inner >= 0 && inner < 2 ** 64) {
    return { kind: 'timestamp', seconds: inner };
  }
  if (mark !== 'decimal' || typeof inner !== 'object' || inner === null) return undefined;
  if (!('places' in inner) || !('digits' in inner)) return undefined;
  const { places, digits } = inner;
  if (!isUnsigned(places, 255) || !isUnsigned(digits, 4_294_967_295)) return undefined;
  return { kind: 'decimal', places, digits };
}

function isUnsigned(value: unknown, highest: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= highest;
}

function tableBytes(table: object, depth: number): number {
  let bytes = 4;
  for (const [name, value] of entriesOf(table)) bytes += 1 + Buffer.byteLength(name) + valueBytes(value, depth + 1);
  return bytes;
}

function valueBytes(value: unknown, depth: number): number {
  if (depth > DEEPEST) return Number.POSITIVE_INFINITY;
  if (typeof value === 'string') return 5 + Buffer.byteLength(value);
  if (typeof value === 'boolean') return 2;
  if (value === null) return 1;
  if (typeof value !== 'object') return 9; // a number, at its widest
  if (Buffer.isBuffer(value)) return 5 + value.length;
  if (Array.isArray(value)) {
    return (value as unknown[]).reduce<number>((sum, item) => sum + valueBytes(item, depth + 1), 5);
  }
  return specialOf(value) === undefined ? 1 + tableBytes(value, depth) : 9;
}

function findFaultIn(value: unknown, depth: number): string | undefined {
  if (depth > DEEPEST) return `must not nest deeper than ${DEEPEST}`;
  if (typeof value === 'string' || typeof value === 'boolean' || value === null) return undefined;
  // The broker cannot read infinities and NaN, and ends the connection.
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : 'must not hold NaN or infinite numbers';
  if (typeof value !== 'object') return `must not hold a ${typeof value}`;
  if (Buffer.isBuffer(value) || specialOf(value) !== undefined) return undefined;
  if (Array.isArray(value)) return findFirst(value as unknown[], (item) => findFaultIn(item, depth + 1));
  if (Object.hasOwn(value, '!')) return 'must not hold a table with a member named !';
  return findFirst(entriesOf(value), ([name, member]) =>
    Buffer.byteLength(name) > 255 ? 'must not have names of more than 255 bytes' : findFaultIn(member, depth + 1),
  );
}

function findFirst<T, R>(items: readonly T[], find: (item: T) => R | undefined): R | undefined {
  for (const item of items) {
    const found = find(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

function stored(value: unknown, depth: number): unknown {
  if (depth > DEEPEST) return { [TAG]: 'deeper' };
  if (typeof value === 'string') {
    return isStorableText(value) ? value : { [TAG]: 's', v: Buffer.from(value, 'utf16le').toString('base64') };
  }
  if (typeof value === 'number') return Number.isFinite(value) ? value : { [TAG]: 'f', v: String(value) };
  if (typeof value === 'boolean') return value;
  if (typeof value !== 'object' || value === null) return null; // amqplib decodes nothing else
  if (Buffer.isBuffer(value)) return { [TAG]: 'x', v: value.toString('base64') };
  if (Array.isArray(value)) return (value as unknown[]).map((item) => stored(item, depth + 1));
  const special = specialOf(value);
  if (special?.kind === 'timestamp') return { [TAG]: 'T', v: special.seconds };
  if (special?.kind === 'decimal') return { [TAG]: 'D', v: [special.places, special.digits] };
  return storedTable(value, depth);
}

function storedTable(table: object, depth: number): unknown {
  const entries = entriesOf(table).map(([name, value]) => [name, stored(value, depth + 1)] as const);
  const isPlain = entries.every(([name]) => name !== TAG && name !== '__proto__' && isStorableText(name));
  return isPlain
    ? Object.fromEntries(entries)
    : { [TAG]: 't', v: entries.map(([name, value]) => [stored(name, 0), value]) };
}

function fromStored(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return (value as unknown[]).map((item) => fromStored(item));
  if (Object.hasOwn(value, TAG)) return fromTagged(value as { readonly $: unknown; readonly v?: unknown });
  return tableOf(Object.entries(value).map(([name, member]) => [name, fromStored(member)] as const));
}

function fromTagged({ $: tag, v }: { readonly $: unknown; readonly v?: unknown }): unknown {
  if (typeof v === 'string') {
    if (tag === 's') return Buffer.from(v, 'base64').toString('utf16le');
    if (tag === 'x') return Buffer.from(v, 'base64');
    if (tag === 'f') return Number(v);
  }
  if (tag === 'T' && typeof v === 'number') return { '!': 'timestamp', value: v };
  if (!Array.isArray(v)) return null;
  if (tag === 'D') return { '!': 'decimal', value: { places: v[0] as unknown, digits: v[1] as unknown } };
  return tableOf((v as [unknown, unknown][]).map(([name, member]) => [String(fromStored(name)), fromStored(member)]));
}
