/**
 * The thread that renews the lease. A handler that blocks the event loop for a while must not cost the worker its lease;
 * one that blocks it for longer than `maxLoopBlockMs` must, since nobody can reach what it runs.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { toError } from '../../shared/errors/to-error.ts';
import { Bug } from '../../shared/errors/warren-error.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { Database } from '../../shared/postgres/pool.ts';
import type { DatabaseOptions } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { renewLease } from './leases.sql.ts';

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
  /** The lease was taken away. The thread has ended. */
  | { readonly kind: 'lapsed' }
  /** Postgres did not answer, or the main loop is blocked (`reason`). */
  | { readonly kind: 'missed'; readonly reason: string };

/** Places in the shared memory: beats of the main loop, tasks in flight; not 0 once the thread shall end, or may renew. */
export const BEATS = 0;
export const IN_FLIGHT = 1;
export const END = 2;
export const IS_TAKEN = 3;
/** How many there are. */
export const PLACES = 4;

/** A claim younger than this may still be on its way to the worker: its answer has not arrived yet. */
const CLAIM_ANSWER_WITHIN_MS = 60_000;
const FIRST_PING_MS = 1_000;
/** Milliseconds that the answer to a renewal may always take; twice the interval of renewals where that is longer. */
const LEAST_ANSWER_MS = 1_000;

async function renewUntilEnd(data: LeaseThreadData, tell: (news: LeaseNews) => void): Promise<void> {
  const state = new Int32Array(data.shared);
  const db = new Database({ clock: systemClock, log: silentLogger, random: () => 0.5 }, data.database);
  await db.start();
  await db.ping(FIRST_PING_MS);
  // A lease must not age while its keeper is still being loaded: on a busy machine that takes seconds.
  tell({ kind: 'ready' });
  Atomics.wait(state, IS_TAKEN, 0);
  let beats = Atomics.load(state, BEATS);
  let beatAtMs = systemClock.monotonicMs();
  let cpu = process.cpuUsage();
  let cpuAtMs = systemClock.monotonicMs();
  // A link that died without a word must not hold a renewal until the lease has lapsed: the next one makes a new link.
  const withinMs = Math.max(LEAST_ANSWER_MS, 2 * data.renewMs);
  const hasty: Queryable = { query: async (query) => await db.query({ ...query, withinMs }) };
  while (Atomics.load(state, END) === 0) {
    const nowMs = systemClock.monotonicMs();
    const beatsNow = Atomics.load(state, BEATS);
    if (beatsNow !== beats) beatAtMs = nowMs;
    beats = beatsNow;
    if (nowMs - beatAtMs > data.maxLoopBlockMs) {
      tell({ kind: 'missed', reason: `the event loop is blocked for ${Math.round(nowMs - beatAtMs)} ms` });
    } else {
      const used = process.cpuUsage(cpu);
      const fraction = (used.user + used.system) / 1_000 / Math.max(1, nowMs - cpuAtMs);
      cpu = process.cpuUsage();
      cpuAtMs = nowMs;
      try {
        const inFlight = Atomics.load(state, IN_FLIGHT);
        const [row] = await run(
          hasty,
          renewLease,
          data.workerId,
          inFlight,
          fraction,
          process.memoryUsage.rss(),
          CLAIM_ANSWER_WITHIN_MS,
        );
        if (row === undefined) {
          tell({ kind: 'lapsed' });
          break;
        }
        tell({ kind: 'renewed', cancels: row.cancels, claims: row.claims });
      } catch (thrown) {
        tell({ kind: 'missed', reason: toError(thrown).message });
      }
    }
    Atomics.wait(state, END, 0, data.renewMs);
  }
  await db.stop(systemClock.monotonicMs() + 1_000);
}

if (parentPort !== null) {
  const port = parentPort;
  const data = workerData as LeaseThreadData | undefined;
  if (data?.workerId === undefined) throw new Bug('the lease thread was started without its data');
  await renewUntilEnd(data, (news) => port.postMessage(news));
}
