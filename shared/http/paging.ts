/** Pages of a list: a limit, and an opaque cursor that says after which row the next page begins. */
import { z } from 'zod';
import { parseJson } from '../config/format.ts';
import { WarrenError } from '../errors/warren-error.ts';

/** Rows of a page at most, and without a limit. */
export const PAGE_LIMITS = { most: 200, default: 50 } as const;
const LONGEST_CURSOR = 1_024;

/** Query parameters of every list. */
export const pageQuery = z.strictObject({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(PAGE_LIMITS.most)
    .default(PAGE_LIMITS.default)
    .describe(`Rows of the page, 1 to ${PAGE_LIMITS.most}.`),
  cursor: z.string().max(LONGEST_CURSOR).optional().describe('From `nextCursor` of the page before.'),
});

/** Makes the cursor of a key: what the list is ordered by, of the last row of the page. */
export function encodeCursor(key: unknown): string {
  return Buffer.from(JSON.stringify(key)).toString('base64url');
}

/** Reads a cursor; `undefined` for none. Throws `cursor-invalid` for what `encodeCursor` did not make for such a key. */
export function decodeCursor<T>(cursor: string | undefined, key: z.ZodType<T>): T | undefined {
  if (cursor === undefined) return undefined;
  const isClean = cursor.length <= LONGEST_CURSOR && /^[A-Za-z0-9_-]+$/.test(cursor);
  const read = key.safeParse(isClean ? parseJson(Buffer.from(cursor, 'base64url').toString('utf8')) : undefined);
  if (!read.success) throw new WarrenError('cursor-invalid', { field: 'cursor' });
  return read.data;
}

/**
 * One page out of `limit + 1` rows that were asked for: the row too many is not shown, it says that there are more.
 */
export function pageOf<T>(
  rows: readonly T[],
  limit: number,
  keyOf: (row: T) => unknown,
): { readonly items: readonly T[]; readonly nextCursor: string | undefined } {
  const items = rows.slice(0, limit);
  const last = items.at(-1);
  return { items, nextCursor: rows.length > limit && last !== undefined ? encodeCursor(keyOf(last)) : undefined };
}
