/** Which queues are paused, as a worker knows it: at most a second late. The claim knows better, and decides. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { readPausedQueues } from './queue-modes.sql.ts';

const EVERY_MS = 1_000;

/** Looks again and again. */
export class QueueModes implements Part {
  readonly #loop: Loop;
  #paused: ReadonlySet<string> = new Set();

  constructor(deps: Omit<LoopDeps, 'round'> & { readonly db: Database }) {
    const round = async (): Promise<void> => {
      const [row] = await run(deps.db, readPausedQueues);
      this.#paused = new Set(row?.names ?? []);
    };
    this.#loop = new Loop({ ...deps, round }, { name: 'queue modes', intervalMs: EVERY_MS });
  }

  /** True where nothing of this queue is to be taken. */
  isPaused(queue: string): boolean {
    return this.#paused.has(queue);
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
  }
}
