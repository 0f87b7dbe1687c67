/** Time as a dependency. Nothing else reads a clock or sets a timer, so that tests can hold both. */

/** Time and timers. */
export interface Clock {
  /** The wall clock, for showing and for instants that leave the process. Decisions use Postgres's clock. */
  now(): Date;
  /** Milliseconds of a clock that never goes back, for durations. */
  monotonicMs(): number;
  /**
   * Resolves after `ms` milliseconds (0 to 2 147 483 647), or as soon as `signal` aborts. Never rejects: a loop looks at
   * its signal. A sleep with `unref` does not keep the process alive.
   */
  sleep(ms: number, signal?: AbortSignal, options?: { readonly unref?: boolean }): Promise<void>;
  /** Calls `fn` once after `ms` milliseconds; the returned function cancels it. Does not keep the process alive. */
  after(ms: number, fn: () => void): () => void;
}

const LONGEST_TIMER_MS = 2_147_483_647;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
  sleep: async (ms, signal, options) => {
    if (signal?.aborted === true) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(Math.max(ms, 0), LONGEST_TIMER_MS));
      if (options?.unref === true) timer.unref();
      signal?.addEventListener('abort', done, { once: true });
    });
  },
  after: (ms, fn) => {
    const timer = setTimeout(fn, Math.min(Math.max(ms, 0), LONGEST_TIMER_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};
