/** Keeps at hand what estimates are made from, so that a look at a task costs no more than without. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { meanRunMs, runsOf, runTimeMs } from '../../shared/tasks/run-times.ts';
import { idMs } from '../../shared/tasks/ids.ts';
import { countAhead, readRunTimes, readStarts } from './estimates.sql.ts';
import { drainRate, estimateFinish, positionOf, startAtInstant, startByRates } from './outlook.ts';
import type { EstimatedFinish, EstimatedStart, LookedAt, QueueStart, RunTimes } from './outlook.ts';

/** What estimates need. */
export interface EstimatesDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Queryable;
  /** True where what waits in a queue starts by priority and age: it is open, and not fair. */
  readonly startsInOrder: (queue: string) => boolean;
}

/** How often they are made anew. */
export interface EstimatesOptions {
  /** Milliseconds between two readings. Default 2 500. */
  readonly intervalMs: number;
}

/** The default: as often as workers store what they measured. */
export const DEFAULT_ESTIMATES: EstimatesOptions = { intervalMs: 2_500 };

/** A task that waits. */
export interface WaitingTask extends LookedAt {
  readonly id: string;
  readonly queue: string;
  readonly priority: number;
}

/** What was measured of the runs of a type. */
export interface MeasuredRuns {
  readonly meanMs: number;
  /** How many, those of an hour ago by half. */
  readonly runs: number;
}

interface QueueStarts {
  readonly recent: QueueStart[];
  /** By priority: the greatest id that was started in ten minutes. */
  readonly newest: Map<number, string>;
}

/** As workers count. */
const SLOT_SECONDS = 5;
/** Rows that one look for a position walks: less than a millisecond. Beyond them it is reckoned. */
const MOST_ROWS = 1_000;
/** Looks for a position within a second, of one producer: a tenth of a core of Postgres. Whoever asks beyond is not told one. */
const LOOKS_PER_SECOND = 100;
const BEFORE_ALL_IDS = '00000000-0000-0000-0000-000000000000';

/** Reads in the background; what it answers, it answers from memory. */
export class Estimates implements Part {
  readonly #deps: EstimatesDeps;
  readonly #loop: Loop;
  #runTimes: ReadonlyMap<string, RunTimes & MeasuredRuns> = new Map();
  #starts: ReadonlyMap<string, QueueStarts> = new Map();
  #second = 0;
  #looks = 0;

  constructor(deps: EstimatesDeps, options: EstimatesOptions = DEFAULT_ESTIMATES) {
    this.#deps = deps;
    this.#loop = new Loop(
      { ...deps, round: async () => await this.refresh() },
      { name: 'estimates', intervalMs: options.intervalMs },
    );
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
  }

  /** How long runs of a type take; `undefined` where none was measured. */
  runsOf(taskType: string): MeasuredRuns | undefined {
    return this.#runTimes.get(taskType);
  }

  /** When a task that runs may end. */
  finishOf(taskType: string, task: LookedAt): EstimatedFinish | undefined {
    return estimateFinish(task, this.#runTimes.get(taskType));
  }

  /** When a task that waits may start; `undefined` where that cannot be told cheaply. Throws as `Queryable.query`. */
  async startOf(task: WaitingTask): Promise<EstimatedStart | undefined> {
    const { state, now, id, queue, priority } = task;
    if (state === 'scheduled' || state === 'retrying') return startAtInstant(task);
    if (state !== 'pending' || !this.#deps.startsInOrder(queue) || !this.#mayLook()) return undefined;
    const starts = this.#starts.get(queue);
    const newest = starts?.newest.get(priority);
    const [row] = await run(this.#deps.db, countAhead, id, newest ?? BEFORE_ALL_IDS, queue, priority, MOST_ROWS);
    const rowsSeen = row?.rows_seen ?? 0;
    const isCut = rowsSeen === MOST_ROWS;
    if (isCut && newest === undefined) return undefined; // nothing of the kind was started lately: there is no telling
    const position = positionOf({
      rowsSeen,
      ahead: row?.ahead ?? 0,
      seenMs: idMs(id) - idMs(row?.oldest_id ?? id),
      wholeMs: idMs(id) - idMs(newest ?? id),
      isCut,
    });
    return startByRates(now, position, drainRate(starts?.recent ?? [], priority, SLOT_SECONDS));
  }

  #mayLook(): boolean {
    const second = Math.floor(this.#deps.clock.monotonicMs() / 1_000);
    if (second !== this.#second) this.#looks = 0;
    this.#second = second;
    this.#looks += 1;
    return this.#looks <= LOOKS_PER_SECOND;
  }

  /** Reads now. Throws as `Queryable.query`. */
  async refresh(): Promise<void> {
    const rows = await run(this.#deps.db, readRunTimes);
    const runTimes = new Map<string, RunTimes & MeasuredRuns>();
    for (const { type, weights } of rows) {
      const p50Ms = runTimeMs(weights, 0.5);
      const p90Ms = runTimeMs(weights, 0.9);
      const meanMs = meanRunMs(weights);
      if (p50Ms === undefined || p90Ms === undefined || meanMs === undefined) continue;
      runTimes.set(type, { p50Ms, p90Ms, meanMs, runs: runsOf(weights) });
    }
    this.#runTimes = runTimes;
    const byQueue = new Map<string, QueueStarts>();
    for (const { queue, priority, slot, attempts, newest, is_recent: isRecent } of await run(
      this.#deps.db,
      readStarts,
    )) {
      const starts = byQueue.get(queue) ?? { recent: [], newest: new Map<number, string>() };
      byQueue.set(queue, starts);
      if (newest > (starts.newest.get(priority) ?? '')) starts.newest.set(priority, newest);
      if (isRecent === true) starts.recent.push({ priority, slot: Number(slot), attempts: Number(attempts) });
    }
    this.#starts = byQueue;
  }
}
