/** Several statements as one: committed together or not at all. */
import { Bug, isWarrenError } from '../errors/warren-error.ts';
import { codeOf, toError } from '../errors/to-error.ts';
import { isConflict } from './failure.ts';
import type { Connection, Database } from './pool.ts';
import type { Queryable } from './statement.ts';

/** Whatever gives connections to work on: the database. */
export type Transactional = Pick<Database, 'deps' | 'checkOut' | 'query'>;

/** Tries at most, the first included, of what deadlocked or could not be serialized. */
const MOST_TRIES = 8;
/** Milliseconds: the longest first pause before another try; doubled per try, up to sixteen times. */
const PAUSE_MS = 10;

/**
 * Runs `work` in one transaction, which is rolled back when it throws. On a deadlock or serialization failure it runs
 * again from the start, so it must do nothing but send statements: never call a handler of a user from it, and never
 * wait for anything else, since its locks stand meanwhile. Throws as `Queryable.query`.
 */
export async function inTransaction<T>(db: Transactional, work: (tx: Queryable) => Promise<T>): Promise<T> {
  return await retryConflicts(db, async () => {
    const connection = await db.checkOut();
    try {
      await connection.query({ text: 'begin' });
      const result = await work({ query: async (query) => await connection.query(query) });
      const { command } = await connection.query({ text: 'commit' });
      // Postgres answers a commit of a failed transaction with ROLLBACK and no error.
      if (command !== 'COMMIT') throw new Bug('a failed statement was swallowed inside a transaction');
      connection.release(false);
      return result;
    } catch (thrown) {
      await rollBack(connection, db);
      throw thrown;
    }
  });
}

/**
 * Runs `work`, which only reads, with a limit of its own on each of its statements, in milliseconds from 1, and with a plan made for its
 * parameters: the plans of a session are made once, for statements that are always the same. Throws as `Queryable.query`; see
 * `isTimeLimitReached`.
 */
export async function inTimeLimit<T>(
  db: Transactional,
  withinMs: number,
  work: (tx: Queryable) => Promise<T>,
): Promise<T> {
  return await inTransaction(db, async (tx) => {
    await tx.query({
      text: `select set_config('statement_timeout', $1, true), set_config('plan_cache_mode', 'force_custom_plan', true)`,
      values: [`${Math.max(1, withinMs)}ms`],
    });
    return await work(tx);
  });
}

/** True for the failure of a statement that Postgres ended because its time was over. */
export function isTimeLimitReached(thrown: unknown): boolean {
  return isWarrenError(thrown, 'database-unavailable') && codeOf(thrown.cause) === '57014';
}

/** Calls `work` again, after a pause with jitter, while it fails with a deadlock or serialization failure; 8 times at most. */
export async function retryConflicts<T>(db: Transactional, work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (thrown) {
      if (tries >= MOST_TRIES || !isConflict(thrown)) throw thrown;
      db.deps.log.debug('conflict, trying again', { tries, err: toError(thrown) });
      await db.deps.clock.sleep(db.deps.random() * PAUSE_MS * 2 ** Math.min(tries, 4));
    }
  }
}

async function rollBack(connection: Connection, db: Transactional): Promise<void> {
  try {
    await connection.query({ text: 'rollback' });
    connection.release(false);
  } catch (thrown) {
    // Closing the session rolls back as well; only its own error is of no interest any more.
    db.deps.log.debug('rollback failed, connection destroyed', { err: toError(thrown) });
    connection.release(true);
  }
}
