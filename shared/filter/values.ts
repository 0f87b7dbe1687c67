/** The values of a filter: texts with wildcards, numbers, ages and instants with comparisons, and pieces of JSON. */
import { FilterFault } from './text-reader.ts';
import type { TextReader } from './text-reader.ts';
import { readAge, readInstant, readNumber, rangeOf } from './ranges.ts';
import type { FilterRange } from './ranges.ts';

/**
 * What the values of a key are: `name`: a whole text, `*` stands for anything · `text`: a part of a text, `*` as before ·
 * `number` · `age`: how long ago · `instant` · `uuid` · `json`: a value of JSON · a list: one of these words.
 */
export type KeyKind = 'name' | 'text' | 'number' | 'age' | 'instant' | 'uuid' | 'json' | readonly string[];

/** One alternative of a term. */
export type FilterValue =
  /** Between two pieces anything may stand; a text without wildcard is one piece. */
  | { readonly kind: 'text'; readonly pieces: readonly string[] }
  /** Numbers; of ages milliseconds; of instants milliseconds since 1970. */
  | { readonly kind: 'range'; readonly range: FilterRange }
  /** JSON texts of the values that fit. */
  | { readonly kind: 'json'; readonly texts: readonly string[] }
  /** Any value. */
  | { readonly kind: 'any' };

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
/** An exponent of four digits would be a number that no database keeps. */
const JSON_NUMBER = /^-?(0|[1-9]\d{0,99})(\.\d{1,100})?([eE][+-]?\d{1,3})?$/;

interface Written {
  readonly text: string;
  readonly isQuoted: boolean;
  readonly start: number;
}

/** Reads one value. `endsAtComma`: further ones may follow. */
export function readValue(reader: TextReader, key: string, kind: KeyKind, endsAtComma: boolean): FilterValue {
  const start = reader.position;
  const isQuoted = reader.peek() === '"';
  const text = isQuoted ? reader.readQuoted() : (reader.match(endsAtComma ? /[^\s,"]+/y : /[^\s"]+/y) ?? '');
  if (text === '' && (!isQuoted || kind === 'text')) reader.fail(`a value is missing: ${allowedFor(key, kind)}`);
  if (!reader.isAtEnd && !reader.isAtSpace && !(endsAtComma && reader.peek() === ',')) {
    reader.fail(
      `a space${endsAtComma ? ' or ","' : ''} must follow a value; quote it as a whole where it holds others`,
    );
  }
  const written = { text, isQuoted, start };
  if (typeof kind === 'object') return readChoice(written, key, kind);
  switch (kind) {
    case 'name':
      if (!isQuoted && /^[<>]/.test(text)) {
        throw new FilterFault(start, `${key} has no order: ${allowedFor(key, kind)}; quote it to take < and > as text`);
      }
      return readText(written);
    case 'text':
      return readText(written);
    case 'number':
      return { kind: 'range', range: orFail(rangeOf(text, readNumber), written, key, kind) };
    case 'age':
      return { kind: 'range', range: orFail(rangeOf(text, readAge), written, key, kind) };
    case 'instant':
      return { kind: 'range', range: orFail(rangeOf(text, readInstant), written, key, kind) };
    case 'uuid':
      return { kind: 'text', pieces: [orFail(UUID.test(text) ? text.toLowerCase() : undefined, written, key, kind)] };
    case 'json':
      return readJson(written, key);
  }
}

/** What may stand behind the colon of a key, in words. */
export function allowedFor(key: string, kind: KeyKind): string {
  if (typeof kind === 'object') return `${key} is one of ${kind.join(', ')}`;
  switch (kind) {
    case 'name':
      return `${key} takes a name, in which * stands for anything, such as ${key}:a.*`;
    case 'text':
      return `${key} takes a part of a text, such as ${key}:"not found"`;
    case 'number':
      return `${key} takes a number, such as ${key}:3, ${key}:>=3 or ${key}:3..5`;
    case 'age':
      return `${key} takes a comparison with a duration in d, h, m, s, such as ${key}:>1h, ${key}:<30m or ${key}:1h..2d`;
    case 'instant':
      return `${key} takes a day, or a comparison with a day or an RFC 3339 instant with an offset, such as ${key}:>2026-01-31T18:00:00Z or ${key}:2026-01-01..2026-01-31`;
    case 'uuid':
      return `${key} takes a whole id, such as 0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60`;
    case 'json':
      return `${key}.<path> takes a value, a comparison with a number, or * for any value; quote it to compare as text alone`;
  }
}

function readText({ text, isQuoted }: Written): FilterValue {
  return { kind: 'text', pieces: isQuoted ? [text] : text.replaceAll(/\*+/g, '*').split('*') };
}

function readChoice(written: Written, key: string, choices: readonly string[]): FilterValue {
  return {
    kind: 'text',
    pieces: [
      orFail(
        choices.find((each) => each === written.text),
        written,
        key,
        choices,
      ),
    ],
  };
}

/** What is not in quotes may be a number, a boolean or null, and is the text of it as well. */
function readJson({ text, isQuoted, start }: Written, key: string): FilterValue {
  if (isQuoted) return { kind: 'json', texts: [JSON.stringify(text)] };
  if (text === '*') return { kind: 'any' };
  if (/^[<>]/.test(text) || /\.\./.test(text)) {
    return { kind: 'range', range: orFail(rangeOf(text, readNumber), { text, isQuoted, start }, key, 'json') };
  }
  if (text.includes('*')) {
    throw new FilterFault(
      start + text.indexOf('*'),
      'a * in a value of the input must be quoted; alone it is any value',
    );
  }
  const isLiteral = JSON_NUMBER.test(text) || text === 'true' || text === 'false' || text === 'null';
  return { kind: 'json', texts: [...(isLiteral ? [text] : []), JSON.stringify(text)] };
}

function orFail<T>(value: T | undefined, written: Written, key: string, kind: KeyKind): T {
  if (value === undefined) throw new FilterFault(written.start, allowedFor(key, kind));
  return value;
}
