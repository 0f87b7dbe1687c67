/** An impatient operator: replays dead letters while all burns, pressing the button twice each time, and cancels tasks. */
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { Background } from './background.ts';

/** One press of the button. `status` is absent where no answer came: it may have worked. */
export interface Press {
  readonly letterId: string;
  readonly status?: number;
}

/** What the operator needs. */
export interface OperatorDeps {
  /** URL of a dead-letter-handler that is up, by a number from 0 to 1. */
  readonly handlerUrl: (choice: number) => string | undefined;
  /** URL of a producer that is up. */
  readonly producerUrl: (choice: number) => string | undefined;
  /** Tasks of which the operator knows, in the order of their submission. */
  readonly taskIds: () => readonly string[];
  readonly random: () => number;
}

const EVERY_MS = 1_500;
/** Of the letters that are open, so many are replayed: the others are there at the end. */
const SHARE = 0.5;
const CANCELS_PER_ROUND = 2;
/** The youngest tasks, of which some are cancelled. */
const YOUNGEST = 40;

/** Replays and cancels until it is stopped. */
export class Operator {
  readonly presses: Press[] = [];
  /** Tasks whose cancelling was asked for, whatever was answered. */
  readonly cancelled = new Set<string>();
  readonly #deps: OperatorDeps;
  readonly #seen = new Set<string>();
  readonly #background = new Background();

  constructor(deps: OperatorDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#background.start(async () => await this.#run());
  }

  async stop(): Promise<void> {
    await this.#background.stop();
  }

  async #run(): Promise<void> {
    while (!this.#background.signal.aborted) {
      await systemClock.sleep(EVERY_MS, this.#background.signal);
      for (const letterId of await this.#openLetters()) {
        if (this.#seen.has(letterId)) continue;
        this.#seen.add(letterId);
        if (this.#deps.random() >= SHARE) continue;
        // Nothing is waited for: a handler that stands still answers late, or never.
        this.#background.track(this.#press(letterId));
        this.#background.track(this.#press(letterId));
      }
      for (let count = 0; count < CANCELS_PER_ROUND; count += 1) this.#background.track(this.#cancel());
    }
  }

  async #openLetters(): Promise<readonly string[]> {
    const url = this.#deps.handlerUrl(this.#deps.random());
    if (url === undefined) return [];
    try {
      const { body } = await call(url, 'GET', '/v1/dead-letters?state=open&kind=task&limit=50');
      return ((body['items'] ?? []) as readonly { readonly id: string }[]).map(({ id }) => id);
    } catch {
      return []; // it is away; the next round asks another
    }
  }

  async #cancel(): Promise<void> {
    const { random, taskIds, producerUrl } = this.#deps;
    const young = taskIds().slice(-YOUNGEST);
    const taskId = young[Math.floor(random() * young.length)];
    const url = producerUrl(random());
    if (taskId === undefined || url === undefined) return;
    this.cancelled.add(taskId);
    try {
      await call(url, 'POST', `/v1/tasks/${taskId}/cancel`, { reason: 'chaos' });
    } catch {
      // no answer: it may have worked
    }
  }

  async #press(letterId: string): Promise<void> {
    const url = this.#deps.handlerUrl(this.#deps.random());
    if (url === undefined) return;
    try {
      const { status } = await call(url, 'POST', `/v1/dead-letters/${letterId}/replay`, { reason: 'chaos' });
      this.presses.push({ letterId, status });
    } catch {
      this.presses.push({ letterId }); // no answer: nobody knows
    }
  }
}
