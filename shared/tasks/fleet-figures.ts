/**
 * Says whether this process is the one that shows what concerns all of an installation, so that a sum over processes counts it once
 * (docs/decisions/0032).
 */
import { randomUUID } from 'node:crypto';
import { toError } from '../errors/to-error.ts';
import { Loop } from '../lifecycle/loop.ts';
import type { LoopDeps } from '../lifecycle/loop.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Database } from '../postgres/pool.ts';
import { run } from '../postgres/statement.ts';
import type { Queryable } from '../postgres/statement.ts';
import { holdFigures, leaveFigures } from './fleet-figures.sql.ts';

/** What showing needs. */
export interface FleetFiguresDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<Metrics, 'showFleetWhile'>;
}

/** How the right to show is kept. */
export interface FleetFiguresOptions {
  /** Which figures: one process of those that ask for the same name shows them. */
  readonly name: string;
  /** Milliseconds between two renewals. Default 5 000. */
  readonly intervalMs?: number;
  /** Milliseconds without a renewal after which another process may show them. Default 15 000. */
  readonly holdMs?: number;
}

const INTERVAL_MS = 5_000;
const HOLD_MS = 15_000;

/** Keeps asking Postgres for the right to show, and shows while it has it. */
export class FleetFigures implements Part {
  /** Names this process in the row that says who shows. */
  readonly processId: string = randomUUID();
  readonly #deps: FleetFiguresDeps;
  readonly #options: Required<FleetFiguresOptions>;
  readonly #loop: Loop;
  #shownUntilMs = Number.NEGATIVE_INFINITY;

  constructor(deps: FleetFiguresDeps, options: FleetFiguresOptions) {
    this.#deps = deps;
    this.#options = { intervalMs: INTERVAL_MS, holdMs: HOLD_MS, ...options };
    this.#loop = new Loop(
      { ...deps, round: async () => await this.#hold() },
      { name: 'fleet figures', intervalMs: this.#options.intervalMs },
    );
    deps.metrics.showFleetWhile(() => this.areOurs);
  }

  /** Which figures. */
  get name(): string {
    return this.#options.name;
  }

  /** True while this process shows them. Never true in two processes at once: it ends here before it lapses in Postgres. */
  get areOurs(): boolean {
    return this.#deps.clock.monotonicMs() < this.#shownUntilMs;
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
    if (!this.areOurs) return;
    this.#shownUntilMs = Number.NEGATIVE_INFINITY;
    const { db, clock, log } = this.#deps;
    const withinMs = Math.max(1, deadlineMs - clock.monotonicMs());
    try {
      const bounded: Queryable = { query: async (query) => await db.query({ ...query, withinMs }) };
      await run(bounded, leaveFigures, this.#options.name, this.processId);
    } catch (thrown) {
      log.debug('fleet figures left to lapse', { err: toError(thrown) });
    }
  }

  async #hold(): Promise<void> {
    const { name, holdMs } = this.#options;
    const askedMs = this.#deps.clock.monotonicMs();
    const [held] = await run(this.#deps.db, holdFigures, name, this.processId, holdMs);
    // Counted from before the question, Postgres counts from later: it lapses here first.
    this.#shownUntilMs = held === undefined ? Number.NEGATIVE_INFINITY : askedMs + holdMs;
  }
}
