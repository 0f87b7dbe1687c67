/** A client of pg as an author of task types opens it: beside Warren's own connections, with no schema chosen. */
import pg from 'pg';

/** Opens a client; disposing of it ends its session, which rolls back what is open. */
export async function openClient(url: string): Promise<pg.Client & AsyncDisposable> {
  const client = new pg.Client({ connectionString: url });
  // A session that the server ends is an event, and without a listener the end of the process.
  client.on('error', () => undefined);
  await client.connect();
  return Object.assign(client, { [Symbol.asyncDispose]: async () => await client.end() });
}

/** A pool of such clients. Disposing of it closes it. */
export function openPool(url: string): pg.Pool & AsyncDisposable {
  const pool = new pg.Pool({ connectionString: url });
  return Object.assign(pool, { [Symbol.asyncDispose]: async () => await pool.end() });
}
