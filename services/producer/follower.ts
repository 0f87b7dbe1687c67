/**
 * Watches tasks for whoever follows them. One look at Postgres a round for all of them together, by primary key, and none while
 * nobody follows: the statements that move tasks know nothing of it.
 */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import type { AttemptRow } from '../../shared/tasks/attempts.ts';
import { isTerminal, stateOf } from '../../shared/tasks/state-machine.ts';
import type { FollowPoint } from './follow-point.ts';
import { followAttempts, followTasks } from './follower.sql.ts';

/** How a task stands. */
export type FollowedRow = RowOf<typeof followTasks.columns>;

/** What is new for one who follows. */
export interface Change {
  /** Undefined where there is no such task (any more). */
  readonly task: FollowedRow | undefined;
  /** Attempts that have ended since, oldest first, of those that did not succeed. */
  readonly attempts: readonly AttemptRow[];
  /** Up to where this tells. */
  readonly point: FollowPoint | undefined;
}

/** Somebody who follows a task. */
export interface Watcher {
  readonly taskId: string;
  /** What it was told before; `undefined`: nothing. */
  readonly told: FollowPoint | undefined;
  /** False while it cannot take more: then it is told later, and only how it stands then. */
  readonly isReady: () => boolean;
  /** Called with what is new; never throws. */
  readonly onChange: (change: Change) => void;
}

/** What following needs. */
export interface FollowerDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Queryable;
}

/** Bounds. */
export interface FollowerOptions {
  /** Those who may follow at once, at most. 1 or more. */
  readonly maxWatchers: number;
}

interface Watch {
  readonly watcher: Watcher;
  told: FollowPoint | undefined;
}

/** Milliseconds between looks while few follow, and while many do: what a look costs grows with them. */
const QUICK_MS = 50;
const USUAL_MS = 250;
const FEW = 50;
/** Tasks of one look at most. */
const PER_LOOK = 1_000;
/** Attempts of a task that are told at once: the last ones, as a look at it shows. */
const MOST_ATTEMPTS = 200;

/** Looks, and tells. */
export class Follower implements Part {
  readonly #deps: FollowerDeps;
  readonly #options: FollowerOptions;
  readonly #loop: Loop;
  readonly #watches = new Set<Watch>();
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #hasNew = false;

  constructor(deps: FollowerDeps, options: FollowerOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#loop = new Loop(
      { ...deps, round: async (stopping) => await this.#round(stopping) },
      { name: 'follower', intervalMs: QUICK_MS },
    );
  }

  /** How many follow now. */
  get watchers(): number {
    return this.#watches.size;
  }

  /** True where nobody more may follow. */
  get isFull(): boolean {
    return this.#watches.size >= this.#options.maxWatchers;
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
  }

  /** How a task stands now; `undefined` where there is none. Throws as `Queryable.query`. */
  async find(taskId: string): Promise<FollowedRow | undefined> {
    return (await run(this.#deps.db, followTasks, [taskId]))[0];
  }

  /** Follows a task; the returned function ends it. Throws `followers-full`. */
  watch(watcher: Watcher): () => void {
    if (this.isFull) throw new WarrenError('followers-full', { maxFollowers: this.#options.maxWatchers });
    const watch: Watch = { watcher, told: watcher.told };
    this.#watches.add(watch);
    this.#hasNew = true;
    this.#loop.wake();
    return () => void this.#watches.delete(watch);
  }

  /**
   * Waits until a task has ended, `ms` have passed, or `signal` aborts. True where it has ended or is gone. Throws
   * `followers-full`.
   */
  async whenEnded(taskId: string, ms: number, signal: AbortSignal): Promise<boolean> {
    const ended = new AbortController();
    const unwatch = this.watch({
      taskId,
      told: undefined,
      isReady: () => true,
      onChange: ({ task }) => {
        if (task === undefined || isTerminal(stateOf(task.state))) ended.abort();
      },
    });
    try {
      await this.#deps.clock.sleep(ms, AbortSignal.any([ended.signal, signal]));
      return ended.signal.aborted;
    } finally {
      unwatch();
    }
  }

  async #round(stopping: AbortSignal): Promise<void> {
    if (this.#watches.size === 0) return;
    const { clock } = this.#deps;
    const restMs = this.#watches.size <= FEW ? QUICK_MS : USUAL_MS;
    if (!this.#hasNew && clock.monotonicMs() - this.#lookedAtMs < restMs) return;
    this.#hasNew = false;
    this.#lookedAtMs = clock.monotonicMs();
    const watches = [...this.#watches];
    for (let from = 0; from < watches.length && !stopping.aborted; from += PER_LOOK) {
      await this.#look(watches.slice(from, from + PER_LOOK).filter(({ watcher }) => watcher.isReady()));
    }
  }

  async #look(watches: readonly Watch[]): Promise<void> {
    const { db } = this.#deps;
    const ids = [...new Set(watches.map(({ watcher }) => watcher.taskId))];
    if (ids.length === 0) return;
    const tasks = new Map((await run(db, followTasks, ids)).map((row) => [row.id, row]));
    const changed = watches.filter((watch) => hasNews(tasks.get(watch.watcher.taskId), watch.told));
    const attempts = await this.#attemptsOf(changed, tasks);
    for (const watch of changed) {
      if (!this.#watches.has(watch)) continue; // it left meanwhile
      const { watcher, told } = watch;
      const task = tasks.get(watcher.taskId);
      if (task === undefined) {
        watcher.onChange({ task, attempts: [], point: undefined });
        continue;
      }
      const afterAttempt = told?.endedAttempt ?? 0;
      // Those that ended after the task was looked at come with its next change.
      const ended = (attempts.get(watcher.taskId) ?? []).filter(
        ({ attempt }) => attempt > afterAttempt && attempt <= lastEnded(task),
      );
      watch.told = pointOf(task, Math.max(afterAttempt, lastEnded(task)));
      watcher.onChange({ task, attempts: ended, point: watch.told });
    }
  }

  /** The attempts that some have not been told of, by task. */
  async #attemptsOf(
    changed: readonly Watch[],
    tasks: ReadonlyMap<string, FollowedRow>,
  ): Promise<ReadonlyMap<string, readonly AttemptRow[]>> {
    const after = new Map<string, number>();
    for (const { watcher, told } of changed) {
      const task = tasks.get(watcher.taskId);
      const toldAttempt = told?.endedAttempt ?? 0;
      if (task === undefined || lastEnded(task) <= toldAttempt) continue;
      after.set(watcher.taskId, Math.min(after.get(watcher.taskId) ?? toldAttempt, toldAttempt));
    }
    const found = new Map<string, AttemptRow[]>();
    if (after.size === 0) return found;
    for (const row of await run(this.#deps.db, followAttempts, [...after.keys()], [...after.values()], MOST_ATTEMPTS)) {
      found.set(row.task_id, [...(found.get(row.task_id) ?? []), row]);
    }
    return found;
  }
}

/** The last attempt that is over. */
function lastEnded({ state, attempt }: FollowedRow): number {
  return state === 'running' ? attempt - 1 : attempt;
}

function pointOf(task: FollowedRow, endedAttempt: number): FollowPoint {
  const { attempt, generation, progress_at: at } = task;
  return { state: stateOf(task.state), attempt, generation, endedAttempt, progressMs: at?.getTime() ?? 0 };
}

function hasNews(task: FollowedRow | undefined, told: FollowPoint | undefined): boolean {
  if (task === undefined || told === undefined) return true;
  const isSame = task.state === told.state && task.attempt === told.attempt && task.generation === told.generation;
  return !isSame || lastEnded(task) > told.endedAttempt || (task.progress_at?.getTime() ?? 0) > told.progressMs;
}
