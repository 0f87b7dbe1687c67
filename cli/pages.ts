/** Lists that the APIs give in pages. */
import type { Command } from 'commander';
import type { ApiAnswer, ApiClient, Query } from './api.ts';
import { escapeJson, escapeText } from './escape.ts';
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

/** What is asked for: one page, or with `isAll` every page from there on. */
export interface Asked {
  readonly query: Query;
  readonly isAll: boolean;
}

/** Fetches pages, each as it is asked for. */
export async function* fetchPages(
  api: ApiClient,
  path: string,
  { query, isAll }: Asked,
): AsyncGenerator<Listing, void, undefined> {
  let cursor = query['cursor'];
  for (;;) {
    const answer: ApiAnswer = await api.get(path, { ...query, cursor });
    const inner =
      rawMember(answer, 'items')
        ?.trim()
        .replace(/^\[|\]$/g, '')
        .trim() ?? '';
    const next = textAt(answer.value, 'nextCursor') ?? textAt(answer.value, 'next');
    // A page that leads to itself would never end.
    const isLast = !isAll || next === undefined || next === cursor;
    yield { items: viewsAt(answer.value, 'items'), json: `[${inner}]`, next: next === cursor ? undefined : next };
    if (isLast) return;
    cursor = next;
  }
}

/** Fetches all that is asked for. */
export async function fetchListing(api: ApiClient, path: string, asked: Asked): Promise<Listing> {
  const items: View[] = [];
  const texts: string[] = [];
  let next: string | undefined;
  for await (const page of fetchPages(api, path, asked)) {
    items.push(...page.items);
    if (page.items.length > 0) texts.push(page.json.slice(1, -1));
    next = page.next;
  }
  return { items, json: `[${texts.join(',')}]`, next };
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
  tellHowToGoOn(context, listing.next);
}

/**
 * Writes pages as they come, so that a list may be larger than what fits into memory: the same document as `printListing`, or a table whose `heading`
 * stands once.
 */
export async function printPages(
  context: CommandContext,
  pages: AsyncIterable<Listing>,
  render: (items: readonly View[]) => string,
): Promise<void> {
  const write = (part: string): void => {
    if (context.isJson) context.io.stdout.write(escapeJson(part));
  };
  let next: string | undefined;
  let before = '{"items":[';
  for await (const page of pages) {
    next = page.next;
    if (page.items.length === 0) continue;
    write(before + page.json.slice(1, -1));
    const table = render(page.items);
    context.print(before === ',' ? table.slice(table.indexOf('\n') + 1) : table);
    before = ',';
  }
  write(`${before === ',' ? '' : before}]${next === undefined ? '' : `,"nextCursor":${JSON.stringify(next)}`}}\n`);
  if (before !== ',') context.remark('Nothing found.\n');
  tellHowToGoOn(context, next);
}

function tellHowToGoOn(context: CommandContext, next: string | undefined): void {
  if (next !== undefined) context.remark(`More: add --cursor ${escapeText(next)}, or --all for the whole list.\n`);
}
