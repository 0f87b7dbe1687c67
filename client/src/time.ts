/** Time and randomness of the client, in one place, so that tests can hold them. */

/** What a client needs of the world around it. */
export interface ClientDeps {
  readonly fetch: typeof globalThis.fetch;
  /** Milliseconds of a clock that never goes back. */
  readonly monotonicMs: () => number;
  /** Resolves after so many milliseconds, or as soon as `signal` aborts. Never rejects. */
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
  /** 0 inclusive to 1 exclusive. */
  readonly random: () => number;
  /** A new key for a request or a message. */
  readonly newKey: () => string;
}

/** The machine's own. */
export const systemDeps: ClientDeps = {
  fetch: async (input, init) => await globalThis.fetch(input, init),
  monotonicMs: () => performance.now(),
  sleep: async (ms, signal) => {
    if (signal?.aborted === true) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, Math.max(ms, 0));
      signal?.addEventListener('abort', done, { once: true });
    });
  },
  random: () => Math.random(),
  newKey: () => globalThis.crypto.randomUUID(),
};

/** A deadline together with a caller's signal. `end` must be called: it forgets the timer. */
export interface Limit {
  readonly signal: AbortSignal;
  /** True where the time is over, not where the caller aborted. */
  readonly isOver: () => boolean;
  readonly leftMs: () => number;
  readonly end: () => void;
}

/** Starts a deadline of so many milliseconds. */
export function startLimit(deps: Pick<ClientDeps, 'monotonicMs' | 'sleep'>, ms: number, outer?: AbortSignal): Limit {
  const untilMs = deps.monotonicMs() + ms;
  const ended = new AbortController();
  const late = new AbortController();
  // Timers hold 31 bits; nobody waits for a month.
  void deps.sleep(Math.min(ms, 2_147_483_647), ended.signal).then(() => {
    if (!ended.signal.aborted) late.abort();
  });
  return {
    signal: outer === undefined ? late.signal : AbortSignal.any([late.signal, outer]),
    isOver: () => late.signal.aborted,
    leftMs: () => Math.max(0, untilMs - deps.monotonicMs()),
    end: () => ended.abort(),
  };
}
