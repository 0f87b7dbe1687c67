/** One timer for the deadlines of all that runs: a timer for each attempt would cost more than a short attempt itself. */
import type { Clock } from '../../shared/time/clock.ts';

/** Calls `look` at or soon after each instant it was told to watch. */
export class Deadlines {
  readonly #clock: Clock;
  readonly #look: (nowMs: number) => number | undefined;
  #armedMs = Infinity;
  #cancel: (() => void) | undefined;

  /** `look` gets the monotonic time, does what is due, and answers the next instant to look at, if any. */
  constructor(clock: Clock, look: (nowMs: number) => number | undefined) {
    this.#clock = clock;
    this.#look = look;
  }

  /** Watches `atMs` (monotonic). What no longer waits by then costs one idle look. */
  watch(atMs: number): void {
    if (atMs >= this.#armedMs) return;
    this.#cancel?.();
    this.#armedMs = atMs;
    this.#cancel = this.#clock.after(Math.max(Math.ceil(atMs - this.#clock.monotonicMs()), 0), () => this.#fire());
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#armedMs = Infinity;
  }

  #fire(): void {
    this.#armedMs = Infinity;
    this.#cancel = undefined;
    const next = this.#look(this.#clock.monotonicMs());
    if (next !== undefined) this.watch(next);
  }
}
