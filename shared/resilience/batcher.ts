/** Group commit: what gathers while the last batch is under way becomes the next batch. No timer, so no added delay. */
import { Bug } from '../errors/warren-error.ts';

/** Bounds of a batcher. */
export interface BatcherOptions {
  /** Items in one batch, 1 or more. */
  readonly maxBatch: number;
  /** Batches under way at once, 1 or more. Two keep Postgres busy while an answer travels (measured best, decision 0003). */
  readonly lanes: number;
}

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (thrown: unknown) => void;
}

/**
 * Gathers items and hands them to `flush` in batches. `flush` answers one result per item, in order; when it rejects, every
 * item of that batch rejects with the same error. At low load an item travels alone, at once.
 */
export class Batcher<Item, Result> {
  readonly #flush: (items: readonly Item[]) => Promise<readonly Result[]>;
  readonly #options: BatcherOptions;
  #waiting: Waiting<Item, Result>[] = [];
  #underWay = 0;
  #isScheduled = false;
  #idleListeners: (() => void)[] = [];

  constructor(flush: (items: readonly Item[]) => Promise<readonly Result[]>, options: BatcherOptions) {
    this.#flush = flush;
    this.#options = options;
  }

  /** Items that wait for a lane. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Resolves with the item's result once its batch is through. */
  add(item: Item): Promise<Result> {
    // Not async, here and in what hands on its promise: on the hot path each such frame is a kilobyte of garbage per task.
    return new Promise<Result>((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#schedule();
    });
  }

  /** Resolves when nothing waits and nothing is under way. */
  async idle(): Promise<void> {
    if (this.#underWay === 0 && this.#waiting.length === 0) return;
    await new Promise<void>((resolve) => this.#idleListeners.push(resolve));
  }

  #schedule(): void {
    if (this.#isScheduled || this.#underWay >= this.#options.lanes || this.#waiting.length === 0) return;
    this.#isScheduled = true;
    // After the I/O of this turn, so that what one socket read brings travels together.
    setImmediate(() => {
      this.#isScheduled = false;
      this.#next();
    });
  }

  #next(): void {
    if (this.#underWay >= this.#options.lanes || this.#waiting.length === 0) return;
    const batch = this.#waiting.slice(0, this.#options.maxBatch);
    this.#waiting = this.#waiting.slice(batch.length);
    this.#underWay += 1;
    void this.#run(batch);
    this.#schedule();
  }

  async #run(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    try {
      const results = await this.#flush(batch.map(({ item }) => item));
      if (results.length !== batch.length) throw new Bug(`flush answered ${results.length} of ${batch.length} items`);
      batch.forEach(({ resolve }, index) => resolve(results[index] as Result));
    } catch (thrown) {
      for (const { reject } of batch) reject(thrown);
    } finally {
      this.#underWay -= 1;
      this.#next();
      if (this.#underWay === 0 && this.#waiting.length === 0) {
        for (const listener of this.#idleListeners.splice(0)) listener();
      }
    }
  }
}
