/** What becomes of tasks that this worker was handed and does not start. */
import { toError } from '../../shared/errors/to-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { deferUnknown, inviteAgain } from './claims.sql.ts';
import { handBackClaims } from './leases.sql.ts';

/** What it needs. */
export interface UnstartedDeps {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Logger;
  /** Publishes what was made claimable; resolves true with the broker's confirm. Never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
}

interface Wanted {
  readonly taskId: string;
  readonly generation: number;
}

/** Milliseconds until a task of an unknown type is invited again: a rolling deployment is soon over, and nothing is spent. */
const UNKNOWN_AGAIN_MS = 10_000;
/** Milliseconds before a failure to put off is told: the delivery goes back then, and the broker brings it again at once. */
const FAILED_AGAIN_MS = 1_000;

/** Puts off, invites again, hands back. */
export class Unstarted {
  readonly #deps: UnstartedDeps;
  readonly #deferrals: Batcher<Wanted, undefined>;
  readonly #invitations: Batcher<Wanted, boolean>;

  constructor(deps: UnstartedDeps, options: { readonly maxBatch: number }) {
    this.#deps = deps;
    const bounds = { maxBatch: options.maxBatch, lanes: 1 };
    this.#deferrals = new Batcher(async (batch) => await this.#defer(batch), bounds);
    this.#invitations = new Batcher(async (batch) => await this.#inviteAgain(batch), bounds);
  }

  /** Puts a task of a type that this worker does not know off. Throws, after a pause, while Postgres is away. */
  async defer(wanted: Wanted): Promise<void> {
    try {
      await this.#deferrals.add(wanted);
    } catch (thrown) {
      await this.#deps.clock.sleep(FAILED_AGAIN_MS);
      throw thrown;
    }
  }

  /** Invites a task anew that waits. True once the broker has confirmed, or where it no longer waits; false otherwise. */
  async inviteAgain(wanted: Wanted): Promise<boolean> {
    try {
      return await this.#invitations.add(wanted);
    } catch (thrown) {
      this.#deps.log.warn('task not invited again', { taskId: wanted.taskId, err: toError(thrown) });
      return false;
    }
  }

  /** Hands back what claims of this worker hold and nobody runs. Never rejects: the next renewal names them again. */
  async handBack(workerId: string, claimIds: readonly string[]): Promise<void> {
    const { db, log, invite } = this.#deps;
    try {
      const rows = await retryConflicts(db, async () => await run(db, handBackClaims, workerId, claimIds));
      if (rows.length > 0) log.warn('stray claims handed back', { workerId, tasks: rows.length });
      await Promise.all(outboxRowsOf(rows, ({ id }) => id).map(async (row) => await invite(row)));
    } catch (thrown) {
      log.warn('stray claims kept', { workerId, err: toError(thrown) });
    }
  }

  async #defer(batch: readonly Wanted[]): Promise<undefined[]> {
    const { db, log } = this.#deps;
    const { ids, generations } = columnsOf(batch);
    const deferred = await retryConflicts(
      db,
      async () => await run(db, deferUnknown, ids, generations, UNKNOWN_AGAIN_MS),
    );
    if (deferred.length > 0) {
      log.warn('task type unknown here', { tasks: deferred.length, hint: 'start workers that have it on this queue' });
    }
    return batch.map(() => undefined);
  }

  async #inviteAgain(batch: readonly Wanted[]): Promise<boolean[]> {
    const { db, invite } = this.#deps;
    const { ids, generations } = columnsOf(batch);
    const rows = await run(db, inviteAgain, ids, generations);
    const answers = await Promise.all(outboxRowsOf(rows, ({ id }) => id).map(async (row) => await invite(row)));
    const isConfirmed = answers.every(Boolean);
    return batch.map(() => isConfirmed);
  }
}

/** Each task once: a second delivery of it says nothing new. */
function columnsOf(batch: readonly Wanted[]): { ids: string[]; generations: number[] } {
  const once = new Map(batch.map(({ taskId, generation }) => [taskId, generation]));
  return { ids: [...once.keys()], generations: [...once.values()] };
}
