/** What dead letters are found by: the keys of the filter language, the same in the API, on the command line and on screens. */
import type { FilterKeys } from '../filter/filter.ts';
import type { KeyKind } from '../filter/values.ts';
import { LETTER_KINDS, LETTER_STATES } from './reason.ts';

/** Each key with what its values are. */
export const LETTER_KEYS = {
  state: [...Object.keys(LETTER_STATES), 'all'],
  kind: Object.keys(LETTER_KINDS),
  reason: 'name',
  type: 'name',
  queue: 'name',
  group: 'uuid',
  tag: 'name',
  age: 'age',
  died: 'instant',
  error: 'text',
  errorType: 'name',
  code: 'name',
  attempts: 'number',
  task: 'uuid',
  id: 'uuid',
  version: 'name',
  input: 'json',
} as const satisfies Readonly<Record<string, KeyKind>>;

/** One of `LETTER_KEYS`. */
export type LetterKey = keyof typeof LETTER_KEYS;

/** The language of dead letters: a word without a key is searched in the error. */
export const LETTER_LANGUAGE: FilterKeys = {
  kinds: new Map<string, KeyKind>(Object.entries(LETTER_KEYS)),
  bareWord: 'error',
};
