/** How long a text is, the same at every door. */

/** Unicode code points: what JSON Schema (2020-12 validation, 6.3.1), zod and Postgres count as characters. */
export function countCharacters(text: string): number {
  let count = 0;
  for (const _character of text) count += 1;
  return count;
}
