/**
 * Named circuit breakers of one process. A breaker that is open refuses at once and says when to come back, so that a
 * dependency that is down costs neither time nor attempts. The only file that knows opossum.
 */
import { setImmediate } from 'node:timers/promises';
import CircuitBreaker from 'opossum';
import { WarrenError } from '../errors/warren-error.ts';
import type { Clock } from '../time/clock.ts';

/** When a breaker opens and for how long. */
export interface BreakerOptions {
  /** Calls within the window below which it never opens, so that one slow first call does not. Default 10. */
  readonly volumeThreshold: number;
  /** Percentage of failed calls in the window above which it opens. 1 to 100. Default 50. */
  readonly errorThresholdPercent: number;
  /** Length of the rolling window, in milliseconds. Default 10 000. */
  readonly windowMs: number;
  /** How long it stays open before one call may probe, in milliseconds. Default 10 000. */
  readonly resetTimeoutMs: number;
  /** Longest call, in milliseconds: its signal aborts, it counts as failed. Bounds the probe too. Default 60 000. */
  readonly callTimeoutMs: number;
}

/** The defaults. */
export const DEFAULT_BREAKER: BreakerOptions = {
  volumeThreshold: 10,
  errorThresholdPercent: 50,
  windowMs: 10_000,
  resetTimeoutMs: 10_000,
  callTimeoutMs: 60_000,
};

/** What breakers need. */
export interface BreakersDeps {
  readonly clock: Clock;
  readonly random: () => number;
  /** False for errors that say nothing against the dependency (it answered "no such user"). */
  readonly isFailure: (thrown: unknown) => boolean;
  /** A breaker changed its state. */
  readonly onState?: (name: string, state: BreakerState) => void;
  /** The one call that a half-open breaker lets through failed. Its caller is told `breaker-open`, so this error is seen here only. */
  readonly onProbeFailed?: (name: string, thrown: unknown) => void;
  /** A call ended after its timeout had been answered: its effect may have happened all the same. */
  readonly onLateCompletion?: (name: string) => void;
}

/** State of one breaker. */
export type BreakerState = 'closed' | 'open' | 'half-open';

type Call = (signal: AbortSignal) => Promise<unknown>;

type CallArguments = [fn: Call, signal: AbortSignal, outer?: AbortSignal | undefined];

interface Entry {
  readonly circuit: CircuitBreaker<CallArguments>;
  openedAtMs: number;
}

/** More names than that are a mistake (a breaker per user): the one unused longest is forgotten. */
const MOST_BREAKERS = 1_000;

/** One breaker per name. Names are made by use. */
export class Breakers {
  readonly #deps: BreakersDeps;
  readonly #options: BreakerOptions;
  readonly #entries = new Map<string, Entry>();

  constructor(deps: BreakersDeps, options: BreakerOptions = DEFAULT_BREAKER) {
    this.#deps = deps;
    this.#options = options;
  }

  /**
   * Calls `fn` unless the breaker `name` is open. Throws what `fn` throws; an error with code `ETIMEDOUT` after
   * `callTimeoutMs`; `breaker-open` with `delayMs`, the rest of the reset timeout plus jitter, where it was not called, or
   * was called as the probe of a half-open breaker and failed: an outage of many probes must not be paid for by those few
   * that happen to make them. `fn`'s signal aborts at that timeout and with `outer`.
   */
  async run<T>(name: string, fn: (signal: AbortSignal) => Promise<T>, outer?: AbortSignal): Promise<T> {
    const entry = this.#entry(name);
    const { circuit } = entry;
    const inner = new AbortController();
    const passOn = (): void => inner.abort(outer?.reason);
    if (outer?.aborted === true) passOn();
    outer?.addEventListener('abort', passOn, { once: true });
    const isProbe = circuit.pendingClose;
    try {
      if (circuit.opened) throw this.#refusal(name, entry);
      return (await circuit.fire(fn, inner.signal, outer)) as T;
    } catch (thrown) {
      // A handler that calls in a tight loop must not keep the timers from running: they half-open the breaker.
      await setImmediate();
      const isOurs = CircuitBreaker.isOurError(toObject(thrown));
      if (isOurs && codeOfOurs(thrown) === 'EOPENBREAKER') throw this.#refusal(name, entry);
      if (isOurs) inner.abort(thrown);
      if (!isProbe || outer?.aborted === true || !(isOurs || this.#deps.isFailure(thrown))) throw thrown;
      this.#deps.onProbeFailed?.(name, thrown);
      throw this.#refusal(name, entry, thrown);
    } finally {
      outer?.removeEventListener('abort', passOn);
    }
  }

  /** The state of each breaker that was ever used and not forgotten. */
  states(): Map<string, BreakerState> {
    return new Map([...this.#entries].map(([name, { circuit }]) => [name, stateOf(circuit)]));
  }

  /** Stops the timers of all breakers and forgets them. Calls under way end as they end. */
  stop(): void {
    for (const { circuit } of this.#entries.values()) circuit.shutdown();
    this.#entries.clear();
  }

  #entry(name: string): Entry {
    const known = this.#entries.get(name);
    if (known !== undefined) {
      this.#entries.delete(name); // re-inserted below: the map's order is the order of use
      this.#entries.set(name, known);
      return known;
    }
    const oldest = this.#entries.size >= MOST_BREAKERS ? this.#entries.keys().next().value : undefined;
    if (oldest !== undefined) this.#forget(oldest);
    const made = this.#make(name);
    this.#entries.set(name, made);
    return made;
  }

  #forget(name: string): void {
    const circuit = this.#entries.get(name)?.circuit;
    const wasClosed = circuit === undefined || circuit.closed;
    circuit?.shutdown();
    this.#entries.delete(name);
    if (!wasClosed) this.#deps.onState?.(name, 'closed'); // the next call by that name is let through
  }

  #make(name: string): Entry {
    const { clock, isFailure, onState, onLateCompletion } = this.#deps;
    const options = this.#options;
    const action = async (...[fn, signal]: CallArguments): Promise<unknown> => {
      const value = await fn(signal);
      if (signal.aborted && CircuitBreaker.isOurError(toObject(signal.reason))) onLateCompletion?.(name);
      return value;
    };
    const circuit: Entry['circuit'] = new CircuitBreaker(action, {
      name,
      timeout: options.callTimeoutMs,
      resetTimeout: options.resetTimeoutMs,
      errorThresholdPercentage: options.errorThresholdPercent,
      volumeThreshold: options.volumeThreshold,
      rollingCountTimeout: options.windowMs,
      rollingPercentilesEnabled: false,
      enableSnapshots: false,
      // A call cut off from outside says nothing against the dependency, nor, where it was the probe, for it.
      errorFilter: (thrown: unknown, ...[, , outer]: (AbortSignal | undefined)[]) =>
        !isFailure(thrown) || (outer?.aborted === true && !circuit.halfOpen),
    });
    const entry: Entry = { circuit, openedAtMs: 0 };
    circuit.on('open', () => {
      entry.openedAtMs = clock.monotonicMs();
      onState?.(name, 'open');
    });
    circuit.on('halfOpen', () => onState?.(name, 'half-open'));
    circuit.on('close', () => {
      // Its window still holds the failures that opened it, so the next single one would open it again: start afresh.
      if (this.#entries.get(name) === entry) this.#forget(name);
      onState?.(name, 'closed');
    });
    return entry;
  }

  #refusal(name: string, entry: Entry, cause?: unknown): WarrenError {
    const { resetTimeoutMs } = this.#options;
    const restMs = entry.openedAtMs + resetTimeoutMs - this.#deps.clock.monotonicMs();
    // Half-open: the one probe is under way. Spread over a whole reset time, the waiting do not come back as one herd.
    const delayMs = Math.ceil(Math.max(restMs, resetTimeoutMs / 10) + this.#deps.random() * resetTimeoutMs);
    return new WarrenError('breaker-open', { breaker: name, delayMs }, cause);
  }
}

function stateOf(circuit: Entry['circuit']): BreakerState {
  if (circuit.opened) return 'open';
  return circuit.halfOpen ? 'half-open' : 'closed';
}

/** opossum looks for its mark on whatever was thrown, and would throw at `undefined`. */
function toObject(thrown: unknown): Error {
  return (typeof thrown === 'object' && thrown !== null ? thrown : {}) as Error;
}

function codeOfOurs(thrown: unknown): unknown {
  return (thrown as { code?: unknown }).code;
}
