/** Finds tasks and lists them, newest first, with a bound on what one request may look at. */
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import {
  filterTasks,
  pageIds,
  pageIdsByBusinessKey,
  pageIdsByExternalId,
  pageIdsOfClaims,
  pageIdsOfDeadLetters,
  pageIdsOfDue,
  readAttempts,
  readTask,
  someIdsByTag,
} from './tasks.sql.ts';

/** A row of a list. */
export type TaskRow = RowOf<typeof filterTasks.columns>;
/** A whole task. */
export type WholeTaskRow = RowOf<typeof readTask.columns>;
/** An attempt that left a row. */
export type AttemptRow = RowOf<typeof readAttempts.columns>;

/** What tasks are asked for; what is absent fits everything. */
export interface TaskFilter {
  readonly states?: readonly TaskState[] | undefined;
  readonly type?: string | undefined;
  readonly queue?: string | undefined;
  readonly tag?: string | undefined;
  readonly businessKey?: string | undefined;
  readonly externalId?: string | undefined;
  /** Inclusive. */
  readonly acceptedAfter?: Date | undefined;
  /** Exclusive. */
  readonly acceptedBefore?: Date | undefined;
}

/** Where a page begins and how long it is. */
export interface PageRequest {
  /** Tasks at most, 1 to 200. */
  readonly limit: number;
  /** Only ids below this one; `undefined` for the first page. */
  readonly below: string | undefined;
}

/** A page of tasks. */
export interface TaskPage {
  readonly rows: readonly TaskRow[];
  /** Where the next page begins; `undefined` at the end. */
  readonly next: string | undefined;
  /** True where the bound was met before the page was full: there may be more further down. */
  readonly isPartial: boolean;
}

/** Attempts that are shown of one task. */
const MOST_ATTEMPTS = 200;
/** Ids that one request looks at. 20 000 look-ups in a primary key take some 40 ms. */
const MOST_LOOKED_AT = 20_000;
const CHUNK = 2_000;
/** Ids are made by the producer's clock, acceptance by that of Postgres: a range of time is widened by this. */
const CLOCK_SLACK_MS = 300_000;
const BEYOND_ALL_IDS = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
const BEFORE_ALL_IDS = '00000000-0000-0000-0000-000000000000';

/** A whole task with its attempts, oldest first; `undefined` where there is none. */
export async function findTask(
  db: Queryable,
  id: string,
): Promise<{ readonly task: WholeTaskRow; readonly attempts: readonly AttemptRow[] } | undefined> {
  const [task] = await run(db, readTask, id);
  if (task === undefined) return undefined;
  // A task at its first attempt that did not fail has none.
  const attempts = task.attempt === 0 ? [] : await run(db, readAttempts, id, MOST_ATTEMPTS);
  return { task, attempts: attempts.toReversed() };
}

/**
 * One page. Ids come from whatever index fits the filter best, then the tasks behind them are looked at, so that no index
 * need name the state. Throws as `Queryable.query`.
 */
export async function listTasks(db: Queryable, filter: TaskFilter, { limit, below }: PageRequest): Promise<TaskPage> {
  const { from, before } = idRangeOf(filter);
  const source = await chooseSource(db, filter, { below: below ?? before, from });
  const rows: TaskRow[] = [];
  let lookedAt = 0;
  let last = below !== undefined && below < before ? below : before;
  while (lookedAt < MOST_LOOKED_AT) {
    // The first look is for a page that every task fits; later ones are for filters that few fit.
    const wanted = Math.min(lookedAt === 0 ? limit + 1 : CHUNK, MOST_LOOKED_AT - lookedAt);
    const ids = await source(last, wanted);
    rows.push(...(await filterIds(db, ids, filter)));
    if (rows.length > limit) return { rows: rows.slice(0, limit), next: rows[limit - 1]?.id, isPartial: false };
    if (ids.length < wanted) return { rows, next: undefined, isPartial: false };
    lookedAt += ids.length;
    last = ids.at(-1) ?? last;
  }
  return { rows, next: last, isPartial: true };
}

/** Gives up to `count` ids below `below`, newest first; fewer mean that there are no more. */
type IdSource = (below: string, count: number) => Promise<readonly string[]>;

interface IdRange {
  readonly below: string;
  readonly from: string;
}

async function chooseSource(db: Queryable, filter: TaskFilter, { below, from }: IdRange): Promise<IdSource> {
  const { externalId, businessKey, states, tag } = filter;
  if (externalId !== undefined) {
    return async (under, count) => idsOf(await run(db, pageIdsByExternalId, under, from, count, externalId));
  }
  if (businessKey !== undefined) {
    return async (under, count) => idsOf(await run(db, pageIdsByBusinessKey, under, from, count, businessKey));
  }
  const beside = states?.map((state) => BESIDE.get(state));
  if (beside !== undefined && beside.length > 0 && !beside.includes(undefined)) {
    const tables = [...new Set(beside.filter((each) => each !== undefined))];
    return async (under, count) => {
      const lists = await Promise.all(tables.map(async (read) => idsOf(await read(db, under, from, count))));
      return newestFirst(lists.flat()).slice(0, count);
    };
  }
  if (tag !== undefined) {
    const tagged = idsOf(await run(db, someIdsByTag, below, from, MOST_LOOKED_AT, tag));
    if (tagged.length < MOST_LOOKED_AT) {
      const sorted = newestFirst(tagged);
      return async (under, count) => await Promise.resolve(sorted.filter((id) => id < under).slice(0, count));
    }
    // So common a tag is found by walking.
  }
  return async (under, count) => idsOf(await run(db, pageIds, under, from, count));
}

type ReadBeside = (
  db: Queryable,
  below: string,
  from: string,
  count: number,
) => Promise<readonly { readonly id: string | null }[]>;

const readDue: ReadBeside = async (db, ...page) => await run(db, pageIdsOfDue, ...page);

/** States whose tasks are all named by a table beside. */
const BESIDE: ReadonlyMap<TaskState, ReadBeside> = new Map<TaskState, ReadBeside>([
  ['running', async (db, ...page) => await run(db, pageIdsOfClaims, ...page)],
  ['scheduled', readDue],
  ['retrying', readDue],
  ['dead', async (db, ...page) => await run(db, pageIdsOfDeadLetters, ...page)],
]);

async function filterIds(db: Queryable, ids: readonly string[], filter: TaskFilter): Promise<readonly TaskRow[]> {
  if (ids.length === 0) return [];
  return await run(
    db,
    filterTasks,
    ids,
    filter.states ?? null,
    filter.type ?? null,
    filter.queue ?? null,
    filter.tag ?? null,
    filter.businessKey ?? null,
    filter.externalId ?? null,
    filter.acceptedAfter ?? null,
    filter.acceptedBefore ?? null,
  );
}

function idRangeOf({ acceptedAfter, acceptedBefore }: TaskFilter): { from: string; before: string } {
  const shifted = (at: Date, ms: number): string => idAtLeast(new Date(at.getTime() + ms));
  return {
    from: acceptedAfter === undefined ? BEFORE_ALL_IDS : shifted(acceptedAfter, -CLOCK_SLACK_MS),
    before: acceptedBefore === undefined ? BEYOND_ALL_IDS : shifted(acceptedBefore, CLOCK_SLACK_MS),
  };
}

function idsOf(rows: readonly { readonly id: string | null }[]): string[] {
  return rows.flatMap(({ id }) => (id === null ? [] : [id]));
}

/** Ids in canonical form sort as they do in Postgres: by their bytes. */
function newestFirst(ids: readonly string[]): string[] {
  return [...new Set(ids)].toSorted((a, b) => (a < b ? 1 : -1));
}
