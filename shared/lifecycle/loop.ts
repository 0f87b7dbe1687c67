/** The one way to do something again and again inside a process. */
import { toError } from '../errors/to-error.ts';
import type { Logger } from '../observability/log.ts';
import { isWorthTelling } from '../observability/repeats.ts';
import type { Clock } from '../time/clock.ts';
import type { Part } from './part.ts';

/** What a loop needs. */
export interface LoopDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  /** One round. Returns true where more is waiting, so that the next round follows at once. */
  readonly round: (signal: AbortSignal) => Promise<boolean | void>;
  /** Told the name of the loop at each round that failed, to count it. */
  readonly onFailure?: (loop: string) => void;
}

/** How a loop runs. */
export interface LoopOptions {
  /** Name in log lines. */
  readonly name: string;
  /** Milliseconds between rounds, up to a tenth more by jitter, so that replicas do not march in step. */
  readonly intervalMs: number;
}

/**
 * Calls `round` until stopped. A round that fails is logged, each time in a row less often, told to `onFailure` and never ends the loop; the next follows
 * after the interval, doubled per failure in a row up to 16 times.
 */
export class Loop implements Part {
  readonly #deps: LoopDeps;
  readonly #options: LoopOptions;
  #stopping = new AbortController();
  #waking = new AbortController();
  #running: Promise<void> | undefined;
  #wakes = 0;

  constructor(deps: LoopDeps, options: LoopOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#running ??= this.#run();
    await Promise.resolve();
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#stopping.abort();
    this.#waking.abort();
    if (this.#running === undefined) return;
    const { clock, log } = this.#deps;
    const race = new AbortController();
    const isDone = await Promise.race([
      this.#running.then(() => true),
      clock.sleep(deadlineMs - clock.monotonicMs(), race.signal).then(() => false),
    ]);
    race.abort();
    if (!isDone) log.warn('round given up at the deadline', { loop: this.#options.name });
  }

  /** Makes the next round follow at once. */
  wake(): void {
    this.#wakes += 1;
    this.#waking.abort();
  }

  async #run(): Promise<void> {
    const { clock, log, random, round, onFailure } = this.#deps;
    const stopping = this.#stopping.signal;
    let failures = 0;
    while (!stopping.aborted) {
      this.#waking = new AbortController();
      const wakesBefore = this.#wakes;
      let more = false;
      try {
        more = (await round(stopping)) === true;
        failures = 0;
      } catch (thrown) {
        failures += 1;
        if (!stopping.aborted) {
          if (isWorthTelling(failures)) {
            log.warn('round failed', { loop: this.#options.name, failuresInRow: failures, err: toError(thrown) });
          }
          onFailure?.(this.#options.name);
        }
      }
      if (more || this.#wakes !== wakesBefore) continue;
      const factor = failures === 0 ? 1 : Math.min(2 ** failures, 16);
      await clock.sleep(this.#options.intervalMs * factor * (1 + random() / 10), this.#waking.signal);
    }
  }
}
