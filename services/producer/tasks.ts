/** Finds tasks and lists them, newest first, with a bound on what one request may look at. */
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { encodeParameter, run } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { stateOf } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import type { LookedAt } from './outlook.ts';
import { conditionOf, idRangeOf, isDeep, wholeTextsOf } from './task-filter.ts';
import type { TaskFilter } from './task-filter.ts';
import type { listedColumns, readWholeTasks } from './tasks.sql.ts';
import {
  countTagged,
  endOfWalk,
  pageIdsByBusinessKey,
  pageIdsByExternalId,
  pageIdsOfClaims,
  pageIdsOfDeadLetters,
  pageIdsOfDue,
  someIdsByTag,
  tasksOnTheWalk,
  tasksThatFit,
} from './tasks.sql.ts';

/** A row of a list. */
export type TaskRow = RowOf<typeof listedColumns>;
/** A whole task. */
export type WholeTaskRow = RowOf<typeof readWholeTasks.columns>;

/** Where a page begins and how long it is. */
export interface PageRequest {
  /** Tasks at most, 1 to 2 000. */
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

/** Tasks that one request looks at: some 20 ms where none of them fits. */
const MOST_LOOKED_AT = 20_000;
/** Tasks that one statement looks at. */
const CHUNK = 5_000;
/** How many times as many ids the next look takes, where those of an index fit less often than they were thought to. */
const LOOK_GROWTH = 4;
/** Ids that the index of tags is asked for: it gives them in no order, each with a look at its row. */
const MOST_TAGGED = 5_000;
/** Of so many of the newest tasks, a tag is on no more than this share, or its index is not asked. */
const PROBED = 1_000;
const COMMON_SHARE = 0.004;
/** The same, where inputs are looked into: a hundred of the largest take half a second. */
const DEEP_CHUNK = 100;
/** Milliseconds after which a page is partial, however few were looked at. */
const WITHIN_MS = 2_000;

/** The tasks with these ids, as a list shows them. Throws as `Queryable.query`. */
export async function readTasks(db: Queryable, ids: readonly string[]): Promise<readonly TaskRow[]> {
  return await filterIds(db, ids, { terms: [] });
}

/** What estimates look at of a task. */
export function lookAt(
  task: Pick<WholeTaskRow, 'state' | 'now' | 'run_at' | 'started_at' | 'progress_fraction' | 'progress_at'>,
): LookedAt {
  const { progress_fraction: fraction, progress_at: at } = task;
  return {
    state: stateOf(task.state),
    now: task.now ?? new Date(0), // Postgres always says it, and cannot say that it does
    runAt: task.run_at ?? undefined,
    startedAt: task.started_at ?? undefined,
    progress: fraction === null || at === null ? undefined : { fraction, at },
  };
}

/**
 * One page. Ids come from whatever index fits the filter best, then the tasks behind them are looked at, so that no index
 * need name the state. Throws as `Queryable.query`.
 */
export async function listTasks(
  db: Transactional,
  filter: TaskFilter,
  { limit, below }: PageRequest,
): Promise<TaskPage> {
  const { clock } = db.deps;
  const untilMs = clock.monotonicMs() + WITHIN_MS;
  const { from, before } = idRangeOf(filter, clock.now());
  const look = chooseLook(db, filter, from);
  const chunk = isDeep(filter) ? DEEP_CHUNK : CHUNK;
  const rows: TaskRow[] = [];
  let lookedAt = 0;
  let last = below !== undefined && below < before ? below : before;
  do {
    const most = Math.min(chunk, MOST_LOOKED_AT - lookedAt);
    const found = await look({ below: last, most, wanted: limit + 1 - rows.length });
    rows.push(...found.rows);
    if (rows.length > limit) return { rows: rows.slice(0, limit), next: rows[limit - 1]?.id, isPartial: false };
    if (found.end === undefined) return { rows, next: undefined, isPartial: false };
    lookedAt += found.count;
    last = found.end;
  } while (lookedAt < MOST_LOOKED_AT && clock.monotonicMs() < untilMs);
  return { rows, next: last, isPartial: true };
}

/** Looks at up to `most` tasks below an id, newest first, for `wanted` that fit. */
type Look = (asked: { readonly below: string; readonly most: number; readonly wanted: number }) => Promise<Found>;

interface Found {
  readonly rows: readonly TaskRow[];
  /** How many were looked at, at most. */
  readonly count: number;
  /** The last id that was looked at; `undefined` where there are no more. */
  readonly end: string | undefined;
}

/** Looks at up to `count` ids below `below`, newest first. */
type IdSource = (below: string, count: number) => Promise<FoundIds>;

interface FoundIds {
  /** Those that may fit, newest first. */
  readonly ids: readonly string[];
  /** The last that was looked at; `undefined` where there are no more. */
  readonly end: string | undefined;
}

function chooseLook(db: Queryable, filter: TaskFilter, from: string): Look {
  const source = chooseSource(db, filter, from);
  if (source !== undefined) return lookBehind(db, filter, source);
  const walk = walkAlong(db, filter, from);
  const [tag, ...otherTags] = wholeTextsOf(filter, 'tag') ?? [];
  return tag === undefined || otherTags.length > 0 ? walk : lookByTag(db, filter, { walk, tag, from });
}

/** The newest tasks may be enough; else, where few tasks have the tag, its index names them all. */
function lookByTag(
  db: Queryable,
  filter: TaskFilter,
  { walk, tag, from }: { readonly walk: Look; readonly tag: string; readonly from: string },
): Look {
  let looks = 0;
  let look = walk;
  return async (asked) => {
    looks += 1;
    if (looks === 2) {
      const tagged = await findTagged(db, tag);
      if (tagged !== undefined) look = lookBehind(db, filter, among(tagged.filter((id) => id >= from)));
    }
    return await look(asked);
  };
}

/** The ids of all tasks with a tag; `undefined` where they are many: the index has no order, so it would have to give them all. */
async function findTagged(db: Queryable, tag: string): Promise<readonly string[] | undefined> {
  const [newest] = await run(db, countTagged, tag, PROBED);
  if ((newest?.tagged ?? 0) > PROBED * COMMON_SHARE) return undefined;
  const tagged = idsOf(await run(db, someIdsByTag, tag, MOST_TAGGED));
  return tagged.length < MOST_TAGGED ? tagged : undefined;
}

/** Along the primary key, in one pass. */
function walkAlong(db: Queryable, filter: TaskFilter, from: string): Look {
  return async ({ below, most, wanted }) => {
    const values: unknown[] = [below, from, most, wanted].map((value) => encodeParameter(value));
    const text = tasksOnTheWalk(conditionOf(filter, values));
    const rows = (await db.query({ text, values })).rows as readonly TaskRow[];
    if (rows.length === wanted) return { rows, count: most, end: rows.at(-1)?.id };
    const [end] = await run(db, endOfWalk, below, from, most);
    return { rows, count: most, end: end?.id };
  };
}

/** At the tasks behind the ids of an index. The first look is for a page that every one of them fits; each further one is larger. */
function lookBehind(db: Queryable, filter: TaskFilter, source: IdSource): Look {
  let count = 0;
  return async ({ below, most, wanted }) => {
    count = Math.min(most, count === 0 ? wanted : count * LOOK_GROWTH);
    const { ids, end } = await source(below, count);
    return { rows: await filterIds(db, ids, filter), count, end };
  };
}

/** The index that names the fewest tasks; `undefined` where none names all that fit. */
function chooseSource(db: Queryable, filter: TaskFilter, from: string): IdSource | undefined {
  const ids = wholeTextsOf(filter, 'id');
  if (ids !== undefined) return among(ids.filter((id) => id >= from));
  const [externalId, ...otherExternalIds] = wholeTextsOf(filter, 'externalId') ?? [];
  if (externalId !== undefined && otherExternalIds.length === 0) {
    return async (under, count) => upTo(count, await run(db, pageIdsByExternalId, under, from, count, externalId));
  }
  const [businessKey, ...otherKeys] = wholeTextsOf(filter, 'key') ?? [];
  if (businessKey !== undefined && otherKeys.length === 0) {
    return async (under, count) => upTo(count, await run(db, pageIdsByBusinessKey, under, from, count, businessKey));
  }
  const tables = tablesBeside(filter);
  if (tables === undefined) return undefined;
  const types = wholeTextsOf(filter, 'type');
  return async (below, count) => {
    const found = await Promise.all(tables.map(async (read) => await read(db, { below, from, count, types })));
    // Where one table goes on, the others are looked at no further down than that one was.
    const end = newestFirst(found.flatMap((each) => each.end ?? []))[0];
    const ids = newestFirst(found.flatMap((each) => each.ids));
    return { ids: end === undefined ? ids : ids.filter((id) => id >= end), end };
  };
}

/** Ids that are known already. */
function among(ids: readonly string[]): IdSource {
  const sorted = newestFirst(ids);
  return async (under, count) => {
    const ids = sorted.filter((id) => id < under).slice(0, count);
    return await Promise.resolve({ ids, end: ids.length < count ? undefined : ids.at(-1) });
  };
}

/** The tables that name every task in one of the states that the filter asks for; `undefined` where some are in none. */
function tablesBeside({ terms }: TaskFilter): readonly ReadBeside[] | undefined {
  for (const term of terms) {
    const states = wholeTextsOf({ terms: [term] }, 'state');
    const tables = states?.map((state) => BESIDE.get(state as TaskState));
    if (tables?.every((read) => read !== undefined)) return [...new Set(tables)];
  }
  return undefined;
}

type ReadBeside = (db: Queryable, page: PageBeside) => Promise<FoundIds>;

interface PageBeside {
  readonly below: string;
  readonly from: string;
  readonly count: number;
  /** The types that are asked for, as far as the table knows them; `undefined`: any. */
  readonly types: readonly string[] | undefined;
}

const readDue: ReadBeside = async (db, { below, from, count }) =>
  upTo(count, await run(db, pageIdsOfDue, below, from, count));

const readClaims: ReadBeside = async (db, { below, from, count }) =>
  upTo(count, await run(db, pageIdsOfClaims, below, from, count));

const readDeadLetters: ReadBeside = async (db, { below, from, count, types }) => {
  const rows = await run(db, pageIdsOfDeadLetters, below, from, count, types ?? null);
  const [first] = rows;
  const isEnd = first === undefined || (first.looked_at ?? 0) < count;
  return { ids: idsOf(rows.filter(({ fits }) => fits === true)), end: isEnd ? undefined : idsOf(rows).at(-1) };
};

/** States whose tasks are all named by a table beside. */
const BESIDE: ReadonlyMap<TaskState, ReadBeside> = new Map<TaskState, ReadBeside>([
  ['running', readClaims],
  ['scheduled', readDue],
  ['retrying', readDue],
  ['dead', readDeadLetters],
]);

/** What an index gave that was asked for `count`: fewer mean that there are no more. */
function upTo(count: number, rows: readonly { readonly id: string | null }[]): FoundIds {
  const ids = idsOf(rows);
  return { ids, end: ids.length < count ? undefined : ids.at(-1) };
}

async function filterIds(db: Queryable, ids: readonly string[], filter: TaskFilter): Promise<readonly TaskRow[]> {
  if (ids.length === 0) return [];
  const values: unknown[] = [encodeParameter(ids)];
  const text: Sql = tasksThatFit(conditionOf(filter, values));
  return (await db.query({ text, values })).rows as readonly TaskRow[];
}

function idsOf(rows: readonly { readonly id: string | null }[]): string[] {
  return rows.flatMap(({ id }) => (id === null ? [] : [id]));
}

/** Ids in canonical form sort as they do in Postgres: by their bytes. */
function newestFirst(ids: readonly string[]): string[] {
  return [...new Set(ids)].toSorted((a, b) => (a < b ? 1 : -1));
}
