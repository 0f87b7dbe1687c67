/**
 * How many workers a queue wants. Gathers what Postgres, RabbitMQ and the estimates know; `workers-wanted.ts` decides. What many ask for at
 * once is read once: an autoscaler polls for each of its pools, and each producer may be asked.
 */
import type { AmqpConnection } from '../../shared/amqp/connection.ts';
import { readyCount } from '../../shared/amqp/throwaway-channel.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { idAtLeast, idMs } from '../../shared/tasks/ids.ts';
import type { KnownType } from '../../shared/tasks/type-catalog.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { arrivalRate } from './arrivals.ts';
import type { MeasuredRuns } from './estimates.ts';
import { readQueueLoad, sampleArrivals } from './scaling.sql.ts';
import { workersWanted } from './workers-wanted.ts';
import type { ScalingAim, ScalingFigures, WorkersWanted } from './workers-wanted.ts';

/** What it needs. */
export interface ScalingDeps {
  readonly db: Queryable;
  readonly clock: Pick<Clock, 'now' | 'monotonicMs'>;
  readonly types: () => readonly Pick<KnownType, 'name' | 'queue' | 'concurrency' | 'rate'>[];
  readonly runsOf: (taskType: string) => MeasuredRuns | undefined;
  /** Invitations of a queue that wait in RabbitMQ; `undefined` while it does not say. Never rejects. */
  readonly readyOf: (queue: string) => Promise<number | undefined>;
}

/** What is asked. */
export interface ScalingQuestion extends Omit<ScalingAim, 'startSeconds'> {
  readonly queue: string;
  /** Slots of a worker where none is there to tell. */
  readonly slotsPerWorker: number;
}

/** The figures, beside those that decide. */
export interface ScalingAnswer extends WorkersWanted {
  readonly figures: ScalingFigures;
  readonly mode: string;
  /** Of what waits: in RabbitMQ, in workers, for its turn in a fair queue. */
  readonly ready: number | undefined;
  readonly held: number;
  readonly turns: number;
  /** Workers on their way out, and what they still run. */
  readonly draining: number;
  readonly ending: number;
}

/** The time over which arrivals are averaged is cut in so many spans, of which the youngest show a rise. */
const SPANS = 24;
const RECENT_SPANS = 3;
/** Rows of a span: 2 400 in all, read by the key in 2 to 10 ms, however many there are. */
const ROWS_PER_SPAN = 100;
/** What was read this part of that time ago is read anew: 2 seconds of two minutes. */
const FRESH_SHARE = 1 / 60;
const LEAST_COVERED_SECONDS = 0.001;

type Sample = readonly {
  readonly span: number;
  readonly queue: string;
  readonly type: string;
  readonly seconds: number;
  readonly tasks: number;
}[];

/** How it looks: of the group `scaling` of the configuration. */
export interface ScalingOptions {
  /** Milliseconds over which arrivals are averaged. */
  readonly windowMs: number;
  /** Milliseconds that a new worker takes to be ready. */
  readonly workerStartMs: number;
}

/** Answers from what is at most two seconds old, or a sixtieth of the window; what workers run and hold is read anew. */
export class Scaling {
  readonly #deps: ScalingDeps;
  readonly #ready: Fresh<number | undefined>;
  readonly #sample: Fresh<Sample>;
  readonly #spanMs: number;
  readonly #startSeconds: number;

  constructor(deps: ScalingDeps, { windowMs, workerStartMs }: ScalingOptions) {
    this.#deps = deps;
    this.#spanMs = windowMs / SPANS;
    this.#startSeconds = workerStartMs / 1_000;
    const nowMs = (): number => deps.clock.monotonicMs();
    const freshMs = windowMs * FRESH_SHARE;
    this.#ready = new Fresh({ nowMs, freshMs }, async (queue) => await deps.readyOf(queue));
    this.#sample = new Fresh({ nowMs, freshMs }, async () => await this.#sampleArrivals());
  }

  /** Throws `queue-not-found`, and as `Queryable.query`. */
  async answer({ queue, slotsPerWorker, ...aim }: ScalingQuestion): Promise<ScalingAnswer> {
    const [load] = await run(this.#deps.db, readQueueLoad, queue);
    if (load === undefined) throw new WarrenError('queue-not-found', { queue });
    const { mode, workers, slots, running, held, draining, ending } = load;
    const ready = await this.#ready.get(queue);
    const sample = (await this.#sample.get('')).filter((row) => row.queue === queue);
    const turns = load.turns ?? 0;
    const meanRunSeconds = this.#meanRunSeconds(queue, sample);
    const figures: ScalingFigures = {
      waiting: ready === undefined ? undefined : ready + held + turns,
      running,
      // What comes into a queue that is drained waits until somebody opens it.
      arrivalPerSecond: mode === 'open' ? arrivalRate(spansOf(sample, this.#spanMs / 1_000), RECENT_SPANS) : 0,
      meanRunSeconds,
      slotsPerWorker: workers === 0 || slots === 0 ? slotsPerWorker : slots / workers,
      workers,
      mostRunning: this.#mostRunning(queue, sample),
      starts: mode !== 'paused',
    };
    const wanted = workersWanted(figures, { ...aim, startSeconds: this.#startSeconds });
    return { ...wanted, figures, mode, ready, held, turns, draining, ending };
  }

  /** Of the types that came in lately, each by how many; else of those that go to this queue, by how many ran. */
  #meanRunSeconds(queue: string, sample: Sample): number | undefined {
    const came = sample.map(({ type, tasks, seconds }) => ({ type, share: tasks / seconds }));
    return (
      this.#weighedSeconds(came) ??
      this.#weighedSeconds(
        this.#typesOf(queue).map(({ name }) => ({ type: name, share: this.#deps.runsOf(name)?.runs ?? 0 })),
      )
    );
  }

  #weighedSeconds(shares: readonly { readonly type: string; readonly share: number }[]): number | undefined {
    let [sum, total] = [0, 0];
    for (const { type, share } of shares) {
      const measured = this.#deps.runsOf(type);
      if (measured === undefined) continue;
      sum += share * measured.meanMs;
      total += share;
    }
    return total > 0 ? sum / total / 1_000 : undefined;
  }

  /** Where every type of the queue has a limit over all of its tasks: what they let run at once, together. */
  #mostRunning(queue: string, sample: Sample): number | undefined {
    const types = this.#typesOf(queue);
    const names = new Set(types.map(({ name }) => name));
    if (types.length === 0 || sample.some(({ type }) => !names.has(type))) return undefined;
    let most = 0;
    for (const { name, concurrency, rate } of types) {
      const meanMs = this.#deps.runsOf(name)?.meanMs;
      const atOnce = concurrency?.key === undefined ? concurrency?.limit : undefined;
      const byRate =
        rate === undefined || rate.key !== undefined || meanMs === undefined
          ? undefined
          : Math.max(1, Math.ceil((rate.limit / rate.perMs) * meanMs));
      if (atOnce === undefined && byRate === undefined) return undefined;
      most += Math.min(atOnce ?? Infinity, byRate ?? Infinity);
    }
    return most;
  }

  #typesOf(queue: string): ReturnType<ScalingDeps['types']> {
    return this.#deps.types().filter((type) => type.queue === queue);
  }

  async #sampleArrivals(): Promise<Sample> {
    // Ids carry the clock of those who made them, the producers: not Postgres's.
    const endMs = this.#deps.clock.now().getTime();
    const starts = Array.from({ length: SPANS }, (_, index) => endMs - (SPANS - index) * this.#spanMs);
    const lower = starts.map((ms) => idAtLeast(new Date(ms)));
    const upper = starts.map((ms) => idAtLeast(new Date(ms + this.#spanMs)));
    const rows = await run(this.#deps.db, sampleArrivals, lower, upper, ROWS_PER_SPAN);
    return rows.map((row) => ({
      ...row,
      span: row.span - 1,
      seconds: coveredSeconds(row, starts, this.#spanMs / 1_000),
    }));
  }
}

function coveredSeconds(
  { span, last_id: lastId }: RowOf<typeof sampleArrivals.columns>,
  starts: readonly number[],
  spanSeconds: number,
): number {
  if (lastId === null) return spanSeconds;
  return Math.max(LEAST_COVERED_SECONDS, (idMs(lastId) - (starts[span - 1] ?? 0)) / 1_000);
}

/** Every span, those without a task too. */
function spansOf(sample: Sample, spanSeconds: number): { readonly seconds: number; readonly tasks: number }[] {
  return Array.from({ length: SPANS }, (_, span) => {
    const rows = sample.filter((row) => row.span === span);
    const tasks = rows.reduce((sum, row) => sum + row.tasks, 0);
    return { tasks, seconds: rows[0]?.seconds ?? spanSeconds };
  });
}

/** Milliseconds that RabbitMQ may take: an autoscaler waits for three seconds by default, and then takes the answer for a failure. */
const READY_WITHIN_MS = 1_500;

/** Asks RabbitMQ what waits in a queue: 0 where there is no such queue, `undefined` where it does not say in time. */
export function createReadyOf(deps: {
  /** Not one that publishes: an alarm of the broker would leave the question without an answer. */
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly log: Logger;
  readonly names: Pick<Names, 'queue'>;
}): (queue: string) => Promise<number | undefined> {
  return async (queue) => {
    try {
      return (await readyCount(deps, deps.names.queue(queue), READY_WITHIN_MS)) ?? 0;
    } catch (thrown) {
      deps.log.debug('queue not read', { queue, err: toError(thrown) }); // the answer says so, and the connection's own lines do
      return undefined;
    }
  };
}

/** What was read a moment ago, or is being read: whoever asks meanwhile gets the same. */
class Fresh<T> {
  readonly #time: { readonly nowMs: () => number; readonly freshMs: number };
  readonly #read: (key: string) => Promise<T>;
  readonly #entries = new Map<string, { readonly atMs: number; readonly value: Promise<T> }>();

  constructor(time: { readonly nowMs: () => number; readonly freshMs: number }, read: (key: string) => Promise<T>) {
    this.#time = time;
    this.#read = read;
  }

  /** Rejects as reading does; what failed is read again by whoever asks next. */
  async get(key: string): Promise<T> {
    const found = this.#entries.get(key);
    if (found !== undefined && this.#time.nowMs() - found.atMs < this.#time.freshMs) return await found.value;
    const value = this.#read(key);
    this.#entries.set(key, { atMs: this.#time.nowMs(), value });
    try {
      return await value;
    } catch (thrown) {
      this.#entries.delete(key);
      throw thrown;
    }
  }
}
