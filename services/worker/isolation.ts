/**
 * Who may run beside whom in this worker. A task whose workers died repeatedly is a suspect and runs alone, so that what its
 * process dies of can be told from what merely stood beside it (decision 0012).
 */
import type { Interruption } from '../../shared/tasks/outcome.ts';

/** How the way in ended: `given-back` where the delivery should be given back, unclaimed. */
export type Entry = 'in' | 'given-back';

interface Entering {
  readonly resolve: (entry: Entry) => void;
  readonly sinceMs: number;
}

interface Suspect {
  readonly taskId: string;
  readonly resolve: (turn: 'alone' | Interruption) => void;
}

/**
 * The gate in front of the claims of one worker. Whoever enters leaves once. What waits in front of it is not claimed, so a
 * crash costs it no attempt. While no suspect is around, entering is a comparison and an addition.
 */
export class Isolation {
  readonly #nowMs: () => number;
  /** In order of arrival: while one is here, nobody enters. */
  readonly #suspects: Suspect[] = [];
  #entering: Entering[] = [];
  #inside = 0;
  #isAlone = false;
  #isStopping = false;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** True while a suspect runs alone or waits to. */
  get isClosed(): boolean {
    return this.#isAlone || this.#suspects.length > 0;
  }

  /** Milliseconds that the longest waiting delivery has waited to enter; 0 where none waits. */
  get longestWaitMs(): number {
    const [first] = this.#entering;
    return first === undefined ? 0 : this.#nowMs() - first.sinceMs;
  }

  /** Enters at once, or when the last suspect is through. `leave` follows each `in`, whatever happens. */
  enter(): Entry | Promise<Entry> {
    if (!this.isClosed) {
      this.#inside += 1;
      return 'in';
    }
    if (this.#isStopping) return 'given-back';
    return new Promise((resolve) => this.#entering.push({ resolve, sinceMs: this.#nowMs() }));
  }

  /**
   * Gives up the place beside others that `enter` gave, for one alone: resolves with `alone` when everybody else has left, or
   * with what cut the wait off. Suspects go one after the other, and wait for none that waits too.
   */
  alone(taskId: string): Promise<'alone' | Interruption> {
    if (this.#isStopping) return Promise.resolve('shutdown');
    return new Promise((resolve) => {
      this.#suspects.push({ taskId, resolve });
      this.leave();
    });
  }

  /** Leaves, alone or not. The last one out lets the next suspect run, or opens the gate. */
  leave(): void {
    this.#inside -= 1;
    if (this.#inside > 0) return;
    const next = this.#suspects.shift();
    this.#isAlone = next !== undefined;
    if (next === undefined) {
      this.#openIfFree();
    } else {
      this.#inside = 1;
      next.resolve('alone');
    }
  }

  /** Cuts the wait of a suspect off. False where it does not wait here. */
  abort(taskId: string, by: Interruption): boolean {
    const index = this.#suspects.findIndex((suspect) => suspect.taskId === taskId);
    const [suspect] = index < 0 ? [] : this.#suspects.splice(index, 1);
    if (suspect === undefined) return false;
    this.#inside += 1; // until it leaves
    suspect.resolve(by);
    this.#openIfFree();
    return true;
  }

  /** Cuts the waits of all suspects off. */
  abortAll(by: Interruption): void {
    for (const taskId of this.#suspects.map((suspect) => suspect.taskId)) this.abort(taskId, by);
  }

  /** Sends away what waits to enter. */
  giveBack(): void {
    for (const { resolve } of this.#entering.splice(0)) resolve('given-back');
  }

  /** The worker stops: nobody waits here any more. What runs goes on. */
  stop(): void {
    this.#isStopping = true;
    this.giveBack();
    this.abortAll('shutdown');
  }

  #openIfFree(): void {
    if (this.isClosed || this.#entering.length === 0) return;
    const entering = this.#entering;
    this.#entering = [];
    this.#inside += entering.length;
    for (const { resolve } of entering) resolve('in');
  }
}
