/** Pages of results of a step: how large they are, and where the next one begins. */

/** Bytes of the results of a page together, in which the first result may have any size. */
export const PAGE_BYTES = 1_048_576;
/** Results of a page at most, where they are read for a handler. */
export const PAGE_RESULTS = 500;
/** Stands before the first step. */
export const FROM_START = -1;

/** After which step the next page begins; `undefined` where this one was the last. */
export function nextAfter(
  rows: readonly { readonly step: number | null; readonly looked: number | null }[],
): number | undefined {
  const last = rows.at(-1);
  return (last?.looked ?? 0) > rows.length ? (last?.step ?? undefined) : undefined;
}
