/** Lists that the APIs give in pages. */
import type { Command } from 'commander';
import type { ApiAnswer, ApiClient, Query } from './api.ts';
import { escapeText } from './escape.ts';
import type { CommandContext } from './context.ts';
import { integerIn } from './parse.ts';
import { rawMember, textAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

/** What every command that lists takes. */
export interface PagingOptions {
  readonly limit?: number;
  readonly cursor?: string;
  readonly all?: true;
}

/** Adds the options of pages; `what`: what is listed, for the help. */
export function addPaging(command: Command, what: string): Command {
  return command
    .option('--limit <count>', `${what} in a page, 1 to 200 (default: 50)`, integerIn(1, 200))
    .option('--cursor <cursor>', 'go on from where the last page ended')
    .option('--all', 'every page');
}

/** What was asked for. */
export interface Listing {
  readonly items: readonly View[];
  /** JSON text of the items, as they came. */
  readonly json: string;
  /** Cursor of the next page; `undefined` at the end. */
  readonly next: string | undefined;
}

/** Fetches one page, or with `isAll` every page from there on. */
export async function fetchListing(
  api: ApiClient,
  path: string,
  { query, isAll }: { readonly query: Query; readonly isAll: boolean },
): Promise<Listing> {
  const items: View[] = [];
  const texts: string[] = [];
  let cursor = query['cursor'];
  for (;;) {
    const answer: ApiAnswer = await api.get(path, { ...query, cursor });
    items.push(...viewsAt(answer.value, 'items'));
    const inner =
      rawMember(answer, 'items')
        ?.trim()
        .replace(/^\[|\]$/g, '')
        .trim() ?? '';
    if (inner !== '') texts.push(inner);
    const next = textAt(answer.value, 'nextCursor') ?? textAt(answer.value, 'next');
    // A page that leads to itself would never end.
    if (!isAll || next === undefined || next === cursor) {
      return { items, json: `[${texts.join(',')}]`, next: next === cursor ? undefined : next };
    }
    cursor = next;
  }
}

/** Writes a listing: as JSON `{items, nextCursor?}`, or as text by `render`, with how to go on. */
export function printListing(
  context: CommandContext,
  listing: Listing,
  render: (items: readonly View[]) => string,
): void {
  const next = listing.next === undefined ? '' : `,"nextCursor":${JSON.stringify(listing.next)}`;
  context.printJson(Buffer.from(`{"items":${listing.json}${next}}`));
  if (listing.items.length === 0)
    context.remark(listing.next === undefined ? 'Nothing found.\n' : 'Nothing found so far.\n');
  else context.print(render(listing.items));
  if (listing.next !== undefined)
    context.remark(`More: add --cursor ${escapeText(listing.next)}, or --all for the whole list.\n`);
}
