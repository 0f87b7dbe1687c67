/** Tells how long the task that waits longest has waited in each queue, and how many living workers consume it. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import { stillPending } from './aging.sql.ts';
import { hourOf, idBefore } from './ledger-books.ts';
import { countWorkers, findOldest, firstOpenHour } from './queue-ages.sql.ts';

/** What telling needs. */
export interface QueueAgesDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly metrics: Pick<Metrics, 'queueOldestSeconds' | 'workersAlive'>;
  /** The work queues, without prefix. */
  readonly queues: () => readonly string[];
  /** Invitations that wait in RabbitMQ, by the last reading; `undefined` before the first. */
  readonly readyOf: (queue: string) => number | undefined;
  /** False where another process shows these figures: then nothing is read. */
  readonly isShown: () => boolean;
}

/** How it tells. */
export interface QueueAgesOptions {
  /** Milliseconds between two rounds. Default 5 000. */
  readonly intervalMs?: number;
  /** Milliseconds without a renewal after which a worker is taken for dead. */
  readonly lapseMs: number;
}

const INTERVAL_MS = 5_000;
/** Rows of one statement, and statements of a round, of all queues. A statement takes some 10 ms (Postgres 15, two shared cores, 2026-12). */
const ROWS_PER_STEP = 5_000;
const STEPS_PER_ROUND = 20;
/** What is committed later than others that came after it is looked for again for so long. */
const SETTLED_AFTER_MS = 60_000;

/** Where the search in a queue stands. */
interface Search {
  /** Nothing of the queue waits that has a smaller id, but for what was retried or replayed. */
  after: string;
  oldest: { readonly id: string; readonly invitedAt: Date } | undefined;
}

/**
 * Makes the loop. No index names the state of a task, so the oldest one is searched for by id, only where invitations wait in RabbitMQ,
 * from the last moment on in which none did; once found, it is asked for by its key until it starts. What was retried or replayed has an
 * old id and a young invitation: where nothing else waits, the search begins anew at the first hour that has open tasks.
 */
export function createQueueAges(deps: QueueAgesDeps, options: QueueAgesOptions): Loop {
  const { db, metrics, clock } = deps;
  const searches = new Map<string, Search>();

  const searchOf = async (queue: string): Promise<Search> => {
    const known = searches.get(queue);
    if (known !== undefined) return known;
    const search: Search = { after: await firstOpenId(deps), oldest: undefined };
    searches.set(queue, search);
    return search;
  };

  /** Up to `most` statements. Tells how many it took, and whether all was seen. */
  const look = async (queue: string, search: Search, most: number): Promise<{ steps: number; isEnd: boolean }> => {
    const before = idAtLeast(clock.now());
    for (let steps = 1; steps <= most; steps += 1) {
      const [row] = await run(db, findOldest, search.after, before, queue, ROWS_PER_STEP);
      if (row !== undefined && row.id !== null && row.invited_at !== null) {
        search.oldest = { id: row.id, invitedAt: row.invited_at };
        search.after = row.id;
        return { steps, isEnd: true };
      }
      if (row?.rows_seen !== ROWS_PER_STEP) {
        search.after = await firstOpenId(deps);
        return { steps, isEnd: true };
      }
      search.after = row.last_id ?? search.after;
    }
    return { steps: most, isEnd: false };
  };

  const round = async (): Promise<void> => {
    if (!deps.isShown()) return searches.clear();
    const queues = deps.queues();
    const workers = await run(db, countWorkers, options.lapseMs);
    const nowMs = workers[0]?.at?.getTime() ?? clock.now().getTime();
    const alive = new Map(workers.map((row) => [row.queue, row.workers ?? 0]));
    for (const queue of queues) metrics.workersAlive.set(alive.get(queue) ?? 0, queue);

    const found = [...searches.values()].flatMap(({ oldest }) => (oldest === undefined ? [] : [oldest.id]));
    const waiting = new Set((await run(db, stillPending, found)).map(({ id }) => id));
    let left = STEPS_PER_ROUND;
    for (const queue of queues) {
      if (deps.readyOf(queue) === 0) {
        searches.set(queue, {
          after: idAtLeast(new Date(clock.now().getTime() - SETTLED_AFTER_MS)),
          oldest: undefined,
        });
        metrics.queueOldestSeconds.set(0, queue);
        continue;
      }
      const search = await searchOf(queue);
      if (search.oldest !== undefined && !waiting.has(search.oldest.id)) search.oldest = undefined;
      let isEnd = true;
      if (search.oldest === undefined) {
        const looked = await look(queue, search, left);
        left -= looked.steps;
        ({ isEnd } = looked);
      }
      const ageMs = search.oldest === undefined ? 0 : Math.max(0, nowMs - search.oldest.invitedAt.getTime());
      metrics.queueOldestSeconds.set(isEnd ? ageMs / 1_000 : Number.NaN, queue);
    }
  };
  return new Loop({ ...deps, round }, { name: 'queue ages', intervalMs: options.intervalMs ?? INTERVAL_MS });
}

/** An id below every task that can be open. The ledger has looked at all hours but the last two. */
async function firstOpenId({ db, clock }: QueueAgesDeps): Promise<string> {
  const [first] = await run(db, firstOpenHour);
  const recent = hourOf(clock.now()) - 2;
  return idBefore(Math.min(first?.hour ?? recent, recent));
}
