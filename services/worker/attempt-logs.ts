/**
 * Stores what attempts logged, beside their settles, so that no settle waits for it. They need no fence: what an attempt said, it
 * said, whether or not it had lost its claim.
 */
import { toError } from '../../shared/errors/to-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { isWorthTelling } from '../../shared/observability/repeats.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { storeAttemptLogs } from './attempt-logs.sql.ts';
import type { KeptLines } from './log-lines.ts';

/** What it needs. */
export interface AttemptLogsDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<Metrics, 'attemptLogsDropped'>;
}

interface Waiting {
  readonly taskId: string;
  readonly attempt: number;
  readonly lines: KeptLines;
}

const MOST_AT_ONCE = 50;
/** Characters that wait while Postgres is away, over all attempts; what comes beyond them is dropped. */
const MOST_WAITING_CHARACTERS = 16_777_216;
const EVERY_MS = 1_000;

/** Gathers the lines of attempts and stores them as soon as it can. */
export class AttemptLogs implements Part {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #metrics: AttemptLogsDeps['metrics'];
  readonly #loop: Loop;
  #waiting: Waiting[] = [];
  #waitingCharacters = 0;
  #dropped = 0;

  constructor(deps: AttemptLogsDeps) {
    this.#db = deps.db;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#metrics = deps.metrics;
    this.#loop = new Loop(
      { ...deps, round: async () => await this.#store() },
      { name: 'attempt logs', intervalMs: EVERY_MS },
    );
  }

  /** Takes the lines of an attempt that ended. */
  keep({ taskId, attempt }: { readonly taskId: string; readonly attempt: number }, lines: KeptLines): void {
    if (this.#waitingCharacters + lines.json.length > MOST_WAITING_CHARACTERS) {
      this.#dropped += 1;
      this.#metrics.attemptLogsDropped.add(1);
      if (isWorthTelling(this.#dropped)) this.#log.warn('attempt logs dropped', { dropped: this.#dropped });
      return;
    }
    this.#waiting.push({ taskId, attempt, lines });
    this.#waitingCharacters += lines.json.length;
    if (this.#db.isAvailable) this.#loop.wake();
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
    try {
      while ((await this.#store()) && this.#clock.monotonicMs() < deadlineMs);
    } catch (thrown) {
      this.#log.warn('attempt logs not stored before the end', {
        attempts: this.#waiting.length,
        err: toError(thrown),
      });
    }
  }

  async #store(): Promise<boolean> {
    const batch = this.#waiting.slice(0, MOST_AT_ONCE);
    if (batch.length === 0) return false;
    await run(
      this.#db,
      storeAttemptLogs,
      batch.map(({ taskId }) => taskId),
      batch.map(({ attempt }) => attempt),
      batch.map(({ lines }) => lines.json),
      batch.map(({ lines }) => lines.dropped),
    );
    // Only what is stored goes: rounds follow each other, so what waits in front is still the batch.
    this.#waiting = this.#waiting.slice(batch.length);
    for (const { lines } of batch) this.#waitingCharacters -= lines.json.length;
    return this.#waiting.length > 0;
  }
}
