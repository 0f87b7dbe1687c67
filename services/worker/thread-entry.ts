/** Where the code of a thread of this worker lies. */

/**
 * The URL of `<name>.js` beside this file. Threads start from what the build made also where this file itself runs as
 * TypeScript, in tests: Node 20 starts no thread from a `.ts` file.
 */
export function threadEntry(name: string): URL {
  return import.meta.url.endsWith('.ts')
    ? new URL(`../../dist/services/worker/${name}.js`, import.meta.url)
    : new URL(`./${name}.js`, import.meta.url);
}
