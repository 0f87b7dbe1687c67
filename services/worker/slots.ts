/** Local concurrency of one queue: a free slot takes the highest priority that waits. */

/** Why the wait for a slot ended. */
export type Turn = 'slot' | 'given-back';

interface Waiting {
  readonly resolve: (turn: Turn) => void;
  readonly sinceMs: number;
}

const PRIORITIES = 10;

/** Counts what runs, and holds what waits in order of priority, then of arrival. */
export class Slots {
  readonly concurrency: number;
  readonly #nowMs: () => number;
  readonly #waiting: Waiting[][] = Array.from({ length: PRIORITIES }, () => []);
  #taken = 0;
  #waitingCount = 0;

  constructor(concurrency: number, nowMs: () => number) {
    this.concurrency = concurrency;
    this.#nowMs = nowMs;
  }

  /** Attempts that hold a slot. */
  get taken(): number {
    return this.#taken;
  }

  /** Deliveries that wait for one. */
  get waiting(): number {
    return this.#waitingCount;
  }

  /** Milliseconds that the longest waiting has waited; 0 where nothing waits. */
  get longestWaitMs(): number {
    const first = this.#waiting.flatMap(([oldest]) => (oldest === undefined ? [] : [oldest.sinceMs]));
    return first.length === 0 ? 0 : this.#nowMs() - Math.min(...first);
  }

  /** Resolves with `slot` once one is free for this priority (0 to 9), or with `given-back` where `giveBack` came first. */
  take(priority: number): Turn | Promise<Turn> {
    if (this.#taken < this.concurrency) {
      this.#taken += 1;
      return 'slot';
    }
    return new Promise((resolve) => {
      const line = this.#waiting[Math.min(Math.max(Math.trunc(priority), 0), PRIORITIES - 1)] ?? [];
      line.push({ resolve, sinceMs: this.#nowMs() });
      this.#waitingCount += 1;
    });
  }

  /** Gives a slot to the next in line, or frees it. */
  release(): void {
    for (let priority = PRIORITIES - 1; priority >= 0; priority -= 1) {
      const next = this.#waiting[priority]?.shift();
      if (next !== undefined) {
        this.#waitingCount -= 1;
        next.resolve('slot');
        return;
      }
    }
    this.#taken -= 1;
  }

  /** Sends everything that waits away. */
  giveBack(): void {
    for (const line of this.#waiting) {
      for (const waiting of line.splice(0)) waiting.resolve('given-back');
    }
    this.#waitingCount = 0;
  }
}
