/**
 * The filter language: terms with a space between them, all of which must hold. `key:value` compares, `key:a,b` takes either,
 * `-` in front says not, and a word without a key is searched in text. Pure: what the keys mean is for whoever asks.
 */
import { FilterFault, TextReader } from './text-reader.ts';
import { readValue } from './values.ts';
import type { FilterValue, KeyKind } from './values.ts';

/** Bounds of a filter. */
export const FILTER_LIMITS = {
  /** Characters (UTF-16 units) of a filter at most. */
  length: 4_000,
  /** Terms at most. */
  terms: 50,
  /** Alternatives of one term at most. */
  alternatives: 100,
  /** Steps of a path at most. */
  pathDepth: 20,
} as const;

/** What filters may name. */
export interface FilterKeys {
  /** Each key with what its values are. */
  readonly kinds: ReadonlyMap<string, KeyKind>;
  /** The key that a word without one belongs to. */
  readonly bareWord: string;
}

/** One term. */
export interface FilterTerm {
  readonly key: string;
  /** Of a key of kind `json`: the names of the members on the way to the value. */
  readonly path: readonly string[];
  /** True where the letter must not fit. */
  readonly isNegated: boolean;
  /** It fits where one of them does. */
  readonly values: readonly FilterValue[];
}

/** A filter that was read, or where and why it cannot be. */
export type ParsedFilter =
  | { readonly kind: 'ok'; readonly terms: readonly FilterTerm[] }
  | { readonly kind: 'fault'; /** Characters before the fault. */ readonly position: number; readonly reason: string };

/** Reads a filter. Never throws: a fault says where it is and what is allowed there. */
export function parseFilter(text: string, keys: FilterKeys): ParsedFilter {
  try {
    return { kind: 'ok', terms: readTerms(text, keys) };
  } catch (thrown) {
    if (thrown instanceof FilterFault) return { kind: 'fault', position: thrown.position, reason: thrown.reason };
    throw thrown;
  }
}

function readTerms(text: string, keys: FilterKeys): readonly FilterTerm[] {
  if (text.length > FILTER_LIMITS.length) {
    throw new FilterFault(FILTER_LIMITS.length, `a filter has at most ${FILTER_LIMITS.length} characters`);
  }
  // oxlint-disable-next-line no-control-regex -- U+0000 is what is looked for
  const unstorable = /\u0000|\p{Surrogate}/u.exec(text);
  if (unstorable !== null) throw new FilterFault(unstorable.index, 'U+0000 and lone surrogates are not allowed');
  const reader = new TextReader(text);
  const terms: FilterTerm[] = [];
  reader.skipSpaces();
  while (!reader.isAtEnd) {
    if (terms.length === FILTER_LIMITS.terms) reader.fail(`a filter has at most ${FILTER_LIMITS.terms} terms`);
    terms.push(readTerm(reader, keys));
    reader.skipSpaces();
  }
  return terms;
}

function readTerm(reader: TextReader, keys: FilterKeys): FilterTerm {
  const isNegated = reader.take('-');
  const start = reader.position;
  const name = reader.match(/[A-Za-z][A-Za-z0-9_]*(?=[:.])/y);
  // A word with a full stop in it is no path unless a colon follows that.
  if (name !== undefined && (reader.peek() === ':' || keys.kinds.get(name) === 'json')) {
    const kind = keys.kinds.get(name);
    if (kind === undefined) return failKey(name, { reader, start, keys });
    const path = kind === 'json' ? readPath(reader, name) : [];
    if (!reader.take(':')) reader.fail(`a ":" must follow ${name}${kind === 'json' ? ' and its path' : ''}`);
    return { key: name, path, isNegated, values: readValues(reader, name, kind) };
  }
  reader.goTo(start);
  if (isNegated && (reader.isAtEnd || reader.isAtSpace)) reader.fail('a term must follow "-"; quote a lone "-"');
  const kind = keys.kinds.get(keys.bareWord) ?? 'text';
  return { key: keys.bareWord, path: [], isNegated, values: [readValue(reader, keys.bareWord, kind, false)] };
}

function failKey(
  name: string,
  { reader, start, keys }: { readonly reader: TextReader; readonly start: number; readonly keys: FilterKeys },
): never {
  const shown = [...keys.kinds].map(([key, kind]) => (kind === 'json' ? `${key}.<path>` : key)).join(', ');
  reader.goTo(start);
  return reader.fail(`there is no key "${name}"; keys are ${shown}; quote a text that holds a ":"`);
}

function readPath(reader: TextReader, key: string): readonly string[] {
  const path: string[] = [];
  while (reader.take('.')) {
    if (path.length === FILTER_LIMITS.pathDepth) {
      reader.fail(`a path has at most ${FILTER_LIMITS.pathDepth} steps`);
    }
    const step = reader.peek() === '"' ? reader.readQuoted() : reader.match(/[^\s:".,]+/y);
    path.push(step ?? reader.fail('the name of a member must follow ".", in quotes where it holds more than a word'));
  }
  if (path.length === 0) reader.fail(`a path must follow ${key}, such as ${key}.user.id:42`);
  return path;
}

function readValues(reader: TextReader, key: string, kind: KeyKind): readonly FilterValue[] {
  const values: FilterValue[] = [];
  do {
    if (values.length === FILTER_LIMITS.alternatives) {
      reader.fail(`a term has at most ${FILTER_LIMITS.alternatives} alternatives`);
    }
    values.push(readValue(reader, key, kind, true));
  } while (reader.take(','));
  return values;
}
