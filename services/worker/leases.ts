/** The worker's proof of life: one row in Postgres, renewed by a thread of its own. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { Worker } from 'node:worker_threads';
import { toError } from '../../shared/errors/to-error.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { isWorthTelling } from '../../shared/observability/repeats.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { BEATS, DRAINING, IN_FLIGHT, placesOf, storeLoads } from './lease-messages.ts';
import type { LeaseNews, LeaseOrder, LeaseThreadData, QueueLoad } from './lease-messages.ts';
import { closeLease, openLease } from './leases.sql.ts';
import { threadEntry } from './thread-entry.ts';

/** What leases need. */
export interface LeasesDeps {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Pick<Metrics, 'leaseRenewals'>;
  /** Attempts that run now. */
  readonly inFlight: () => number;
  /** What this worker has of each of its queues, in the order of the option `queues`. */
  readonly loads: () => readonly QueueLoad[];
  /** True from the moment on at which it takes nothing new. */
  readonly isDraining: () => boolean;
  /** Tasks of this worker whose cancelling was asked for; called whenever a look found some, again and again. */
  readonly onCancels: (taskIds: readonly string[]) => void;
  /** Claims that Postgres holds for this worker for a while; called after each renewal that found some. */
  readonly onClaims: (workerId: string, claimIds: readonly string[]) => void;
  /** The lease was taken away: nothing that runs is this worker's own any more. A new lease follows. */
  readonly onLapsed: () => void;
}

/** How the lease is kept. */
export interface LeasesOptions {
  readonly renewMs: number;
  readonly maxLoopBlockMs: number;
  readonly codeVersion: string;
  readonly taskTypes: readonly string[];
  /** Concurrency per queue. */
  readonly queues: Readonly<Record<string, number>>;
}

const BEAT_MS = 200;

/** Keeps a lease, and takes a new one under a new worker id whenever it was taken away. */
export class Leases implements Part {
  readonly #deps: LeasesDeps;
  readonly #options: LeasesOptions;
  readonly #stopping = new AbortController();
  #workerId = randomUUID() as string;
  /** Renewals that failed since the last one that did not. */
  #missedInRow = 0;
  #thread: Worker | undefined;
  #running: Promise<void> | undefined;
  #isLeased = false;
  /** Monotonic; of the start before the first. */
  #renewedMs: number;
  #leasedListeners: (() => void)[] = [];

  constructor(deps: LeasesDeps, options: LeasesOptions) {
    this.#deps = deps;
    this.#renewedMs = deps.clock.monotonicMs();
    this.#options = options;
  }

  /** The id under which this worker claims now. */
  get workerId(): string {
    return this.#workerId;
  }

  /** True while a lease stands, as far as this worker knows. */
  get isLeased(): boolean {
    return this.#isLeased;
  }

  /** Milliseconds since the lease was taken or renewed. */
  get ageMs(): number {
    return this.#deps.clock.monotonicMs() - this.#renewedMs;
  }

  /** Resolves once a lease stands, or the signal aborts. */
  async whenLeased(signal: AbortSignal): Promise<void> {
    while (!this.#isLeased && !signal.aborted) {
      const leased = new Promise<void>((resolve) => this.#leasedListeners.push(resolve));
      const race = new AbortController();
      await Promise.race([leased, this.#deps.clock.sleep(1_000, AbortSignal.any([signal, race.signal]))]);
      race.abort();
    }
  }

  /** Takes the first lease in the background: Postgres may be away. */
  async start(): Promise<void> {
    this.#running ??= this.#keep();
    await Promise.resolve();
  }

  async stop(deadlineMs: number): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    const { clock, log } = this.#deps;
    this.#stopping.abort();
    this.#order('end');
    const race = new AbortController();
    const late = clock.sleep(deadlineMs - clock.monotonicMs(), race.signal).then(() => 'late' as const);
    const ended = await Promise.race([this.#running, late]);
    race.abort();
    if (ended === 'late') {
      log.warn('lease left to lapse', { workerId: this.#workerId, hint: 'Postgres did not answer by the deadline' });
      await this.#thread?.terminate();
      return;
    }
    if (!this.#isLeased) return;
    this.#isLeased = false;
    const withinMs = Math.max(1, deadlineMs - clock.monotonicMs());
    try {
      const { db } = this.#deps;
      await run({ query: async (query) => await db.query({ ...query, withinMs }) }, closeLease, this.#workerId);
    } catch (thrown) {
      this.#deps.log.warn('lease not given up', { workerId: this.#workerId, err: toError(thrown) });
    }
  }

  async #keep(): Promise<void> {
    const { clock, log } = this.#deps;
    const signal = this.#stopping.signal;
    while (!signal.aborted) {
      try {
        await this.#hold();
      } catch (thrown) {
        log.warn('no lease', { workerId: this.#workerId, err: toError(thrown) });
        await clock.sleep(1_000, signal);
      }
    }
  }

  /** Takes the lease once the thread that renews it stands ready, and keeps it until it is lost or the worker stops. */
  async #hold(): Promise<void> {
    const { renewMs, maxLoopBlockMs } = this.#options;
    const queues = Object.keys(this.#options.queues);
    const shared = new SharedArrayBuffer(placesOf(queues.length) * Int32Array.BYTES_PER_ELEMENT);
    const state = new Int32Array(shared);
    const database = { ...this.#deps.db.options, applicationName: 'warren-lease', max: 1 };
    const workerData: LeaseThreadData = {
      workerId: this.#workerId,
      renewMs,
      maxLoopBlockMs,
      database,
      queues,
      shared,
    };
    const thread = new Worker(threadEntry('lease-thread'), {
      workerData,
      name: 'lease',
      // It renews a row every second or two; the default young generation alone would cost a worker 16 MB and more.
      resourceLimits: { maxYoungGenerationSizeMb: 2, maxOldGenerationSizeMb: 64 },
    });
    this.#thread = thread;
    const ended = new Promise<void>((resolve, reject) => {
      thread.once('exit', () => resolve());
      thread.once('error', reject);
    });
    const ready = new Promise<void>((resolve) => {
      thread.on('message', (news: LeaseNews) => (news.kind === 'ready' ? resolve() : this.#hear(news)));
    });
    const beating = new AbortController();
    try {
      await Promise.race([ready, ended]);
      if (!this.#stopping.signal.aborted) await this.#open();
      void this.#beat(state, beating.signal);
      this.#order('taken');
      await ended;
    } catch (thrown) {
      this.#order('end');
      await ended;
      throw thrown;
    } finally {
      beating.abort();
    }
  }

  async #open(): Promise<void> {
    const { codeVersion, queues, taskTypes } = this.#options;
    const slots = Object.values(queues).reduce((sum, concurrency) => sum + concurrency, 0);
    const { db } = this.#deps;
    const shown = JSON.stringify(queues);
    await run(db, openLease, this.#workerId, hostname(), process.pid, codeVersion, shown, taskTypes, slots);
    this.#isLeased = true;
    this.#renewedMs = this.#deps.clock.monotonicMs();
    this.#deps.log.info('lease taken', { workerId: this.#workerId });
    for (const listener of this.#leasedListeners.splice(0)) listener();
  }

  #hear(news: Exclude<LeaseNews, { kind: 'ready' }>): void {
    const { log, metrics, onCancels, onClaims, onLapsed } = this.#deps;
    switch (news.kind) {
      case 'renewed':
        metrics.leaseRenewals.add(1, 'renewed');
        this.#missedInRow = 0;
        this.#renewedMs = this.#deps.clock.monotonicMs();
        if (news.cancels.length > 0) onCancels(news.cancels);
        if (news.claims.length > 0) onClaims(this.#workerId, news.claims);
        return;
      case 'cancels':
        onCancels(news.cancels);
        return;
      case 'missed':
        metrics.leaseRenewals.add(1, 'failed');
        this.#missedInRow += 1;
        if (isWorthTelling(this.#missedInRow)) {
          log.warn('lease not renewed', {
            workerId: this.#workerId,
            timesInRow: this.#missedInRow,
            reason: news.reason,
          });
        }
        return;
      case 'lapsed':
        metrics.leaseRenewals.add(1, 'lost');
        log.error('lease lost', {
          workerId: this.#workerId,
          hint: 'the worker was cut off from Postgres or blocked for too long; it aborts what it runs and goes on under a new id',
        });
        this.#isLeased = false;
        this.#workerId = randomUUID();
        onLapsed();
    }
  }

  /** Shows the thread that the main loop turns, how much runs and waits, and whether the worker is on its way out. */
  async #beat(state: Int32Array, signal: AbortSignal): Promise<void> {
    const { inFlight, isDraining, loads } = this.#deps;
    while (!signal.aborted) {
      Atomics.add(state, BEATS, 1);
      Atomics.store(state, IN_FLIGHT, inFlight());
      Atomics.store(state, DRAINING, Number(isDraining()));
      storeLoads(state, loads());
      await this.#deps.clock.sleep(BEAT_MS, signal, { unref: true });
    }
  }

  #order(order: LeaseOrder): void {
    this.#thread?.postMessage(order); // nothing where it has ended
  }
}
