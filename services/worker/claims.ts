/** Claims: the conditional update that starts attempts, in batches. */
import { randomUUID } from 'node:crypto';
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { TraceText } from '../../shared/observability/trace-context.ts';
import { isWorthTelling } from '../../shared/observability/repeats.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import type { Clock } from '../../shared/time/clock.ts';
import type { ClaimBook } from './claim-book.ts';
import { claimTasks, findClaimed, markAlone } from './claims.sql.ts';
import type { claimedColumns } from './claims.sql.ts';
import { claimRestricted, makeGroups } from './restricted-claims.sql.ts';

/** The proof that this worker may run an attempt: id, attempt and claim id together fence its settle. */
export interface Claim {
  readonly taskId: string;
  readonly claimId: string;
  /** As the row says it: what an invitation says chooses no code. */
  readonly type: string;
  /** From 1, rising over all lives of the task. */
  readonly attempt: number;
  /** Failures counted against the budget so far. */
  readonly failures: number;
  readonly maxAttempts: number;
  /** Attempts in this life of the task whose worker died. */
  readonly lostAttempts: number;
  /** The input's JSON, byte for byte; where there is an `inputFile` an outline of it. */
  readonly input: Buffer;
  /** The file in the store that holds the input, where it is too large for the row. */
  readonly inputFile: string | undefined;
  /** Milliseconds from being claimable to this start. */
  readonly waitMs: number;
  /** Under which its type's concurrency is limited; `undefined` where it is not. */
  readonly concurrencyKey: string | undefined;
  /** The flow that it is a step of. */
  readonly flowId: string | undefined;
  readonly businessKey: string | undefined;
  /** Where it stands in a trace: the span in which it was accepted, and from its start on, where spans are made, that of this attempt. */
  readonly trace: TraceText | undefined;
  /** The span in that trace of the last attempt that did not succeed. */
  readonly failedSpan: string | undefined;
  /** The span of this attempt, where spans are made. */
  readonly span?: string;
}

/**
 * What a claim came to. `lost`: somebody else has it, it ended, or the invitation is stale. `held`: a limit of its type is reached
 * or its queue is paused; whoever frees a place, or the resume, invites it.
 */
export type ClaimAnswer = { readonly kind: 'won'; readonly claim: Claim } | { readonly kind: 'lost' | 'held' };

/** What claims need. */
export interface ClaimsDeps {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  readonly book: ClaimBook;
  /** The id under which this worker holds its lease now. */
  readonly workerId: () => string;
  /** Resolves once a lease stands again, or the signal aborts. */
  readonly whenLeased: (signal: AbortSignal) => Promise<void>;
}

interface Wanted {
  readonly taskId: string;
  readonly generation: number;
}

/** What one try of a claim came to. */
interface Asked {
  readonly won: Map<string, Claim>;
  readonly held: ReadonlySet<string>;
}

const LOST: ClaimAnswer = { kind: 'lost' };
const HELD: ClaimAnswer = { kind: 'held' };
const LONGEST_PAUSE_MS = 2_000;
const NO_LEASE_PAUSE_MS = 200;

/** Claims tasks in batches. */
export class Claims {
  readonly #deps: ClaimsDeps;
  readonly #batcher: Batcher<Wanted, ClaimAnswer>;
  readonly #stopping = new AbortController();

  constructor(deps: ClaimsDeps, options: { readonly maxBatch: number }) {
    this.#deps = deps;
    this.#batcher = new Batcher(async (batch) => await this.#claim(batch), { maxBatch: options.maxBatch, lanes: 2 });
  }

  /**
   * Claims one task. While Postgres is away it waits, and asks again under the same claim id: a claim may have been
   * committed although its answer was lost. Throws `attempt-interrupted` once the worker gave up waiting.
   */
  claim(wanted: Wanted): Promise<ClaimAnswer> {
    return this.#batcher.add(wanted);
  }

  /**
   * Writes down that this attempt starts with nothing beside it in this worker, before it starts. False where the claim is no
   * longer this worker's: then it must not start. Throws as `Queryable.query`.
   */
  async markAlone({ taskId, attempt, claimId }: Claim): Promise<boolean> {
    return (await run(this.#deps.db, markAlone, taskId, attempt, claimId)).length > 0;
  }

  /** Makes claims that wait for Postgres give up. */
  giveUp(): void {
    this.#stopping.abort();
  }

  async #claim(batch: readonly Wanted[]): Promise<ClaimAnswer[]> {
    // An id is claimed once a batch; further deliveries of it lose, and so do those of a generation that another one outdates.
    const wanted = new Map<string, number>();
    for (const { taskId, generation } of batch) wanted.set(taskId, Math.max(wanted.get(taskId) ?? 0, generation));
    const { won, held } = await this.#askUntilAnswered(wanted);
    return batch.map(({ taskId, generation }) => {
      const claim = won.get(taskId);
      if (wanted.get(taskId) !== generation) return LOST;
      if (claim === undefined) return held.has(taskId) ? HELD : LOST;
      won.delete(taskId);
      return { kind: 'won', claim };
    });
  }

  async #askUntilAnswered(wanted: ReadonlyMap<string, number>): Promise<Asked> {
    for (;;) {
      const claimId = randomUUID();
      this.#deps.book.begin(claimId);
      const asked = await this.#askOnce(wanted, claimId);
      this.#deps.book.won(claimId, asked?.won.size ?? 0);
      if (asked !== undefined) return asked;
      // Without a lease nothing may be claimed, and nothing was: the tasks still wait for whoever asks with one.
      await this.#deps.whenLeased(this.#stopping.signal);
      await this.#deps.clock.sleep(NO_LEASE_PAUSE_MS, this.#stopping.signal); // the loss may not have been heard yet
      if (this.#stopping.signal.aborted) throw new WarrenError('attempt-interrupted', { by: 'shutdown' });
    }
  }

  /** Asks under one claim id until Postgres answers. `undefined`: this worker's lease does not stand. */
  async #askOnce(wanted: ReadonlyMap<string, number>, claimId: string): Promise<Asked | undefined> {
    const { db, clock, log, random } = this.#deps;
    const workerId = this.#deps.workerId();
    for (let tries = 0; ; tries += 1) {
      try {
        const won = new Map<string, Claim>();
        const ids = [...wanted.keys()];
        const rows = await retryConflicts(
          db,
          async () => await run(db, claimTasks, ids, [...wanted.values()], workerId, claimId),
        );
        for (const row of rows) keep(won, row, claimId);
        const restricted = rows[0]?.restricted ?? [];
        if (restricted.length > 0) await this.#askRestricted(wanted, restricted, { workerId, claimId, won });
        if (tries > 0 && won.size < wanted.size) {
          // Asked last: an earlier try may have been committed as late as just now, and cannot be any more.
          for (const row of await run(db, findClaimed, ids, claimId)) keep(won, row, claimId);
        }
        return rows[0]?.has_lease === true || won.size > 0 ? { won, held: new Set(restricted) } : undefined;
      } catch (thrown) {
        if (this.#stopping.signal.aborted) throw new WarrenError('attempt-interrupted', { by: 'shutdown' }, thrown);
        if (isWorthTelling(tries + 1)) {
          log.warn('claim delayed', { count: wanted.size, tries: tries + 1, err: toError(thrown) });
        }
        await clock.sleep(Math.min(50 * 2 ** tries, LONGEST_PAUSE_MS) * (0.5 + random() / 2), this.#stopping.signal);
      }
    }
  }

  /** Claims what has limits, as far as they leave room; what may not start is held back. */
  async #askRestricted(
    wanted: ReadonlyMap<string, number>,
    ids: readonly string[],
    {
      workerId,
      claimId,
      won,
    }: { readonly workerId: string; readonly claimId: string; readonly won: Map<string, Claim> },
  ): Promise<void> {
    const { db } = this.#deps;
    const generations = ids.map((id) => wanted.get(id) ?? 0);
    await retryConflicts(db, async () => await run(db, makeGroups, ids));
    const rows = await retryConflicts(
      db,
      async () => await run(db, claimRestricted, ids, generations, workerId, claimId),
    );
    for (const row of rows) keep(won, row, claimId);
  }
}

type ClaimedRow = RowOf<typeof claimedColumns>;

function keep(won: Map<string, Claim>, row: ClaimedRow, claimId: string): void {
  const { id, type, attempt, failures, max_attempts: maxAttempts, input } = row;
  if (id === null || type === null || attempt === null || failures === null || maxAttempts === null || input === null)
    return;
  const lostAttempts = row.lost_attempts ?? 0;
  won.set(id, {
    taskId: id,
    claimId,
    type,
    attempt,
    failures,
    maxAttempts,
    lostAttempts,
    input,
    inputFile: row.input_file ?? undefined,
    waitMs: row.wait_ms ?? 0,
    concurrencyKey: row.concurrency_key ?? undefined,
    flowId: row.flow_id ?? undefined,
    businessKey: row.business_key ?? undefined,
    trace: row.trace ?? undefined,
    failedSpan: row.failed_span ?? undefined,
  });
}
