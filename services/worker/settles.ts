/** Settles: the conditional updates that end attempts, in batches, tried until Postgres answers. */
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { isWorthTelling } from '../../shared/observability/repeats.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { runSplitting } from '../../shared/postgres/split.ts';
import { run } from '../../shared/postgres/statement.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import type { InvitedRow } from '../../shared/tasks/outbox.ts';
import { describeError } from '../../shared/tasks/outcome.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { attemptFacts } from './attempt-facts.ts';
import type { ClaimBook } from './claim-book.ts';
import type { Claim } from './claims.ts';
import { forgetClaims, probeSettled, readSettled, settleOthers, settleSucceeded } from './settles.sql.ts';
import type { Verdict } from './verdict.ts';

/** What a settle came to: the task's state now, or `fenced` where the claim was no longer this worker's. */
export type Settled = 'succeeded' | 'retrying' | 'dead' | 'scheduled' | 'pending' | 'cancelled' | 'fenced';

/** What settles need. */
export interface SettlesDeps {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  readonly book: ClaimBook;
  /** Publishes what was handed back; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
}

/** Bounds of settles. */
export interface SettlesOptions {
  readonly maxBatch: number;
  /** Stored with each attempt that did not succeed. */
  readonly codeVersion: string;
}

interface Success {
  readonly claim: Claim;
  readonly result: Buffer | undefined;
}

interface Other {
  readonly claim: Claim;
  readonly verdict: Verdict;
}

const LONGEST_PAUSE_MS = 2_000;
/** Milliseconds that the sweeper leaves invitations to whoever committed them. */
const SWEPT_IN_MS = 10_000;

/** Ends attempts. */
export class Settles {
  readonly #deps: SettlesDeps;
  readonly #options: SettlesOptions;
  readonly #successes: Batcher<Success, Settled>;
  readonly #others: Batcher<Other, Settled>;
  readonly #stopping = new AbortController();

  constructor(deps: SettlesDeps, options: SettlesOptions) {
    this.#deps = deps;
    this.#options = options;
    const { maxBatch } = options;
    this.#successes = new Batcher(async (batch) => await this.#settleSuccesses(batch), { maxBatch, lanes: 2 });
    this.#others = new Batcher(async (batch) => await this.#settleOthers(batch), { maxBatch, lanes: 1 });
  }

  /** Ends an attempt that succeeded. A result that Postgres refuses makes the task dead as `result_unstorable`. */
  succeed(claim: Claim, result: Buffer | undefined): Promise<Settled> {
    return this.#successes.add({ claim, result });
  }

  /** Ends an attempt in any other way. */
  settle(claim: Claim, verdict: Verdict): Promise<Settled> {
    return this.#others.add({ claim, verdict });
  }

  /**
   * Resolves once no transaction of the handler holds the task any more: it was committed, and the row says that the attempt
   * succeeded, or it was not, and the attempt is still to be settled. A settle that met it in a batch would hold up others.
   */
  async whenDecided(claim: Claim): Promise<void> {
    const { taskId, attempt, claimId } = claim;
    const { clock, db, log, random } = this.#deps;
    for (let looks = 0; ; looks += 1) {
      const isDecided = await this.#untilAnswered(1, async () => {
        const [row] = await run(db, probeSettled, taskId, attempt, claimId);
        return row?.is_decided === true;
      });
      if (isDecided) return;
      if (this.#stopping.signal.aborted) throw new WarrenError('attempt-interrupted', { by: 'shutdown' });
      if (looks > 0 && isWorthTelling(looks)) {
        log.warn('settle waits for a transaction of its handler', {
          ...attemptFacts(claim.type, claim),
          looks,
          hint: 'commit or roll back before the handler ends',
        });
      }
      await clock.sleep(Math.min(20 * 2 ** looks, LONGEST_PAUSE_MS) * (0.5 + random() / 2), this.#stopping.signal);
    }
  }

  /** Resolves when every settle is through. */
  async idle(): Promise<void> {
    await this.#successes.idle();
    await this.#others.idle();
  }

  /** Makes settles that wait for Postgres give up: the lease will lapse and the attempts be repeated. */
  giveUp(): void {
    this.#stopping.abort();
  }

  /** Deletes finished claims that no settle came by to delete. Called from time to time. Throws as `Queryable.query`. */
  async forgetFinished(): Promise<void> {
    const finished = this.#deps.book.takeFinished();
    if (finished.length === 0) return;
    try {
      await run(this.#deps.db, forgetClaims, finished);
    } catch (thrown) {
      this.#deps.book.keepFinished(finished);
      throw thrown;
    }
  }

  async #settleSuccesses(batch: readonly Success[]): Promise<readonly Settled[]> {
    return await this.#withBook(
      batch,
      async (items, finished) => {
        const rows = await run(
          this.#deps.db,
          settleSucceeded,
          items.map(({ claim }) => claim.taskId),
          items.map(({ claim }) => claim.attempt),
          items.map(({ claim }) => claim.claimId),
          items.map(({ result }) => result ?? null),
          finished,
          SWEPT_IN_MS,
        );
        this.#invite(rows);
        const won = new Set(rows.map((row) => keyOf(row.id, row.attempt)));
        return items.map(({ claim }) => (won.has(keyOf(claim.taskId, claim.attempt)) ? 'succeeded' : undefined));
      },
      async ({ claim }, finished, thrown) => await this.#settleWithout(claim, finished, thrown),
    );
  }

  async #settleOthers(batch: readonly Other[]): Promise<readonly Settled[]> {
    return await this.#withBook(
      batch,
      async (items, finished) => await this.#runOthers(items, finished),
      async ({ claim }, finished, thrown) => await this.#settleWithout(claim, finished, thrown),
    );
  }

  /** What Postgres refuses of an outcome (a result, an error text) is left out, and the task dies of that. */
  async #settleWithout(claim: Claim, finished: readonly string[], thrown: unknown): Promise<Settled> {
    const items = [{ claim, verdict: unstorable(thrown) }];
    const [settled] = await this.#readUnclear(items, await this.#runOthers(items, finished));
    return settled ?? 'fenced';
  }

  async #runOthers(items: readonly Other[], finished: readonly string[]): Promise<(Settled | undefined)[]> {
    const rows = await run(
      this.#deps.db,
      settleOthers,
      items.map(({ claim }) => claim.taskId),
      items.map(({ claim }) => claim.attempt),
      items.map(({ claim }) => claim.claimId),
      items.map(({ verdict }) => verdict.state),
      items.map(({ verdict }) => verdict.failures),
      items.map(({ verdict }) => verdict.delayMs),
      items.map(({ verdict }) => verdict.outcome),
      items.map(({ verdict }) => verdict.reason),
      items.map(() => newId()),
      items.map(({ verdict }) => verdict.error?.type ?? null),
      items.map(({ verdict }) => verdict.error?.code ?? null),
      items.map(({ verdict }) => verdict.error?.message ?? null),
      items.map(({ verdict }) => verdict.error?.stack ?? null),
      this.#options.codeVersion,
      finished,
      items.some(({ claim }) => claim.span !== undefined) ? items.map(({ claim }) => claim.span ?? null) : null,
    );
    this.#invite(rows);
    const states = new Map(rows.map((row) => [keyOf(row.id, row.attempt), row.state as Settled]));
    return items.map(({ claim }) => states.get(keyOf(claim.taskId, claim.attempt)));
  }

  /** Publishes what waits again, and steps of flows that may start now. */
  #invite(rows: readonly (InvitedRow & { readonly id: string | null })[]): void {
    for (const row of outboxRowsOf(rows, ({ id }) => id ?? '')) void this.#deps.invite(row); // never rejects
  }

  /** Settles a batch and keeps the book of claims. `undefined` from `settleBatch`: the row did not match. */
  async #withBook<Item extends { readonly claim: Claim }>(
    batch: readonly Item[],
    settleBatch: (items: readonly Item[], finished: readonly string[]) => Promise<(Settled | undefined)[]>,
    refuse: (item: Item, finished: readonly string[], thrown: unknown) => Promise<Settled>,
  ): Promise<readonly Settled[]> {
    const { book } = this.#deps;
    const claimIds = batch.map(({ claim }) => claim.claimId);
    const finished = book.finishedWith(claimIds);
    // Claims that end with this batch may be deleted only once all of the batch is settled: with its last part.
    let left = batch.length;
    const settled = await this.#untilAnswered(batch.length, async () => {
      left = batch.length;
      return await runSplitting(
        this.#deps.db,
        batch,
        async (items) => {
          const answers = await settleBatch(items, left === items.length ? finished : []);
          left -= items.length;
          return await this.#readUnclear(items, answers);
        },
        async (item, thrown) => {
          const settled = await refuse(item, left === 1 ? finished : [], thrown);
          left -= 1;
          return settled;
        },
      );
    });
    book.settled(claimIds, finished);
    return settled;
  }

  /** A settle that won nothing may have been committed before its answer was lost: the row says so. */
  async #readUnclear(
    items: readonly { readonly claim: Claim }[],
    answers: readonly (Settled | undefined)[],
  ): Promise<Settled[]> {
    const clear = withoutShared(items, answers);
    const unclear = items.filter((_item, index) => clear[index] === undefined);
    if (unclear.length === 0) return clear as Settled[];
    const rows = await run(
      this.#deps.db,
      readSettled,
      unclear.map(({ claim }) => claim.taskId),
    );
    const byId = new Map(rows.map((row) => [row.id, row]));
    return items.map(({ claim }, index) => {
      const answer = clear[index];
      if (answer !== undefined) return answer;
      const row = byId.get(claim.taskId);
      const isOurs = row !== undefined && row.claim_id === claim.claimId && row.attempt === claim.attempt;
      return isOurs && row.state !== 'running' ? (row.state as Settled) : 'fenced';
    });
  }

  /** A finished run is not thrown away: a settle is tried until Postgres answers. The fence decides, not the clock. */
  async #untilAnswered<T>(count: number, settle: () => Promise<T>): Promise<T> {
    const { clock, log, random } = this.#deps;
    for (let tries = 0; ; tries += 1) {
      try {
        return await settle();
      } catch (thrown) {
        if (this.#stopping.signal.aborted) throw new WarrenError('attempt-interrupted', { by: 'shutdown' }, thrown);
        if (isWorthTelling(tries + 1)) {
          log.warn('settle delayed', {
            count,
            tries: tries + 1,
            err: toError(thrown),
            hint: 'the outcome is kept and tried again until Postgres takes it',
          });
        }
        await clock.sleep(Math.min(50 * 2 ** tries, LONGEST_PAUSE_MS) * (0.5 + random() / 2), this.#stopping.signal);
      }
    }
  }
}

/** A row without an attempt is of a step that may start now: no claim has such a key. */
function keyOf(taskId: string | null, attempt: number | null): string {
  return `${taskId}/${attempt}`;
}

/**
 * The answers without those of attempts that stand in the batch under several claims. A number is given once, unless
 * Postgres lost a commit: then only the row says which claim was meant.
 */
function withoutShared(
  items: readonly { readonly claim: Claim }[],
  answers: readonly (Settled | undefined)[],
): readonly (Settled | undefined)[] {
  const claimIds = new Map<string, string>();
  const shared = new Set<string>();
  for (const { claim } of items) {
    const key = keyOf(claim.taskId, claim.attempt);
    const known = claimIds.get(key);
    if (known === undefined) claimIds.set(key, claim.claimId);
    else if (known !== claim.claimId) shared.add(key);
  }
  if (shared.size === 0) return answers;
  return items.map(({ claim }, index) => (shared.has(keyOf(claim.taskId, claim.attempt)) ? undefined : answers[index]));
}

function unstorable(thrown: unknown): Verdict {
  const error = describeError(new WarrenError('result-unstorable', { reason: toError(thrown).message }));
  return { state: 'dead', failures: 1, delayMs: 0, outcome: 'failed', reason: 'result_unstorable', error };
}
