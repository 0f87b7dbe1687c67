/** A pool of `pg` as a calling service has one: with its own settings, and no search path of Warren's. */
import pg from 'pg';

/** A pool, ended by disposing of it. */
export type CallersPool = pg.Pool & AsyncDisposable;

/** Opens one; `user` is who logs in. */
export function openCallersPool(
  url: string,
  { user, password, max = 5 }: { user?: string; password?: string; max?: number } = {},
): CallersPool {
  const address = new URL(url);
  if (user !== undefined) address.username = user;
  if (password !== undefined) address.password = password;
  const pool = new pg.Pool({ connectionString: address.href, max });
  pool.on('error', () => undefined); // the database of a test is dropped under it
  return Object.assign(pool, { [Symbol.asyncDispose]: async () => await pool.end() });
}
