/** Finds out what became of replayed items: the first new attempt of each, and then how its task ended. */
import type { Failure } from '../../shared/dead-letters/fingerprint.ts';
import type { LetterKind } from '../../shared/dead-letters/reason.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import { findRefusedAgain, findResults, nameTasks, writeResults } from './replay-judge.sql.ts';
import type { ItemState } from '../../shared/dead-letters/replay-state.ts';

/** What judging needs. */
export interface JudgeDeps {
  readonly db: Database;
  /** The fingerprint of a failure, as the groups take it. */
  readonly fingerprint: (failure: Failure) => string;
}

/** How far a look went. */
export interface Look {
  /** Number of the last item that was looked at; 0 where the look reached the end. */
  readonly lastN: number;
  /** How many items it has judged. */
  readonly judged: number;
}

type Row = RowOf<typeof findResults.columns>;

interface Result {
  readonly n: number;
  readonly state: ItemState;
  readonly fingerprint?: string;
  readonly isSame?: boolean;
  readonly errorType?: string | null;
  readonly errorMessage?: string | null;
  readonly newLetterId?: string | null;
}

const PER_LOOK = 1_000;
const LONGEST_MESSAGE = 500;

/** Judges up to 1 000 sent items after the number `after`, and writes what it finds. Throws as `Queryable.query`. */
export async function judgeItems(deps: JudgeDeps, replayId: string, after: number): Promise<Look> {
  const { db } = deps;
  const rows = await run(db, findResults, replayId, after, PER_LOOK);
  const [first] = rows;
  if (first === undefined) return { lastN: 0, judged: 0 };
  const told = rows.filter((row): row is Row & { readonly n: number } => row.n !== null);
  const unnamed = told.filter((row) => row.task_id === null);
  const results = [
    ...told.filter((row) => row.task_id !== null).map((row) => judge(row, deps)),
    ...(unnamed.length === 0 ? [] : await judgeMessages(deps, replayId, unnamed)),
  ];
  if (results.length > 0) await retryConflicts(db, async () => await write(db, replayId, results));
  return { lastN: first.looked < PER_LOOK ? 0 : first.last_n, judged: results.length };
}

function judge(row: Row & { readonly n: number }, deps: JudgeDeps): Result {
  return {
    n: row.n,
    state: stateOf(row),
    newLetterId: row.new_letter_id,
    ...(row.has_failed === true || row.new_letter_id !== null ? failureOf(row, deps) : {}),
  };
}

function stateOf({ new_letter_id: newLetterId, task_state: taskState }: Row): ItemState {
  if (newLetterId !== null) return 'dead';
  if (taskState === 'succeeded') return 'succeeded';
  // A task that is not there any more was past its retention.
  if (taskState === null || taskState === 'cancelled' || taskState === 'expired') return 'ended';
  return 'sent';
}

function failureOf(row: Row, { fingerprint }: JudgeDeps): Omit<Result, 'n' | 'state'> {
  const about = { kind: (row.kind ?? 'task') as LetterKind, type: row.type, reason: row.reason ?? 'unknown' };
  const now = fingerprint({
    ...about,
    errorType: row.error_type,
    errorCode: row.error_code,
    errorMessage: row.error_message,
    errorStack: row.error_stack,
  });
  const before =
    row.group_id ??
    fingerprint({
      ...about,
      errorType: row.old_type,
      errorCode: row.old_code,
      errorMessage: row.old_message,
      errorStack: row.old_stack,
    });
  return {
    fingerprint: now,
    isSame: now === before,
    errorType: row.error_type ?? row.error_code,
    errorMessage: row.error_message?.slice(0, LONGEST_MESSAGE) ?? null,
  };
}

/** What the front door refused once: it has become a task, which is named here and judged in the next look, or was refused again. */
async function judgeMessages(
  deps: JudgeDeps,
  replayId: string,
  rows: readonly (Row & { readonly n: number })[],
): Promise<readonly Result[]> {
  const { db, fingerprint } = deps;
  const numbers = rows.map(({ n }) => n);
  const named = new Set((await run(db, nameTasks, replayId, numbers)).map(({ n }) => n));
  const others = rows.filter(({ n, kind }) => !named.has(n) && kind === 'refused');
  if (others.length === 0) return [];
  const types = [...new Set(others.flatMap(({ type }) => (type === null ? [] : [type])))];
  const firstSentMs = Math.min(...others.map(({ sent_at: sentAt }) => sentAt?.getTime() ?? 0));
  const letterIds = others.map(({ letter_id: letterId }) => letterId ?? '');
  // Clocks of two machines differ a little.
  const least = idAtLeast(new Date(firstSentMs - 60_000));
  const again = new Map((await run(db, findRefusedAgain, types, least, letterIds)).map((row) => [row.replay_of, row]));
  return others.flatMap((row): readonly Result[] => {
    const letter = again.get(row.letter_id);
    if (letter === undefined) return row.is_old === true ? [{ n: row.n, state: 'ended' }] : [];
    const after = {
      ...row,
      reason: letter.reason,
      type: letter.type,
      error_type: null,
      error_code: letter.error_code,
      error_message: letter.error_message,
      error_stack: null,
    };
    const failure = failureOf(after, { db, fingerprint });
    return [{ n: row.n, state: 'dead', newLetterId: letter.id, ...failure }];
  });
}

async function write(db: Database, replayId: string, results: readonly Result[]): Promise<void> {
  await run(
    db,
    writeResults,
    replayId,
    results.map(({ n }) => n),
    results.map(({ state }) => state),
    results.map(({ fingerprint }) => fingerprint ?? null),
    results.map(({ isSame }) => isSame ?? null),
    results.map(({ errorType }) => errorType ?? null),
    results.map(({ errorMessage }) => errorMessage ?? null),
    results.map(({ newLetterId }) => newLetterId ?? null),
  );
}
