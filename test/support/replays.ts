/** Replays over a test's own database: letters to replay, workers that run what is sent, and runners that may die anywhere. */
import { openInputs } from './inputs.ts';
import { ReplayRunner } from '../../services/dead-letter-handler/replay-runner.ts';
import type { ReplayRunnerDeps, ReplayRunnerOptions } from '../../services/dead-letter-handler/replay-runner.ts';
import { createReplay, steer } from '../../services/dead-letter-handler/replays.ts';
import type { NewReplay, Steering } from '../../services/dead-letter-handler/replays.ts';
import { fingerprintOf } from '../../shared/dead-letters/fingerprint.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import type { TaskTypeDescription } from '../../shared/tasks/define-task.ts';
import { announceTypes } from '../../shared/tasks/announce.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { aDeath, addTask, aVerdict, openFaulty, openWorker, partDeps, rows } from './core.ts';
import type { NewTask, TestWorker } from './core.ts';
import { openDatabase } from './database.ts';
import { eventually } from './eventually.ts';
import { aType, SERVICE_PLANS } from './task-api.ts';

/** A replay's row as tests look at it. */
export interface ReplayRow {
  readonly id: string;
  readonly state: string;
  readonly state_reason: string | null;
  readonly version: number;
  readonly items: number;
  readonly wave: number;
  readonly next_n: number;
}

/** An item's row as tests look at it. */
export interface ItemRow {
  readonly n: number;
  readonly letter_id: string;
  readonly state: string;
  readonly wave: number | null;
  readonly task_id: string | null;
  readonly code: string | null;
  readonly why: string | null;
  readonly is_same: boolean | null;
  readonly error_type: string | null;
  readonly error_message: string | null;
  readonly new_letter_id: string | null;
  readonly judged_at: Date | null;
}

/** How runners fare: nothing happens to them, or each dies after a statement or two more than the one before it. */
export type Fate = 'undisturbed' | 'killed';

/** What becomes of a task that a worker runs. */
export type Ending = 'succeed' | 'die' | 'retry' | 'leave' | { readonly error: string; readonly ends: 'die' | 'retry' };

/** The place of one test. */
export interface ReplayBench extends AsyncDisposable {
  readonly db: Database;
  readonly worker: TestWorker;
  /** What was invited. */
  readonly invited: OutboxRow[];
  /** Tasks that have died, with their letters, oldest first. */
  dead(count: number, task?: NewTask & { readonly input?: string; readonly error?: string }): Promise<Dead[]>;
  /** Makes a replay of letters by their ids; `waves: none` unless said otherwise. */
  replay(ids: readonly string[], asked?: Partial<NewReplay>): Promise<string>;
  steer(id: string, step: Steering['step'], version?: number): Promise<void>;
  show(id: string): Promise<ReplayRow>;
  items(id: string): Promise<ItemRow[]>;
  /** Runs one round of a new runner; true where it had something to do. */
  round(): Promise<boolean>;
  /** Runs rounds until `check` passes. */
  until(check: () => Promise<void> | void): Promise<void>;
  /** Claims every pending task and ends it. Gives their ids. */
  work(end: Ending | ((taskId: string) => Ending)): Promise<readonly string[]>;
  runner(deps?: Partial<ReplayRunnerDeps>, options?: Partial<ReplayRunnerOptions>): ReplayRunner;
}

/** A dead task and its letter. */
export interface Dead {
  readonly taskId: string;
  readonly letterId: string;
}

/** Opens one. Types: `test.noop`, and `test.strict` whose input needs a text `to`. */
export async function openReplayBench(fate: Fate = 'undisturbed'): Promise<ReplayBench> {
  const { database: db, [Symbol.asyncDispose]: close } = await openDatabase({
    settings: { ...SERVICE_PLANS, plan_cache_mode: 'force_generic_plan' },
  });
  const faulty = await openFaulty(db);
  await announceTypes(db, TYPES, '1.0.0');
  const catalog = new TypeCatalog({ db, ...partDeps });
  await catalog.refresh();
  const worker = await openWorker(db);
  const invited: OutboxRow[] = [];
  let lives = 0;

  const deps: Omit<ReplayRunnerDeps, 'db'> = {
    ...partDeps,
    catalog,
    limits: { messageBytes: 262_144, depth: 64 },
    inputs: openInputs(db),
    replayer: {
      destinationOf: () => ({ exchange: '', routingKey: '' }),
      send: async () => await Promise.resolve(),
    },
    invite: async (row) => {
      invited.push(row);
      return await Promise.resolve(true);
    },
    fingerprint: (failure) => fingerprintOf(failure).id,
    refreshTypes: async () => await catalog.refresh(),
  };
  const replays = { ...deps, db, wake: () => undefined };
  const runner = (more: Partial<ReplayRunnerDeps> = {}, options: Partial<ReplayRunnerOptions> = {}): ReplayRunner =>
    new ReplayRunner(
      { ...deps, db: faulty, ...more },
      { intervalMs: 10, takenForMs: 1, turnMs: 100, leaseMs: 20_000, ...options },
    );

  const bench: ReplayBench = {
    db,
    worker,
    invited,
    runner,
    async dead(count, { input, error = 'no space', ...task } = {}) {
      const found: Dead[] = [];
      for (let n = 0; n < count; n += 1) {
        const taskId = await addTask(db, task);
        if (input !== undefined)
          await rows(db, 'update tasks set input = $2 where id = $1', taskId, Buffer.from(input));
        await bench.worker.settles.settle(
          await bench.worker.win(taskId, task.generation ?? 1),
          aDeath({ error: { type: 'DiskFull', message: error, causes: [] } }),
        );
        const [letter] = await rows<{ id: string }>(db, 'select id from dead_letters where task_id = $1', taskId);
        found.push({ taskId, letterId: letter?.id ?? '' });
      }
      return found.toSorted((a, b) => (a.letterId < b.letterId ? -1 : 1));
    },
    async replay(ids, asked = {}) {
      return await createReplay(
        {
          selection: { kind: 'ids', ids },
          waves: 'none',
          waveTimeoutMs: 600_000,
          reason: 'test',
          actor: { name: 'ann', role: 'operator' },
          ...asked,
        },
        replays,
      );
    },
    async steer(id, step, version) {
      await steer({ id, step, version, actor: { name: 'ann', role: 'operator' } }, replays);
    },
    async show(id) {
      return (await rows<ReplayRow>(db, 'select * from replays where id = $1', id))[0] as ReplayRow;
    },
    async items(id) {
      return await rows<ItemRow>(db, 'select * from replay_items where replay_id = $1 order by n', id);
    },
    async round() {
      if (fate === 'undisturbed') return await runner().round(new AbortController().signal);
      // Each life is a little longer than the last; every other time the last statement was done, and its answer is lost.
      lives += 1;
      let left = 1 + (lives % 12);
      faulty.fault = () => {
        left -= 1;
        if (left > 0) return undefined;
        return lives % 2 === 0 ? 'lose' : 'refuse';
      };
      try {
        return await runner().round(new AbortController().signal);
      } catch (thrown) {
        if (!isWarrenError(thrown, 'database-unavailable')) throw thrown;
        return true; // that was the end of it
      } finally {
        faulty.fault = () => undefined;
      }
    },
    async until(check) {
      await eventually(
        async () => {
          await bench.round();
          await check();
        },
        { withinMs: 10_000 },
      );
    },
    async work(end) {
      const pending = await rows<{ id: string; generation: number }>(
        db,
        `select id, generation from tasks where state = 'pending' order by id`,
      );
      const done: string[] = [];
      for (const { id, generation } of pending) {
        const how = typeof end === 'function' ? end(id) : end;
        if (how === 'leave') continue;
        done.push(id);
        const claim = await bench.worker.win(id, generation);
        if (how === 'succeed') {
          await bench.worker.settles.succeed(claim, Buffer.from('{}'));
          continue;
        }
        const { error: message, ends } = typeof how === 'object' ? how : { error: 'no space', ends: how };
        const verdict = ends === 'die' ? aDeath : aVerdict;
        await bench.worker.settles.settle(claim, verdict({ error: { type: 'DiskFull', message, causes: [] } }));
      }
      return done;
    },
    async [Symbol.asyncDispose]() {
      await faulty.stop(systemClock.monotonicMs() + 2_000);
      await close();
    },
  };
  return bench;
}

const TYPES: readonly TaskTypeDescription[] = [
  aType('test.noop'),
  aType('test.other', { queue: 'other' }),
  aType('test.limited', { concurrency: { limit: 5, key: 'input.tenant' } }),
  aType('test.strict', {
    inputSchema: { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] },
  }),
];
