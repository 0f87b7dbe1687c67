/** What the worker and the thread that renews its lease say to each other. */
import type { DatabaseOptions } from '../../shared/postgres/pool.ts';

/** What the thread is started with. */
export interface LeaseThreadData {
  readonly workerId: string;
  readonly renewMs: number;
  readonly maxLoopBlockMs: number;
  readonly database: DatabaseOptions;
  /** Int32, see BEATS and its neighbours. */
  readonly shared: SharedArrayBuffer;
}

/** What the thread tells. */
export type LeaseNews =
  /** The thread can renew, and waits for the word that the lease is taken. */
  | { readonly kind: 'ready' }
  | { readonly kind: 'renewed'; readonly cancels: readonly string[]; readonly claims: readonly string[] }
  /** Found between two renewals. */
  | { readonly kind: 'cancels'; readonly cancels: readonly string[] }
  /** The lease was taken away. The thread has ended. */
  | { readonly kind: 'lapsed' }
  /** Postgres did not answer, or the main loop is blocked (`reason`). */
  | { readonly kind: 'missed'; readonly reason: string };

/** What the thread is told: the lease is taken, so that it may renew; it shall end. */
export type LeaseOrder = 'taken' | 'end';

/** Places in the shared memory: beats of the main loop, tasks in flight. */
export const BEATS = 0;
export const IN_FLIGHT = 1;
/** How many there are. */
export const PLACES = 2;
