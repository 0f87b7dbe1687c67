/** What goes around a settle inside the transaction of a handler. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Fails with 25P01 where no transaction is open: then the settle would be committed by itself. */
export const markTransaction = statement<[]>()({
  name: 'mark_transaction',
  text: sql`savepoint warren_settle`,
  columns: {},
});

/** Forgets the mark: what follows belongs to the transaction itself. */
export const unmarkTransaction = statement<[]>()({
  name: 'unmark_transaction',
  text: sql`release savepoint warren_settle`,
  columns: {},
});

/**
 * Makes Warren's schema the only one on the search path, for this transaction, and bounds how long the transaction may stand
 * idle from now on, since it holds the task's row. Answers the path as it was.
 */
export const enterSchema = statement<[schema: string, idleMs: number]>()({
  name: 'enter_schema',
  text: sql`
    with before as materialized (
      select current_setting('search_path') as path, setting::int4 as idle_ms
        from pg_settings where name = 'idle_in_transaction_session_timeout'
    )
    select path, set_config('search_path', $1::text, true) as inside,
           set_config('idle_in_transaction_session_timeout',
                      (case when idle_ms between 1 and $2::int4 then idle_ms else $2::int4 end)::text, true) as idle
      from before`,
  columns: { path: 'text', inside: 'text', idle: 'text' },
});

/** Gives the transaction its search path back. */
export const leaveSchema = statement<[path: string]>()({
  name: 'leave_schema',
  text: sql`select set_config('search_path', $1::text, true) as path`,
  columns: { path: 'text' },
});

/** Makes the transaction fail, so that nobody can commit it by mistake. */
export const spoilTransaction = statement<[]>()({
  name: 'spoil_transaction',
  text: sql`do 'begin raise exception ''warren: the attempt has lost its claim; roll back''; end'`,
  columns: {},
});
