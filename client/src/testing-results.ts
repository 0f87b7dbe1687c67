/** What `ctx.stepResults` gives in a test. */

/**
 * The results that were given for a step, each written as JSON and read back; null where there is none. With `path` what is there in each. Throws
 * `TypeError` for a step of which none were given, and for a path that is none.
 */
export async function* givenResults(
  results: Readonly<Record<string, readonly unknown[]>>,
  name: string,
  pointer = '',
): AsyncGenerator<unknown, void, undefined> {
  await Promise.resolve();
  if (!/^(\/([^~]|~[01])*)?$/.test(pointer)) throw new TypeError('path must be an RFC 6901 pointer, such as /user/id');
  const given = Object.hasOwn(results, name) ? results[name] : undefined;
  if (given === undefined) throw new TypeError(`the flow has no step ${name}: give its results to runTask`);
  const path = pointer.split('/').slice(1);
  for (const each of given) {
    const value = JSON.parse(JSON.stringify(each ?? null)) as unknown;
    yield path.reduce((found, part) => memberOf(found, part.replaceAll('~1', '/').replaceAll('~0', '~')), value);
  }
}

function memberOf(value: unknown, part: string): unknown {
  if (typeof value !== 'object' || value === null) return null;
  if (Array.isArray(value) ? !/^(0|[1-9]\d*)$/.test(part) : !Object.hasOwn(value, part)) return null;
  return (value as Readonly<Record<string, unknown>>)[part] ?? null;
}
