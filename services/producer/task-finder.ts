/** Finds whole tasks by their ids: looks that come while others are under way share a statement. */
import type { Queryable } from '../../shared/postgres/statement.ts';
import { run } from '../../shared/postgres/statement.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import { findAttempts } from '../../shared/tasks/attempts.ts';
import type { AttemptRow } from '../../shared/tasks/attempts.ts';
import type { WholeTaskRow } from './tasks.ts';
import { readWholeTasks } from './tasks.sql.ts';

/** A whole task with its attempts, oldest first. */
export interface FoundTask {
  readonly task: WholeTaskRow;
  readonly attempts: readonly AttemptRow[];
}

/** Attempts that are shown of one task. */
const MOST_ATTEMPTS = 200;
/** Tasks in one statement: each comes with its input and its result. */
const MOST_AT_ONCE = 32;

/** Looks for whole tasks. */
export class TaskFinder {
  readonly #db: Queryable;
  readonly #looks: Batcher<string, WholeTaskRow | undefined>;

  constructor(db: Queryable) {
    this.#db = db;
    this.#looks = new Batcher(async (ids) => await this.#read(ids), { maxBatch: MOST_AT_ONCE, lanes: 2 });
  }

  /** A task as it stood no earlier than this call; `undefined` where there is none. Throws as `Queryable.query`. */
  async find(id: string): Promise<FoundTask | undefined> {
    const task = await this.#looks.add(id);
    if (task === undefined) return undefined;
    // Only attempts that did not succeed have rows, and only once they ended.
    const isAtFirst = task.attempt === 1 && (task.state === 'succeeded' || task.state === 'running');
    const attempts = task.attempt === 0 || isAtFirst ? [] : await findAttempts(this.#db, id, MOST_ATTEMPTS);
    return { task, attempts: attempts.toReversed() };
  }

  async #read(ids: readonly string[]): Promise<readonly (WholeTaskRow | undefined)[]> {
    const rows = await run(this.#db, readWholeTasks, [...new Set(ids)]);
    const [only] = rows;
    if (ids.length === 1) return [only];
    const byId = new Map(rows.map((row) => [row.id, row]));
    return ids.map((id) => byId.get(id));
  }
}
