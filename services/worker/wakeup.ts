/** Waits that something can cut short, also something that comes while nobody waits. */
import type { Clock } from '../../shared/time/clock.ts';

/** A bell: however often it rings before somebody listens, it is heard once. */
export class Wakeup {
  readonly #clock: Clock;
  #hasRung = false;
  #waiting: AbortController | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the wait, or the next one. */
  wake(): void {
    this.#hasRung = true;
    this.#waiting?.abort();
  }

  /** Waits `ms` milliseconds, 0 and less not at all. True as soon as it rings; false when the time is over or `signal` aborts. */
  async wait(ms: number, signal: AbortSignal): Promise<boolean> {
    if (!this.#hasRung && ms > 0 && !signal.aborted) {
      const waiting = new AbortController();
      const giveUp = (): void => waiting.abort();
      this.#waiting = waiting;
      // No AbortSignal.any: a signal that lives as long as its worker would remember every one that was made of it.
      signal.addEventListener('abort', giveUp, { once: true });
      await this.#clock.sleep(ms, waiting.signal);
      signal.removeEventListener('abort', giveUp);
      this.#waiting = undefined;
    }
    const isHeard = this.#hasRung && ms > 0 && !signal.aborted;
    if (isHeard) this.#hasRung = false;
    return isHeard;
  }
}
