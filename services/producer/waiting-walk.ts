/** Walks the tasks that wait, oldest first, in small steps: there is no index that names the state, and there shall be none. */
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Invitation } from '../../shared/tasks/invitation.ts';
import { walkWaiting } from './waiting-walk.sql.ts';

/** A task that is pending, with the invitation that stands for it. */
export interface WaitingTask extends Invitation {
  /** When it was invited, on Postgres's clock. */
  readonly invitedAt: Date;
}

/** Which tasks a walk answers. */
export interface WaitingFilter {
  /** Only tasks with a smaller id, which is a time: what was accepted later is left for the next walk. */
  readonly before: string;
  /** Ids from here on may still be missing, since their transaction is under way: the walk comes back to them. */
  readonly settledBefore: string;
  readonly queues: readonly string[];
  /** Milliseconds since the invitation, at least. */
  readonly waitedMs: number;
}

/** What one step saw. */
export interface WalkStep {
  readonly tasks: readonly WaitingTask[];
  /** True where the walk came to its end; the next step begins it anew. */
  readonly isEnd: boolean;
}

const ROWS_PER_STEP = 5_000;
const SMALLEST_ID = '00000000-0000-7000-8000-000000000000';

/**
 * Remembers how far it came. What had ended when a walk began is not walked again, but for `revisit`: a replay makes an old
 * task wait again.
 */
export class WaitingWalk {
  readonly #db: Database;
  #walkedTo = SMALLEST_ID;
  /** Everything with a smaller id had ended when the last walk began. */
  #endedBefore = SMALLEST_ID;
  #revisitedTo = SMALLEST_ID;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The next tasks, up to 5 000 rows on. Throws as `Queryable.query`. */
  async step(filter: WaitingFilter): Promise<WalkStep> {
    const seen = await this.#look(this.#walkedTo, filter.before, filter);
    if (seen.lastId !== undefined && seen.hasEnded && this.#walkedTo === this.#endedBefore) {
      this.#endedBefore = seen.lastId < filter.settledBefore ? seen.lastId : filter.settledBefore;
    }
    this.#walkedTo = seen.hasMore && seen.lastId !== undefined ? seen.lastId : this.#endedBefore;
    return { tasks: seen.tasks, isEnd: !seen.hasMore };
  }

  /** The next tasks among those that had ended, up to 5 000 rows on. Throws as `Queryable.query`. */
  async revisit(filter: WaitingFilter): Promise<WalkStep> {
    if (this.#revisitedTo >= this.#endedBefore) {
      this.#revisitedTo = SMALLEST_ID;
      return { tasks: [], isEnd: true };
    }
    const seen = await this.#look(this.#revisitedTo, this.#endedBefore, filter);
    this.#revisitedTo = seen.hasMore && seen.lastId !== undefined ? seen.lastId : SMALLEST_ID;
    return { tasks: seen.tasks, isEnd: !seen.hasMore };
  }

  async #look(after: string, before: string, { queues, waitedMs }: WaitingFilter): Promise<Seen> {
    const rows = await run(this.#db, walkWaiting, after, before, waitedMs, queues, ROWS_PER_STEP);
    const [walk] = rows;
    return {
      tasks: rows.flatMap(toWaiting),
      lastId: walk?.last_id ?? undefined,
      hasEnded: walk?.first_open_id === null,
      hasMore: walk?.rows_seen === ROWS_PER_STEP,
    };
  }
}

interface Seen {
  readonly tasks: readonly WaitingTask[];
  readonly lastId: string | undefined;
  /** True where all that was seen has ended. */
  readonly hasEnded: boolean;
  readonly hasMore: boolean;
}

function toWaiting(row: {
  readonly id: string | null;
  readonly type: string | null;
  readonly queue: string | null;
  readonly priority: number | null;
  readonly generation: number | null;
  readonly invited_at: Date | null;
}): WaitingTask[] {
  const { id, type, queue, priority, generation, invited_at: invitedAt } = row;
  if (id === null || type === null || queue === null || priority === null || generation === null || invitedAt === null)
    return []; // the row that only says where the walk stands
  return [{ taskId: id, type, queue, priority, generation, invitedAt }];
}
