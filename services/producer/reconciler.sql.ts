/** The statement of the reconciler. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Postgres's clock: the only one that counts. */
export const readClock = statement<[]>()({
  name: 'read_clock',
  text: sql`select clock_timestamp() as at`,
  columns: { at: 'timestamptz' },
});
