/** Under which key a task counts towards a limit of its type: the text of a member of its input. */
import { createHash } from 'node:crypto';
import { countCharacters } from '../text/characters.ts';

const PATH = /^input(\.[\w$-]+){1,8}$/;
const LONGEST_KEY = 200;

/** True for `input.tenantId`, `input.user.id`: a path of 1 to 8 names of letters, digits, `_`, `-` and `$`. */
export function isLimitKey(path: unknown): path is string {
  return typeof path === 'string' && path.length <= LONGEST_KEY && PATH.test(path);
}

/**
 * The key of an input. A text is itself, anything else its JSON, what is not there the empty text; one beyond 200 characters is its
 * SHA-256. Without a path there is one key for all.
 */
export function limitKeyOf(path: string | undefined, input: unknown): string {
  if (path === undefined) return '';
  let value: unknown = input;
  for (const step of path.split('.').slice(1)) {
    // Own members alone: an input may be called whatever Object.prototype has.
    value =
      typeof value === 'object' && value !== null && Object.hasOwn(value, step) ? Reflect.get(value, step) : undefined;
  }
  if (value === undefined || value === null) return '';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return countCharacters(text) <= LONGEST_KEY ? text : createHash('sha256').update(text).digest('hex');
}
