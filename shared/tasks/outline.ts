/**
 * The outline of an input that is too large for its row: an input of the same form with what is small in it, so that searches,
 * limits, fair queues and people find what they look for. What is left out says so in its place.
 */

/** What stands for a value that was left out. */
interface Omitted {
  readonly $omitted: 'array' | 'object' | 'string';
  /** Items, members or characters. */
  readonly length: number;
}

/** Characters of JSON that an outline has at most, a little more or less. */
const MOST_CHARACTERS = 8_192;
/** Characters of a text that is kept. */
const LONGEST_TEXT = 256;
/** Items of a list that is kept. */
const LONGEST_LIST = 10;
const DEEPEST = 5;

/** Makes the outline of a JSON value. Members stand in their order; those after the bound is reached are left out. */
export function outlineOf(value: unknown): unknown {
  let left = MOST_CHARACTERS;

  function outline(part: unknown, depth: number): unknown {
    if (typeof part === 'string' && part.length > LONGEST_TEXT)
      return omitted({ $omitted: 'string', length: part.length });
    if (typeof part !== 'object' || part === null) return kept(part);
    const entries = Object.entries(part);
    if (Array.isArray(part)) {
      if (part.length > LONGEST_LIST || depth === DEEPEST) return omitted({ $omitted: 'array', length: part.length });
      left -= 2;
      return part.map((item) => outline(item, depth + 1));
    }
    if (depth === DEEPEST || left <= 0) return omitted({ $omitted: 'object', length: entries.length });
    left -= 2;
    const shown = new Map<string, unknown>();
    // What is small comes first: a long list must not hide the id behind it.
    const inOrder = [...entries.filter(([, each]) => isScalar(each)), ...entries.filter(([, each]) => !isScalar(each))];
    for (const [name, each] of inOrder) {
      if (left <= 0) break;
      left -= name.length + 4;
      shown.set(name, outline(each, depth + 1));
    }
    const members = entries.flatMap(([name]) => (shown.has(name) ? [[name, shown.get(name)] as const] : []));
    const missing = entries.length - members.length;
    return Object.fromEntries(missing === 0 ? members : [...members, ['$omitted', missing]]);
  }

  function kept(part: unknown): unknown {
    left -= JSON.stringify(part)?.length ?? 0;
    return part;
  }

  function omitted(what: Omitted): Omitted {
    left -= 40;
    return what;
  }

  return outline(value, 0);
}

const isScalar = (value: unknown): boolean =>
  typeof value === 'string' ? value.length <= LONGEST_TEXT : typeof value !== 'object' || value === null;
