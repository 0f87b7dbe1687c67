/**
 * The ledger's audit: walks the tasks hour by hour, compares them with what was counted, and gives the row that has to stand for
 * it to each task that has lost it. Replicas each walk; what they find is the same.
 */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { foldEntries, nextHour, recordAudit, sumDifferences, walkHour } from './ledger-audit.sql.ts';
import { differenceOf, hourOf, idBefore, instantOf, NO_COUNTS, NO_TASKS, standingOf } from './ledger-books.ts';
import type { Counts, LedgerEntry, Standing } from './ledger-books.ts';
import { giveClaim, giveDeadLetter, giveDue, giveInvitation } from './ledger-repair.sql.ts';

/** What the audit needs. */
export interface LedgerAuditDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<Metrics, 'ledgerDifference' | 'strandedRows'>;
}

/** How the audit runs. */
export interface LedgerAuditOptions {
  /** Milliseconds between rounds; the last two hours are compared in each. */
  readonly intervalMs: number;
  /** Milliseconds for which nothing happened to a task before it can be stranded. */
  readonly strandedAfterMs: number;
  /** Tasks that one statement looks at. Default 5 000. */
  readonly rowsPerStep?: number;
}

/** Statements of each of the two walks at a time: at 5 000 tasks some 10 to 25 ms each. */
const STEPS_PER_ROUND = 2;
const ROWS_PER_STEP = 5_000;
/** A large hour is walked through with pauses so many times as long as its statements: they take 2 % of a core at most. */
const PAUSE_FACTOR = 50;
const ENTRIES_PER_FOLD = 1_000;
const BEFORE_ALL_HOURS = -1;

/** A walk through the tasks of one hour; a large one takes many rounds. */
interface Walk {
  readonly hour: number;
  after: string;
  /** Counts when the walk began. */
  before: Books | undefined;
  readonly found: Map<string, Standing>;
}

type Books = ReadonlyMap<string, Counts>;
type WalkRow = RowOf<typeof walkHour.columns>;

/** Makes the audit. */
export function createLedgerAudit(deps: LedgerAuditDeps, options: LedgerAuditOptions): Loop {
  const { db, clock, log, metrics } = deps;
  const limit = options.rowsPerStep ?? ROWS_PER_STEP;
  const reported = new Map<string, number>(); // differences that were logged, by hour and type

  /** One statement of a walk. True at the end of its hour. */
  const step = async (walk: Walk): Promise<boolean> => {
    const [row] = await run(
      db,
      walkHour,
      walk.hour,
      walk.after,
      idBefore(walk.hour + 1),
      options.strandedAfterMs,
      limit,
    );
    if (row === undefined) return true;
    await repair(deps, row);
    // From here to the next wait all at once: whatever fails later, these rows are not counted twice.
    const books = booksOf(row.entries as readonly EntryCount[]);
    walk.before ??= books;
    walk.after = row.last_id ?? walk.after;
    addFound(walk.found, row.found as readonly StateCount[]);
    if (row.rows_seen === limit) return false;
    await conclude(walk, walk.before, books);
    return true;
  };

  const conclude = async ({ hour, found }: Walk, before: Books, after: Books): Promise<void> => {
    const types = [...new Set([...before.keys(), ...after.keys(), ...found.keys()])].toSorted();
    const lines = types.map((type) => {
      const [counted, standing] = [after.get(type) ?? NO_COUNTS, found.get(type) ?? NO_TASKS];
      const difference = differenceOf(before.get(type) ?? NO_COUNTS, counted, standing);
      const key = `${hour}/${type}`;
      if (difference !== (reported.get(key) ?? 0)) {
        const figures = { taskType: type, hour: instantOf(hour).toISOString(), difference };
        if (difference > 0) log.warn('ledger differs', { ...figures, counted: standingOf(counted), found: standing });
        else log.info('ledger balances again', figures);
      }
      if (difference > 0) reported.set(key, difference);
      else reported.delete(key);
      return { ...standing, difference };
    });
    const column = (name: keyof (typeof lines)[number]): number[] => lines.map((line) => line[name]);
    await run(
      db,
      recordAudit,
      hour,
      types,
      column('succeeded'),
      column('dead'),
      column('cancelled'),
      column('expired'),
      column('inProgress'),
      column('difference'),
    );
  };

  const recent = createWalker(async (last) => {
    const hour = hourOf(clock.now());
    return await Promise.resolve(last === hour ? hour - 1 : hour);
  }, step);
  const all = createWalker(async (last) => {
    const [next] = await run(db, nextHour, last ?? BEFORE_ALL_HOURS, idBefore((last ?? BEFORE_ALL_HOURS) + 1));
    return next?.hour ?? undefined;
  }, step);

  /** Walks through the last two hours, for one interval at most. False where more of them is left. */
  const walkRecent = async (signal: AbortSignal): Promise<boolean> => {
    const untilMs = clock.monotonicMs() + options.intervalMs;
    for (;;) {
      const beganMs = clock.monotonicMs();
      if (await recent(STEPS_PER_ROUND)) return true;
      const nowMs = clock.monotonicMs();
      if (nowMs >= untilMs || signal.aborted) return false;
      await clock.sleep(Math.min((nowMs - beganMs) * PAUSE_FACTOR, untilMs - nowMs), signal);
    }
  };

  const round = async (signal: AbortSignal): Promise<boolean> => {
    const isThrough = await walkRecent(signal);
    await all(STEPS_PER_ROUND);
    await run(db, foldEntries, hourOf(clock.now()) - 1, ENTRIES_PER_FOLD);
    const [sum] = await run(db, sumDifferences);
    metrics.ledgerDifference.set(sum?.difference ?? 0);
    return !isThrough;
  };
  // Shown as 0 from the start: an increase from nothing is none to Prometheus.
  for (const kind of ['due', 'invitation', 'claim', 'dead_letter'] as const) metrics.strandedRows.add(0, kind);
  return new Loop({ ...deps, round }, { name: 'ledger audit', intervalMs: options.intervalMs });
}

/**
 * Goes through hours one after the other, `steps` statements a call, and on where the last call ended. `next` gives the hour
 * after one that is done; after `undefined` it begins anew. True where no hour is left half done.
 */
function createWalker(
  next: (last: number | undefined) => Promise<number | undefined>,
  step: (walk: Walk) => Promise<boolean>,
): (steps: number) => Promise<boolean> {
  let last: number | undefined;
  let walk: Walk | undefined;
  return async (steps) => {
    for (let left = steps; left > 0; left -= 1) {
      if (walk === undefined) {
        const hour = await next(last);
        last = hour;
        if (hour === undefined) continue;
        walk = { hour, after: idBefore(hour), before: undefined, found: new Map() };
      }
      if (await step(walk)) walk = undefined;
    }
    return walk === undefined;
  };
}

/** Gives what nothing stands for the row that it lost. Harmless where somebody else was faster. */
async function repair({ db, log, metrics }: LedgerAuditDeps, row: WalkRow): Promise<void> {
  const kinds = [
    ['due', giveDue, row.not_due],
    ['invitation', giveInvitation, row.not_invited],
    ['claim', giveClaim, row.not_claimed],
    ['dead_letter', giveDeadLetter, row.without_letter],
  ] as const;
  for (const [kind, give, ids] of kinds) {
    if (ids.length === 0) continue;
    const given = await retryConflicts(db, async () => await run(db, give, ids));
    if (given.length === 0) continue;
    metrics.strandedRows.add(given.length, kind);
    log.warn('stranded tasks found', { missing: kind, count: given.length, taskId: given[0]?.task_id });
  }
}

interface EntryCount {
  readonly type: string;
  readonly entry: LedgerEntry;
  readonly tasks: number;
}

interface StateCount {
  readonly type: string;
  readonly state: string;
  readonly tasks: number;
}

function booksOf(entries: readonly EntryCount[]): Books {
  const books = new Map<string, Counts>();
  for (const { type, entry, tasks } of entries) {
    books.set(type, { ...(books.get(type) ?? NO_COUNTS), [entry]: tasks });
  }
  return books;
}

function addFound(found: Map<string, Standing>, counted: readonly StateCount[]): void {
  for (const { type, state, tasks } of counted) {
    const before = found.get(type) ?? NO_TASKS;
    const key = state in NO_TASKS ? (state as keyof Standing) : 'inProgress';
    found.set(type, { ...before, [key]: before[key] + tasks });
  }
}
