/**
 * Measures what estimates are made from, beside the hot path: how long runs take, and how many were started out of each queue.
 * Kept in memory and stored every few seconds; what an outage or a crash costs of it is missed by nobody.
 */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { arrayLiteral, run } from '../../shared/postgres/statement.ts';
import { RUN_TIME_BUCKETS, runTimeBucket } from '../../shared/tasks/run-times.ts';
import { countStarts, weighRunTimes } from './measures.sql.ts';

/** Attempts that were started. */
export interface Starts {
  readonly queue: string;
  readonly priority: number;
  /** How many, since the process began. */
  readonly started: number;
  /** The greatest id among their tasks; `''` before the first. */
  readonly newest: string;
}

/** What measuring needs. */
export interface MeasuresDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  /** Attempts that were started out of each queue at each priority since this process began. */
  readonly started: () => readonly Starts[];
}

/** How often it stores. */
export interface MeasuresOptions {
  /** Milliseconds between two rounds. Default 2 500. */
  readonly intervalMs: number;
}

/** The default: twice in each slot of five seconds. */
export const DEFAULT_MEASURES: MeasuresOptions = { intervalMs: 2_500 };

/** Gathers and stores. */
export class Measures implements Part {
  readonly #deps: MeasuresDeps;
  readonly #loop: Loop;
  readonly #runTimes = new Map<string, number[]>();
  readonly #counted = new Map<string, number>();

  constructor(deps: MeasuresDeps, options: MeasuresOptions = DEFAULT_MEASURES) {
    this.#deps = deps;
    this.#loop = new Loop(
      { ...deps, round: async () => await this.store() },
      { name: 'measures', intervalMs: options.intervalMs },
    );
  }

  /** A run that succeeded took so many milliseconds. */
  ran(taskType: string, ms: number): void {
    let weights = this.#runTimes.get(taskType);
    if (weights === undefined) {
      weights = Array.from({ length: RUN_TIME_BUCKETS }, () => 0);
      this.#runTimes.set(taskType, weights);
    }
    const bucket = runTimeBucket(ms);
    weights[bucket] = (weights[bucket] ?? 0) + 1;
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
  }

  /** Stores what was gathered. Throws as `Queryable.query`; what could not be stored is given up. */
  async store(): Promise<void> {
    const { db, started } = this.#deps;
    const runTimes = [...this.#runTimes];
    this.#runTimes.clear();
    const counts = started()
      .map((each) => ({ ...each, key: `${each.queue}/${each.priority}` }))
      .map((each) => ({ ...each, more: each.started - (this.#counted.get(each.key) ?? 0) }))
      .filter(({ more }) => more > 0);
    for (const { key, started: count } of counts) this.#counted.set(key, count);
    if (runTimes.length > 0) {
      const weights = runTimes.map(([, each]) => arrayLiteral(each.map(String)));
      await run(
        db,
        weighRunTimes,
        runTimes.map(([type]) => type),
        weights,
      );
    }
    if (counts.length > 0) {
      await run(
        db,
        countStarts,
        counts.map(({ queue }) => queue),
        counts.map(({ priority }) => priority),
        counts.map(({ more }) => more),
        counts.map(({ newest }) => newest),
      );
    }
  }
}
