/**
 * Makes partitions of tasks, and retires them. Each function is one short transaction, or a few; a crash between any two leaves
 * what the next call goes on from. None waits longer than 100 ms for a lock that others stand behind.
 */
import { classifyFailure } from '../../shared/postgres/failure.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import { forgetTasks } from './forget-tasks.ts';
import type { Partition, Range, Retirement } from './retention-plan.ts';
import { partitionName } from './retention-plan.ts';
import type { RetentionRules } from './retention-rules.ts';
import {
  abandonRetirement,
  addPartition,
  advanceRetirement,
  beginRetirement,
  dropRetired,
  findCrowd,
  finishRetirement,
  guardDefault,
  holdPartitions,
  judgeTasks,
  keepTasks,
  leaveTasks,
  lockRetirement,
  quietPartition,
  readPartitions,
  readStanding,
  removeTasks,
  tryRetentionLock,
  unguardDefault,
} from './retention.sql.ts';

/** Tasks that one transaction judges, moves or removes at most. */
export const TASKS_PER_STEP = 500;
/** A default partition beyond this is not read under a lock: about 30 ms from memory. */
const SMALL_BYTES = 32 * 1_024 * 1_024;
/** Milliseconds that reading a large default partition, without any lock that others wait for, may take. */
const VALIDATE_WITHIN_MS = 3_600_000;

/** What is known when a round begins. */
export type Standing = RowOf<typeof readStanding.columns>;

/** Reads partitions and what is under way. */
export async function readState(
  db: Queryable,
): Promise<{ readonly partitions: readonly Partition[]; readonly standing: Standing; readonly nowMs: number }> {
  const partitions = await readBounds(db);
  const [standing] = (await run(db, readStanding)) as [Standing];
  return { partitions, standing, nowMs: standing.now?.getTime() ?? 0 };
}

async function readBounds(db: Queryable): Promise<readonly Partition[]> {
  return (await run(db, readPartitions)).map((row) => ({
    name: row.name ?? '',
    lowerMs: row.lower_at?.getTime() ?? 0,
    upperMs: row.upper_at?.getTime() ?? 0,
    rows: row.rows ?? 0,
    bytes: row.bytes ?? 0,
    isHeld: row.is_held ?? false,
  }));
}

/** Runs one step alone among all replicas. `undefined` where another is at it. */
export async function alone<T>(db: Database, work: (tx: Queryable) => Promise<T>): Promise<T | undefined> {
  return await inTransaction(db, async (tx) => {
    const [lock] = await run(tx, tryRetentionLock);
    return lock?.is_ours === true ? await work(tx) : undefined;
  });
}

/**
 * Makes a partition. Where many tasks of its range are in the default partition, since a clock ran ahead, it begins behind them.
 * False where nothing of the range is left, or another replica is at it.
 */
export async function makePartition(db: Database, { lowerMs, upperMs }: Range, defaultBytes: number): Promise<boolean> {
  const isLarge = defaultBytes > SMALL_BYTES;
  // Those few that are there move along; not past a check that says there are none.
  const mayMove = isLarge ? 0 : TASKS_PER_STEP;
  const upper = idAt(upperMs);
  const [crowd] = await run(db, findCrowd, idAt(lowerMs), upper, mayMove);
  const newest = crowd?.newest_at?.getTime();
  const beginMs = newest === undefined ? lowerMs : newest + 1;
  if (beginMs >= upperMs) return false;
  const lower = idAt(beginMs);
  if (isLarge && !(await guard(db, lower, upper))) return false;
  const isMade = await alone(db, async (tx) => {
    // Another replica may have been faster.
    const isTaken = (await readBounds(tx)).some((each) => each.lowerMs < upperMs && beginMs < each.upperMs);
    if (!isTaken) await run(tx, addPartition, partitionName(beginMs), lower, upper);
    return !isTaken;
  });
  return isMade === true;
}

/** Makes Postgres know that a large default partition has nothing of a range. False where another replica is at it. */
async function guard(db: Database, lower: string, upper: string): Promise<boolean> {
  if ((await alone(db, async (tx) => await run(tx, guardDefault, lower, upper))) === undefined) return false;
  const validated = await alone(db, async (tx) => {
    await tx.query({ text: 'set local statement_timeout = 0' });
    const text = 'alter table tasks_default validate constraint tasks_default_guard';
    return await tx.query({ text, withinMs: VALIDATE_WITHIN_MS });
  });
  return validated !== undefined;
}

/** Takes back what a crash has left of a guard. */
export async function dropGuard(db: Database): Promise<void> {
  await alone(db, async (tx) => await run(tx, unguardDefault));
}

/** Begins to retire partitions. False where another replica is at it. */
export async function beginToRetire(db: Database, { sources, target, lowerMs, upperMs }: Retirement): Promise<boolean> {
  for (const name of sources) {
    if ((await alone(db, async (tx) => await run(tx, quietPartition, name))) === undefined) return false;
  }
  const begun = await alone(db, async (tx) => {
    const there = new Set((await readBounds(tx)).map(({ name }) => name));
    if ((await run(tx, lockRetirement)).length > 0 || sources.some((name) => !there.has(name))) return [];
    return await run(tx, beginRetirement, target, sources, idAt(lowerMs), idAt(upperMs));
  });
  return begun !== undefined && begun.length > 0;
}

/** How far a step of a retirement came. */
export type RetirementStep =
  | { readonly kind: 'more' | 'walked' | 'none' }
  | { readonly kind: 'held' | 'broken'; readonly sources: readonly string[]; readonly kept: number };

/**
 * Judges the next 500 tasks of the partitions that are being retired: who stays is copied to where it will be, what stands
 * beside the others goes. Beyond `mostKept` the partitions are held for `holdMs`. `undefined` where another replica is at it.
 */
export async function retireStep(
  db: Database,
  rules: RetentionRules,
  { mostKept, holdMs }: { readonly mostKept: number; readonly holdMs: number },
): Promise<RetirementStep | undefined> {
  return await alone(db, async (tx): Promise<RetirementStep> => {
    const [retirement] = await run(tx, lockRetirement);
    if (retirement === undefined) return { kind: 'none' };
    const { sources, kept, walked_to: walkedTo, lower_id: lower, upper_id: upper, is_broken: isBroken } = retirement;
    if (isBroken || kept > mostKept) {
      await run(tx, abandonRetirement);
      if (!isBroken) await run(tx, holdPartitions, sources, holdMs);
      return { kind: isBroken ? 'broken' : 'held', sources, kept };
    }
    const judged = await judge(tx, rules, { after: walkedTo, lower, upper });
    if (judged.kept.length > 0) await run(tx, keepTasks, judged.kept);
    if (judged.over.length > 0) await run(tx, leaveTasks, judged.over);
    await forgetTasks(tx, judged.over);
    if (judged.lastId !== undefined) {
      await run(tx, advanceRetirement, judged.lastId, judged.kept.length, judged.over);
    }
    return { kind: judged.isEnd ? 'walked' : 'more' };
  });
}

/** Puts what stays where the partitions were, all at once. False where another replica is at it. */
export async function finishToRetire(db: Database): Promise<boolean> {
  const { standing } = await readState(db);
  const { default_bytes: bytes, lower_id: lower, upper_id: upper } = standing;
  if (lower === null || upper === null) return false;
  if ((bytes ?? 0) > SMALL_BYTES && !(await guard(db, lower, upper))) return false;
  const done = await alone(db, async (tx) => await run(tx, finishRetirement));
  return done !== undefined;
}

/** Gives the retirement under way up, and looks at its partitions again after `holdMs`. */
export async function giveUpRetirement(db: Database, holdMs: number): Promise<void> {
  await alone(db, async (tx) => {
    const [retirement] = await run(tx, lockRetirement);
    if (retirement === undefined) return;
    await run(tx, abandonRetirement);
    await run(tx, holdPartitions, retirement.sources, holdMs);
  });
}

/** Drops a partition that was taken out. False where another replica is at it. */
export async function dropPartition(db: Database, name: string): Promise<boolean> {
  return (await alone(db, async (tx) => await run(tx, dropRetired, name))) !== undefined;
}

/** How far a walk through single tasks came. */
export interface WalkedStep {
  readonly removed: number;
  readonly lastId: string | undefined;
  /** True at the end of the range. */
  readonly isEnd: boolean;
}

/** Removes those of the next 500 tasks of a range whose time is over. `undefined` where another replica is at it. */
export async function walkStep(
  db: Database,
  rules: RetentionRules,
  range: Range,
  after: string,
): Promise<WalkedStep | undefined> {
  return await alone(db, async (tx) => {
    const judged = await judge(tx, rules, { after, lower: idAt(range.lowerMs), upper: idAt(range.upperMs) });
    await forgetTasks(tx, judged.over);
    const removed = judged.over.length === 0 ? [] : await run(tx, removeTasks, judged.over);
    return { removed: removed.length, lastId: judged.lastId, isEnd: judged.isEnd };
  });
}

/** True for the failure of a step that has to be tried again later: somebody held a lock. */
export function isPutOff(thrown: unknown): boolean {
  return classifyFailure(thrown) === 'lock-timeout';
}

interface Judged {
  readonly over: readonly string[];
  readonly kept: readonly string[];
  readonly lastId: string | undefined;
  readonly isEnd: boolean;
}

async function judge(
  tx: Queryable,
  { tasks }: RetentionRules,
  { after, lower, upper }: { readonly after: string; readonly lower: string; readonly upper: string },
): Promise<Judged> {
  const [row] = await run(
    tx,
    judgeTasks,
    after,
    lower,
    upper,
    TASKS_PER_STEP,
    tasks.map(({ type }) => type),
    tasks.map(({ state }) => state),
    tasks.map(({ keptMs }) => keptMs),
  );
  return {
    over: row?.over ?? [],
    kept: row?.kept ?? [],
    lastId: row?.last_id ?? undefined,
    isEnd: (row?.rows_seen ?? 0) < TASKS_PER_STEP,
  };
}

function idAt(ms: number): string {
  return idAtLeast(new Date(ms));
}
