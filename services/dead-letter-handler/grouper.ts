/**
 * Takes every letter into the group of those that died of the same, and writes what it is found by. It works through letters
 * that are in no group yet, whoever wrote them, so that nothing is left out where a process died in between.
 */
import { fingerprintOf } from '../../shared/dead-letters/fingerprint.ts';
import type { Failure, Fingerprint } from '../../shared/dead-letters/fingerprint.ts';
import type { LetterKind } from '../../shared/dead-letters/reason.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import { isBadData } from '../../shared/postgres/failure.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { arrayLiteral, run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { joinGroups, takeUngrouped, writeFacts } from './grouper.sql.ts';

/** What the grouper needs. */
export interface GrouperDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  /** Name of the rule that says which group a failure belongs to; `undefined`: its fingerprint does. */
  readonly ruleOf: (failure: Failure) => string | undefined;
}

/** How the grouper works. */
export interface GrouperOptions {
  /** Milliseconds between rounds where nothing waits. */
  readonly intervalMs: number;
  /** Letters in one transaction, at least 1. */
  readonly maxBatch: number;
}

/** Defaults. */
export const DEFAULT_GROUPER: GrouperOptions = { intervalMs: 500, maxBatch: 500 };

/** Bytes of an input that can be searched by its paths; a larger one is found by everything else. */
export const SEARCHED_INPUT_BYTES = 32_768;
/** Characters of an error that are searched. */
const SEARCHED_ERROR_LENGTH = 1_000;

type Row = RowOf<typeof takeUngrouped.columns>;

/** Makes the grouper. */
export function createGrouper(deps: GrouperDeps, options: GrouperOptions = DEFAULT_GROUPER): Loop {
  const { db, log } = deps;
  /** Letters that go one by one, since one of them is to blame for a batch that failed. */
  let singly = 0;
  const round = async (): Promise<boolean> => {
    const limit = singly > 0 ? 1 : options.maxBatch;
    try {
      const taken = await inTransaction(
        db,
        async (tx) => await groupSome(tx, deps, { limit, inputBytes: SEARCHED_INPUT_BYTES }),
      );
      singly = Math.max(0, singly - 1);
      return taken === limit;
    } catch (thrown) {
      if (!isBadData(thrown)) throw thrown;
      if (limit > 1) {
        singly = options.maxBatch;
        return true;
      }
      // The input of this letter, of which jsonb takes less than the front door: the letter is found by everything else.
      log.debug('letter not searchable by its input');
      await inTransaction(db, async (tx) => await groupSome(tx, deps, { limit, inputBytes: -1 }));
      return true;
    }
  };
  return new Loop({ ...deps, round }, { name: 'failure groups', intervalMs: options.intervalMs });
}

async function groupSome(
  tx: Queryable,
  { ruleOf }: Pick<GrouperDeps, 'ruleOf'>,
  { limit, inputBytes }: { readonly limit: number; readonly inputBytes: number },
): Promise<number> {
  const rows = await run(tx, takeUngrouped, limit, inputBytes);
  if (rows.length === 0) return 0;
  await run(
    tx,
    writeFacts,
    rows.map(({ id }) => id),
    rows.map(({ tags }) => (tags === null ? null : arrayLiteral(tags))),
    rows.map((row) => errorTextOf(row)),
    rows.map(({ input }) => input?.toString('utf8') ?? null),
  );
  const named = rows.map((row) => nameOf(row, ruleOf));
  await run(
    tx,
    joinGroups,
    rows.map(({ id }) => id),
    named.map(({ id }) => id),
    named.map(({ errorType }) => errorType),
    named.map(({ message }) => message),
    named.map(({ frame }) => frame),
    named.map(({ rule }) => rule ?? null),
    rows.map(({ code_version: version }) => version),
  );
  return rows.length;
}

function nameOf(row: Row, ruleOf: GrouperDeps['ruleOf']): Fingerprint & { readonly rule: string | undefined } {
  const failure: Failure = {
    kind: row.kind as LetterKind,
    // What never was for Warren has no type: letters that died in one queue belong together.
    type: row.kind === 'foreign' ? row.queue : row.type,
    reason: row.reason,
    errorType: row.error_type,
    errorCode: row.error_code,
    errorMessage: row.error_message,
    errorStack: row.error_stack,
  };
  const rule = ruleOf(failure);
  return { ...fingerprintOf(failure, rule), rule };
}

function errorTextOf({ error_type: type, error_code: code, error_message: message }: Row): string | null {
  const text = [type, code, message].filter((part) => part !== null).join(' ');
  return text === '' ? null : text.slice(0, SEARCHED_ERROR_LENGTH);
}
