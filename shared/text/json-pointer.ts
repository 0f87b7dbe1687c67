/** RFC 6901 pointers: names of a place within JSON. */

/** The steps of a pointer, none for `''`; `undefined` for what is no pointer. */
export function parsePointer(pointer: string): readonly string[] | undefined {
  if (!/^(\/([^~]|~[01])*)?$/.test(pointer)) return undefined;
  return pointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** What is at a place within a value of JSON; null where nothing is. */
export function pickAt(value: unknown, path: readonly string[]): unknown {
  let found: unknown = value;
  for (const part of path) {
    if (typeof found !== 'object' || found === null) return null;
    if (Array.isArray(found) ? !/^(0|[1-9]\d*)$/.test(part) : !Object.hasOwn(found, part)) return null;
    found = (found as Readonly<Record<string, unknown>>)[part] ?? null;
  }
  return found;
}
