/**
 * The thread that renews the lease. A handler that blocks the event loop for a while must not cost the worker its lease;
 * one that blocks it for longer than `maxLoopBlockMs` must, since nobody can reach what it runs.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { toError } from '../../shared/errors/to-error.ts';
import { Bug } from '../../shared/errors/warren-error.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { cancelChannelOf } from '../../shared/tasks/cancel-channel.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { BEATS, DRAINING, IN_FLIGHT, loadLoads } from './lease-messages.ts';
import type { LeaseNews, LeaseOrder, LeaseThreadData } from './lease-messages.ts';
import { readCancels, renewLease } from './leases.sql.ts';
import { Wakeup } from './wakeup.ts';

/** A claim younger than this may still be on its way to the worker: its answer has not arrived yet. */
const CLAIM_ANSWER_WITHIN_MS = 60_000;
const FIRST_PING_MS = 1_000;
const LONGEST_MS = 2_147_483_647;
/** Milliseconds between two looks for cancels at least, however many are asked for. */
const LOOK_GAP_MS = 100;
/** Milliseconds that the answer to a renewal may always take; twice the interval of renewals where that is longer. */
const LEAST_ANSWER_MS = 1_000;

/** Renews until it is told to end, or the lease is gone. */
class LeaseKeeper {
  readonly #data: LeaseThreadData;
  readonly #tell: (news: LeaseNews) => void;
  readonly #state: Int32Array;
  readonly #taken = new AbortController();
  readonly #ending = new AbortController();
  /** Set when cancels of this worker's tasks were asked for. */
  readonly #cancels = new Wakeup(systemClock);

  constructor(data: LeaseThreadData, tell: (news: LeaseNews) => void) {
    this.#data = data;
    this.#tell = tell;
    this.#state = new Int32Array(data.shared);
  }

  order(order: LeaseOrder): void {
    if (order === 'end') this.#ending.abort();
    this.#taken.abort();
  }

  async run(): Promise<void> {
    const { database, renewMs, workerId } = this.#data;
    const db = new Database({ clock: systemClock, log: silentLogger, random: () => 0.5 }, database, {
      channel: cancelChannelOf(workerId),
      onNotified: () => this.#cancels.wake(),
    });
    await db.start();
    await db.ping(FIRST_PING_MS);
    // A lease must not age while its keeper is still being loaded: on a busy machine that takes seconds.
    this.#tell({ kind: 'ready' });
    await systemClock.sleep(LONGEST_MS, this.#taken.signal);
    // A link that died without a word must not hold a renewal until the lease has lapsed: the next one makes a new link.
    const withinMs = Math.max(LEAST_ANSWER_MS, 2 * renewMs);
    const hasty: Queryable = { query: async (query) => await db.query({ ...query, withinMs }) };
    const renewal = new Renewal(this.#data, this.#state);
    while (!this.#ending.signal.aborted) {
      const news = await renewal.once(hasty);
      this.#tell(news);
      if (news.kind === 'lapsed') break;
      await this.#waitAndLook(hasty);
    }
    await db.stop(systemClock.monotonicMs() + 1_000);
  }

  /** Waits for the next renewal, and looks for cancels meanwhile whenever there are some. */
  async #waitAndLook(db: Queryable): Promise<void> {
    const untilMs = systemClock.monotonicMs() + this.#data.renewMs;
    const { signal } = this.#ending;
    while (await this.#cancels.wait(untilMs - systemClock.monotonicMs(), signal)) {
      try {
        const [row] = await run(db, readCancels, this.#data.workerId);
        if (row !== undefined && row.cancels.length > 0) this.#tell({ kind: 'cancels', cancels: row.cancels });
      } catch {
        return; // the renewal finds them as well, and tells that Postgres does not answer
      }
      await systemClock.sleep(Math.min(LOOK_GAP_MS, Math.max(0, untilMs - systemClock.monotonicMs())), signal);
    }
  }
}

/** One renewal after the other, with what the lease says of its worker. */
class Renewal {
  readonly #data: LeaseThreadData;
  readonly #state: Int32Array;
  #beats: number;
  #beatAtMs = systemClock.monotonicMs();
  #cpu = process.cpuUsage();
  #cpuAtMs = systemClock.monotonicMs();

  constructor(data: LeaseThreadData, state: Int32Array) {
    this.#data = data;
    this.#state = state;
    this.#beats = Atomics.load(state, BEATS);
  }

  async once(db: Queryable): Promise<LeaseNews> {
    const nowMs = systemClock.monotonicMs();
    const beatsNow = Atomics.load(this.#state, BEATS);
    if (beatsNow !== this.#beats) this.#beatAtMs = nowMs;
    this.#beats = beatsNow;
    const blockedMs = nowMs - this.#beatAtMs;
    if (blockedMs > this.#data.maxLoopBlockMs) {
      return { kind: 'missed', reason: `the event loop is blocked for ${Math.round(blockedMs)} ms` };
    }
    const used = process.cpuUsage(this.#cpu);
    const fraction = (used.user + used.system) / 1_000 / Math.max(1, nowMs - this.#cpuAtMs);
    this.#cpu = process.cpuUsage();
    this.#cpuAtMs = nowMs;
    const inFlight = Atomics.load(this.#state, IN_FLIGHT);
    const rss = process.memoryUsage.rss();
    const isDraining = Atomics.load(this.#state, DRAINING) === 1;
    const loads = loadLoads(this.#state, this.#data.queues);
    const told = JSON.stringify(Object.fromEntries(loads.map(({ queue, ...load }) => [queue, load])));
    const { workerId } = this.#data;
    try {
      const [row] = await run(
        db,
        renewLease,
        workerId,
        inFlight,
        fraction,
        rss,
        CLAIM_ANSWER_WITHIN_MS,
        told,
        isDraining,
      );
      return row === undefined ? { kind: 'lapsed' } : { kind: 'renewed', cancels: row.cancels, claims: row.claims };
    } catch (thrown) {
      return { kind: 'missed', reason: toError(thrown).message };
    }
  }
}

if (parentPort === null) throw new Bug('the lease thread was started outside a thread');
const port = parentPort;
const data = workerData as LeaseThreadData | undefined;
if (data?.workerId === undefined) throw new Bug('the lease thread was started without its data');
const keeper = new LeaseKeeper(data, (news) => port.postMessage(news));
port.on('message', (order: LeaseOrder) => keeper.order(order));
await keeper.run();
port.close();
