/**
 * Erases payloads: of the tasks with one business key, of single tasks, of single letters. What remains tells that there was
 * something and how it went, not what was in it.
 */
import { createHash } from 'node:crypto';
import type { Actor } from '../../shared/http/auth.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { Clock } from '../../shared/time/clock.ts';
import {
  beginErasure,
  countErasure,
  eraseBeside,
  eraseBesideLetters,
  eraseLetters,
  eraseTasks,
  findByKey,
  findTasksOfLetters,
  lockErasable,
} from './erasure.sql.ts';
import { takeRetentionLock } from './retention.sql.ts';

/** What is to be erased: by one of these. */
export type ErasureTarget =
  | { readonly kind: 'businessKey'; readonly businessKey: string }
  | { readonly kind: 'ids'; readonly taskIds: readonly string[]; readonly letterIds: readonly string[] };

/** Who erases what, and why. */
export interface ErasureRequest {
  readonly target: ErasureTarget;
  readonly actor: Actor;
  /** Kept in the audit, so it must not name the person. */
  readonly reason: string;
}

/** Rows that were erased, by kind. */
export interface ErasureCounts {
  tasks: number;
  attempts: number;
  attemptLogs: number;
  files: number;
  onceResults: number;
  origins: number;
  progress: number;
  deadLetters: number;
  searchEntries: number;
  mendedInputs: number;
  replayPatches: number;
  replayItems: number;
  failureGroups: number;
}

/** What came of it. */
export interface Erasure {
  readonly id: string;
  readonly erased: Readonly<ErasureCounts>;
  /** Tasks that wait or run still: they are left as they are. */
  readonly notEnded: readonly string[];
  /** True where time was over before everything was erased: ask again. */
  readonly isPartial: boolean;
}

const CHUNK = 500;
const WITHIN_MS = 20_000;
const SMALLEST_ID = '00000000-0000-0000-0000-000000000000';

/** Erases in chunks of 500, each its own commit, for 20 seconds at most. Throws as `Queryable.query`. */
export async function erase(
  { db, clock }: { readonly db: Database; readonly clock: Pick<Clock, 'monotonicMs'> },
  { target, actor, reason }: ErasureRequest,
): Promise<Erasure> {
  const id: string = newId();
  const { name, role, address } = actor;
  await run(db, beginErasure, id, name, role, address ?? null, reason, newId(), JSON.stringify(detailOf(target)));
  const erased = noCounts();
  const notEnded: string[] = [];
  const untilMs = clock.monotonicMs() + WITHIN_MS;
  let isPartial = false;
  for await (const { taskIds, letterIds } of chunksOf(db, target)) {
    if (clock.monotonicMs() >= untilMs) {
      isPartial = true;
      break;
    }
    const chunk = await inTransaction(db, async (tx) => await eraseChunk(tx, { id, name, taskIds, letterIds }));
    for (const kind of Object.keys(erased) as (keyof ErasureCounts)[]) erased[kind] += chunk.erased[kind];
    notEnded.push(...chunk.notEnded);
    await run(db, countErasure, id, JSON.stringify(erased), false);
  }
  await run(db, countErasure, id, JSON.stringify(erased), !isPartial);
  return { id, erased, notEnded, isPartial };
}

interface Chunk {
  readonly taskIds: readonly string[];
  readonly letterIds: readonly string[];
}

async function* chunksOf(db: Queryable, target: ErasureTarget): AsyncGenerator<Chunk> {
  if (target.kind === 'ids') {
    const { taskIds, letterIds } = target;
    for (let at = 0; at < Math.max(taskIds.length, letterIds.length); at += CHUNK) {
      yield { taskIds: taskIds.slice(at, at + CHUNK), letterIds: letterIds.slice(at, at + CHUNK) };
    }
    return;
  }
  for (let after = SMALLEST_ID; ;) {
    const taskIds: string[] = (await run(db, findByKey, target.businessKey, after)).map((row) => row.id);
    const last = taskIds.at(-1);
    if (last === undefined) return;
    yield { taskIds, letterIds: [] };
    after = last;
  }
}

async function eraseChunk(
  tx: Queryable,
  { id, name, taskIds, letterIds }: Chunk & { readonly id: string; readonly name: string },
): Promise<{ readonly erased: ErasureCounts; readonly notEnded: readonly string[] }> {
  await run(tx, takeRetentionLock); // a task that is being retired just now must not be copied half erased
  const ofLetters = letterIds.length === 0 ? [] : await run(tx, findTasksOfLetters, letterIds);
  const [locked] = await run(tx, lockErasable, [...new Set([...taskIds, ...ofLetters.flatMap((row) => row.id ?? [])])]);
  const ended = locked?.ended ?? [];
  const tasks = await run(tx, eraseTasks, ended, id);
  const [beside] = await run(tx, eraseBeside, ended);
  const letters = await run(tx, eraseLetters, ended, letterIds, name);
  const open = new Map<string, number>();
  for (const { group_id: group, was_open: wasOpen } of letters) {
    if (group !== null) open.set(group, (open.get(group) ?? 0) + Number(wasOpen));
  }
  const groups = [...open].toSorted(([a], [b]) => (a < b ? -1 : 1));
  const [besideLetters] = await run(
    tx,
    eraseBesideLetters,
    letters.map((letter) => letter.id),
    groups.map(([group]) => group),
    groups.map(([, count]) => count),
  );
  return {
    erased: {
      tasks: tasks.length,
      attempts: beside?.attempts ?? 0,
      attemptLogs: beside?.logs ?? 0,
      files: beside?.files ?? 0,
      onceResults: beside?.once_results ?? 0,
      origins: beside?.origins ?? 0,
      progress: beside?.progress ?? 0,
      deadLetters: letters.length,
      searchEntries: besideLetters?.facts ?? 0,
      mendedInputs: besideLetters?.mended ?? 0,
      replayPatches: besideLetters?.patches ?? 0,
      replayItems: besideLetters?.items ?? 0,
      failureGroups: besideLetters?.groups ?? 0,
    },
    notEnded: locked?.not_ended ?? [],
  };
}

function detailOf(target: ErasureTarget): Readonly<Record<string, unknown>> {
  if (target.kind === 'businessKey') {
    return { businessKeySha256: createHash('sha256').update(target.businessKey).digest('hex') };
  }
  return { tasks: target.taskIds.length, letters: target.letterIds.length };
}

function noCounts(): ErasureCounts {
  return {
    tasks: 0,
    attempts: 0,
    attemptLogs: 0,
    files: 0,
    onceResults: 0,
    origins: 0,
    progress: 0,
    deadLetters: 0,
    searchEntries: 0,
    mendedInputs: 0,
    replayPatches: 0,
    replayItems: 0,
    failureGroups: 0,
  };
}
