/**
 * Finds letters by a filter, newest first, in bounded time. Where few letters have the tag, error or input that is asked for, they
 * are looked at one by one; else Postgres is asked for the whole page, by whatever index it likes best. Where that takes too
 * long, ids are walked in chunks, and the page says that it is partial and where to go on.
 */
import { encodeParameter, run } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { inTimeLimit, isTimeLimitReached } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { countThatFit, idsByFacts, idsOfThese, idsThatFit, idsToLookAt, readSummaries } from './finder.sql.ts';
import { conditionOf, isOpenOnly } from './letter-filter.ts';
import type { LetterFilter, LetterTerm } from './letter-filter.ts';
import { summaryOf } from './letter-view.ts';
import type { LetterSummary } from './letter-view.ts';

/** Which part of the letters that fit is wanted. */
export interface LetterPageRequest {
  readonly filter: LetterFilter;
  /** Only ids below this one; absent for the first page. */
  readonly below?: string | undefined;
  /** Letters at most, from 1. */
  readonly limit: number;
  /** True where the page before was partial: what took too long then is not tried again. */
  readonly isWalking?: boolean | undefined;
}

/** A part of what fits. */
export interface LetterPage<T> {
  readonly items: readonly T[];
  /** Where the next page begins; `undefined` at the end. */
  readonly next: string | undefined;
  /** True where the time was over before the page was full: there may be more further down. */
  readonly isPartial: boolean;
}

/** Milliseconds for finding that few letters have a tag: what takes longer is common. */
const SEEK_MS = 100;
/** Milliseconds for the whole page at once; then as many for the walk. Together they are what anybody waits. */
const DIRECT_MS = 900;
const WALK_MS = 900;
/** Letters that are few. */
const FEW = 5_000;
/** Letters that one statement of the walk looks at, at first. */
const CHUNK = 4_000;
const LEAST_MS = 50;
const LEAST_CHUNK = 50;
const BEYOND_ALL_IDS = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** A page of letters as lists show them. Throws as `Queryable.query`. */
export async function findLetters(db: Transactional, request: LetterPageRequest): Promise<LetterPage<LetterSummary>> {
  const { items, next, isPartial } = await findLetterIds(db, request);
  const rows = items.length === 0 ? [] : await run(db, readSummaries, items);
  return { items: rows.map((row) => summaryOf(row)), next, isPartial };
}

/** The same, ids alone. */
export async function findLetterIds(db: Transactional, request: LetterPageRequest): Promise<LetterPage<string>> {
  const { filter, limit, below = BEYOND_ALL_IDS, isWalking = false } = request;
  if (isWalking) return await walk(db, { filter, limit, below });
  try {
    const few = await seek(db, filter);
    if (few !== undefined) {
      const fitting = await fittingOf(db, filter, few);
      return pageOf(
        fitting.filter((id) => id < below),
        limit,
      );
    }
    // One more than is shown says whether there are more.
    const found = await idsBy(db, DIRECT_MS, (values, add) =>
      idsThatFit(conditionOf(filter, values), add(below), add(limit + 1)),
    );
    return pageOf(found, limit);
  } catch (thrown) {
    if (!isTimeLimitReached(thrown)) throw thrown;
    return await walk(db, { filter, limit, below });
  }
}

function pageOf(ids: readonly string[], limit: number): LetterPage<string> {
  return { items: ids.slice(0, limit), next: ids.length > limit ? ids[limit - 1] : undefined, isPartial: false };
}

/** How many letters fit; `isPartial` where there may be more than were counted in time. */
export async function countLetters(
  db: Transactional,
  filter: LetterFilter,
): Promise<{ readonly count: number; readonly isPartial: boolean }> {
  try {
    const few = await seek(db, filter);
    if (few !== undefined) return { count: (await fittingOf(db, filter, few)).length, isPartial: false };
    const values: unknown[] = [];
    const text = countThatFit(conditionOf(filter, values));
    const { rows } = await inTimeLimit(db, DIRECT_MS, async (tx) => await tx.query({ text, values }));
    return { count: Number((rows as [{ readonly count: string }])[0].count), isPartial: false };
  } catch (thrown) {
    if (!isTimeLimitReached(thrown)) throw thrown;
    const { items, isPartial } = await walk(db, { filter, limit: Number.POSITIVE_INFINITY, below: BEYOND_ALL_IDS });
    return { count: items.length, isPartial };
  }
}

/** The letters that have what the filter asks of their facts, where that can be told by an index and they are few. */
async function seek(db: Transactional, filter: LetterFilter): Promise<readonly string[] | undefined> {
  const terms = filter.terms.filter((term) => isByFacts(term));
  if (terms.length === 0) return undefined;
  try {
    const ids = await idsBy(db, SEEK_MS, (values, add) =>
      idsByFacts(conditionOf({ terms: [...terms, EVERY_STATE] }, values), add(FEW)),
    );
    return ids.length < FEW ? ids : undefined;
  } catch (thrown) {
    if (!isTimeLimitReached(thrown)) throw thrown;
    return undefined;
  }
}

async function fittingOf(db: Transactional, filter: LetterFilter, ids: readonly string[]): Promise<readonly string[]> {
  return await idsBy(db, DIRECT_MS, (values, add) => idsOfThese(conditionOf(filter, values), add(ids)));
}

/** Trigrams find a text from three letters on, the other two what is whole. */
function isByFacts({ key, isNegated, values }: LetterTerm): boolean {
  if (isNegated) return false;
  if (key === 'input') return values.every(({ kind }) => kind === 'json');
  return values.every(
    (value) =>
      value.kind === 'text' &&
      ((key === 'tag' && value.pieces.length === 1) ||
        (key === 'error' && value.pieces.some((piece) => /\w{3}/.test(piece)))),
  );
}

const EVERY_STATE: LetterTerm = {
  key: 'state',
  path: [],
  isNegated: false,
  values: [{ kind: 'text', pieces: ['all'] }],
};

/** Looks at one letter after the other, from `below` down, until there are enough or the time is over. */
async function walk(
  db: Transactional,
  { filter, limit, below }: { readonly filter: LetterFilter; readonly limit: number; readonly below: string },
): Promise<LetterPage<string>> {
  const { clock } = db.deps;
  const until = clock.monotonicMs() + WALK_MS;
  const walked = { terms: filter.terms.filter(({ key, isNegated }) => TIMES.has(key) && !isNegated) };
  const items: string[] = [];
  let last = below;
  let chunk = CHUNK;
  for (;;) {
    const leftMs = Math.max(LEAST_MS, Math.ceil(until - clock.monotonicMs()));
    try {
      const ids = await idsBy(db, leftMs, (values, add) =>
        idsToLookAt(walkedCondition(filter, walked, values), add(last), add(chunk)),
      );
      const fitting = await idsBy(db, leftMs, (values, add) => idsOfThese(conditionOf(filter, values), add(ids)));
      items.push(...fitting);
      if (items.length > limit) return { items: items.slice(0, limit), next: items[limit - 1], isPartial: false };
      if (ids.length < chunk) return { items, next: undefined, isPartial: false };
      last = ids.at(-1) ?? last;
      if (clock.monotonicMs() >= until) return { items, next: last, isPartial: true };
    } catch (thrown) {
      if (!isTimeLimitReached(thrown)) throw thrown;
      if (clock.monotonicMs() >= until) {
        // Without a single step the next page would be this one again.
        if (last === below) throw thrown;
        return { items, next: last, isPartial: true };
      }
      chunk = Math.max(LEAST_CHUNK, Math.floor(chunk / 8));
    }
  }
}

/** What a walk by id can skip without looking: letters of other times. Of the states open alone has an index by id. */
const TIMES: ReadonlySet<string> = new Set(['age', 'died']);

function walkedCondition(filter: LetterFilter, times: LetterFilter, values: unknown[]): Sql {
  return conditionOf(isOpenOnly(filter) ? times : { terms: [...times.terms, EVERY_STATE] }, values);
}

type Build = (values: unknown[], add: (value: unknown) => Sql) => Sql;

async function idsBy(db: Transactional, withinMs: number, build: Build): Promise<readonly string[]> {
  const values: unknown[] = [];
  const text = build(values, (value) => {
    values.push(encodeParameter(value));
    return `$${values.length}` as Sql; // a number and nothing else
  });
  const { rows } = await inTimeLimit(db, withinMs, async (tx) => await tx.query({ text, values }));
  return (rows as readonly { readonly id: string }[]).map(({ id }) => id);
}
