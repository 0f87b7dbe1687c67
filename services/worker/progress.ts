/** Stores what handlers say of their progress: the last word of each task, at most twice a second. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Clock } from '../../shared/time/clock.ts';
import type { ProgressWord } from './context.ts';
import { storeProgress } from './progress.sql.ts';

interface Word extends ProgressWord {
  readonly attempt: number;
}

const STORE_EVERY_MS = 500;
const MOST_AT_ONCE = 500;

/** Gathers progress and stores it. Losing a word in an outage does no harm: the next one follows. */
export class Progress implements Part {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #loop: Loop;
  readonly #words = new Map<string, Word>();

  constructor(deps: Omit<LoopDeps, 'round'> & { readonly db: Database }) {
    this.#db = deps.db;
    this.#clock = deps.clock;
    this.#loop = new Loop(
      { ...deps, round: async () => await this.#store() },
      { name: 'progress', intervalMs: STORE_EVERY_MS },
    );
  }

  /** Takes a word. Called by handlers as often as they like, also by one that was abandoned while its successor runs here. */
  say(taskId: string, attempt: number, word: ProgressWord): void {
    if ((this.#words.get(taskId)?.attempt ?? 0) > attempt) return;
    this.#words.set(taskId, { ...word, attempt });
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
    // A handler that was abandoned may go on to speak: the deadline bounds how long it is listened to.
    while ((await this.#store()) && this.#clock.monotonicMs() < deadlineMs);
  }

  async #store(): Promise<boolean> {
    if (this.#words.size === 0) return false;
    const said = [...this.#words].slice(0, MOST_AT_ONCE);
    for (const [taskId] of said) this.#words.delete(taskId);
    await run(
      this.#db,
      storeProgress,
      said.map(([taskId]) => taskId),
      said.map(([, word]) => word.attempt),
      said.map(([, word]) => word.fraction),
      said.map(([, word]) => word.step ?? null),
      said.map(([, word]) => word.message ?? null),
    );
    return this.#words.size > 0;
  }
}
