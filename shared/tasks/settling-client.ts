/** A client of Postgres that somebody else opened, as `ctx.settleWith` uses it. */

/** `Client` and `PoolClient` of pg, with a transaction open. A pool is none: it sends each query to another connection. */
export interface SettlingClient {
  query(query: { text: string; values: unknown[] }): Promise<{ readonly rows: readonly unknown[] }>;
}
