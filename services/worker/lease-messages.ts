/** What the worker and the thread that renews its lease say to each other. */
import type { DatabaseOptions } from '../../shared/postgres/pool.ts';

/** What the thread is started with. */
export interface LeaseThreadData {
  readonly workerId: string;
  readonly renewMs: number;
  readonly maxLoopBlockMs: number;
  readonly database: DatabaseOptions;
  /** The queues of this worker, in the order of their places in `shared`. */
  readonly queues: readonly string[];
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

/** What a worker has of one of its queues. */
export interface QueueLoad {
  readonly queue: string;
  /** Attempts that hold a slot. */
  readonly running: number;
  /** Deliveries that wait for one. */
  readonly waiting: number;
}

/** Places in the shared memory: beats of the main loop, tasks in flight, 1 once the worker takes nothing new, then two for each queue. */
export const BEATS = 0;
export const IN_FLIGHT = 1;
export const DRAINING = 2;
const FIRST_QUEUE = 3;

/** How many places there are. */
export const placesOf = (queues: number): number => FIRST_QUEUE + 2 * queues;

/** Writes what the worker has of each queue, in the order of its queues. */
export function storeLoads(state: Int32Array, loads: readonly QueueLoad[]): void {
  for (const [index, { running, waiting }] of loads.entries()) {
    Atomics.store(state, FIRST_QUEUE + 2 * index, running);
    Atomics.store(state, FIRST_QUEUE + 2 * index + 1, waiting);
  }
}

/** Reads it again. */
export function loadLoads(state: Int32Array, queues: readonly string[]): QueueLoad[] {
  return queues.map((queue, index) => ({
    queue,
    running: Atomics.load(state, FIRST_QUEUE + 2 * index),
    waiting: Atomics.load(state, FIRST_QUEUE + 2 * index + 1),
  }));
}
