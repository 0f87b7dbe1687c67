/**
 * Takes replays forward, step by step: a batch is sent, results are written down, the next wave begins, or the replay stops by
 * itself. Each step is one statement, so that a runner may die between any two, and another goes on from what the rows say.
 */
import type { ReplayState } from '../../shared/dead-letters/replay-state.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { judgeItems } from './replay-judge.ts';
import type { JudgeDeps } from './replay-judge.ts';
import { countWave, judgeWave } from './replay-judge.sql.ts';
import {
  beginWave,
  lookAtReplay,
  putReplayOff,
  rewindReplay,
  takeReplay,
  tellReplay,
  turnReplay,
} from './replay-runner.sql.ts';
import { ReplaySender } from './replay-sender.ts';
import type { ReplaySenderDeps } from './replay-sender.ts';
import { whoIsBehind } from './replay-versions.ts';
import { stopLimit, waveSize } from './waves.ts';
import type { Waves } from './waves.ts';

/** What the runner needs. */
export interface ReplayRunnerDeps extends Omit<LoopDeps, 'round'>, ReplaySenderDeps {
  readonly fingerprint: JudgeDeps['fingerprint'];
}

/** How the runner works. */
export interface ReplayRunnerOptions {
  /** Milliseconds between looks for replays that are due. */
  readonly intervalMs: number;
  /** Milliseconds after which a replay whose runner died is taken by another. */
  readonly takenForMs: number;
  /** Milliseconds after which a runner lets another replay have its turn. */
  readonly turnMs: number;
  /** Milliseconds after which a worker that did not renew its lease is not live. */
  readonly leaseMs: number;
}

/** Defaults. */
export const DEFAULT_RUNNER: ReplayRunnerOptions = {
  intervalMs: 250,
  takenForMs: 10_000,
  turnMs: 3_000,
  leaseMs: 20_000,
};

type Replay = RowOf<typeof lookAtReplay.columns>;

/** Milliseconds between two looks at results while a wave is being sent. */
const JUDGE_EVERY_MS = 500;
/** Milliseconds that a runner waits itself rather than put the replay off. */
const SHORT_MS = 200;
const POLL_MS = 250;
const POLL_SLOWLY_MS = 60_000;
const VERSION_POLL_MS = 1_000;

/** Replays of which a runner remembers how far it has looked. */
const MOST_SIGHTS = 1_000;
/** Of looking through all items of a wave and waiting for the next time, the share that is waiting: a wave may have a million. */
const REST = 3;

/** How far this runner has looked through the items of a replay. */
interface Sight {
  /** The next look begins behind this item; 0: at the first. */
  lastN: number;
  judgedAtMs: number;
  /** When looking through began, and how long it took the last time. */
  beganAtMs: number;
  tookMs: number;
}

/** Runs replays. */
export class ReplayRunner {
  readonly #deps: ReplayRunnerDeps;
  readonly #options: ReplayRunnerOptions;
  readonly #sender: ReplaySender;
  /** Outlives a turn: the last items of a large wave come into sight only after several. */
  readonly #sights = new Map<string, Sight>();

  constructor(deps: ReplayRunnerDeps, options: ReplayRunnerOptions = DEFAULT_RUNNER) {
    this.#deps = deps;
    this.#options = options;
    this.#sender = new ReplaySender(deps);
  }

  /** The loop that takes what is due, one replay after the other. */
  loop(): Loop {
    const { intervalMs } = this.#options;
    return new Loop(
      { ...this.#deps, round: async (signal) => await this.round(signal) },
      { name: 'replays', intervalMs },
    );
  }

  /** Takes one replay that is due forward, for a while. True where there was one. Throws as `Queryable.query`. */
  async round(signal: AbortSignal): Promise<boolean> {
    const { db, clock } = this.#deps;
    const [taken] = await run(db, takeReplay, this.#options.takenForMs);
    if (taken === undefined) return false;
    const endMs = clock.monotonicMs() + this.#options.turnMs;
    const sight = this.#sightOf(taken.id);
    for (;;) {
      const [replay] = await run(db, lookAtReplay, taken.id);
      if (replay === undefined) return true;
      const delayMs = await this.#step(replay, sight);
      if (delayMs !== undefined && delayMs <= SHORT_MS && !signal.aborted && clock.monotonicMs() < endMs) {
        if (delayMs > 0) await clock.sleep(delayMs, signal);
        continue;
      }
      if (delayMs === undefined) this.#sights.delete(replay.id);
      await run(db, putReplayOff, replay.id, replay.version, delayMs ?? null);
      return true;
    }
  }

  #sightOf(id: string): Sight {
    const known = this.#sights.get(id);
    if (known !== undefined) return known;
    if (this.#sights.size >= MOST_SIGHTS) this.#sights.clear();
    const sight = { lastN: 0, judgedAtMs: Number.NEGATIVE_INFINITY, beganAtMs: 0, tookMs: 0 };
    this.#sights.set(id, sight);
    return sight;
  }

  /** One step; gives the milliseconds until the next, `undefined` where there is none. */
  async #step(replay: Replay, sight: Sight): Promise<number | undefined> {
    const isSending = replay.state === 'running' && replay.next_n <= replay.wave_end;
    const isJudging = !isSending || this.#deps.clock.monotonicMs() - sight.judgedAtMs >= JUDGE_EVERY_MS;
    if (isJudging && replay.wave > 0) await this.#judge(replay, sight);
    if (replay.state === 'waiting') return await this.#awaitVersion(replay);
    if (replay.wave === 0) return replay.state === 'running' ? await this.#beginWave(replay) : undefined;
    // The next look goes on where this one ended.
    if (!isSending && sight.lastN > 0) return 0;
    const [wave] = isJudging ? await run(this.#deps.db, judgeWave, replay.id) : [];
    if (replay.state !== 'running') {
      if (wave?.has_running !== true) return undefined;
      return Math.min(POLL_SLOWLY_MS, Math.max(1_000, replay.waited_ms / 10, sight.tookMs * REST));
    }
    // A single press has no wave timeout, and nothing that could be stopped.
    const canStop = wave !== undefined && wave.failures > 0 && replay.wave_timeout_ms !== null;
    if (canStop && (await this.#isStopped(replay, wave, isSending))) return 0;
    if (isSending) return await this.#sender.send(replay);
    if (wave?.is_open === true && replay.awaits) return await this.#awaitWave(replay, sight);
    if (replay.next_n <= replay.items) return await this.#beginWave(replay);
    // What one runner gave back after another had gone on.
    if ((await run(this.#deps.db, rewindReplay, replay.id)).length > 0) return 0;
    await this.#turn(replay, 'finished', null);
    return 0;
  }

  async #judge(replay: Replay, sight: Sight): Promise<void> {
    const { clock } = this.#deps;
    if (sight.lastN === 0) sight.beganAtMs = clock.monotonicMs();
    const look = await judgeItems(this.#deps, replay.id, sight.lastN);
    sight.lastN = look.lastN;
    sight.judgedAtMs = clock.monotonicMs();
    if (sight.lastN === 0) sight.tookMs = sight.judgedAtMs - sight.beganAtMs;
  }

  async #awaitVersion(replay: Replay): Promise<number> {
    const { db } = this.#deps;
    const { wait_for_version: range, types } = replay;
    const behind =
      range === null ? undefined : await whoIsBehind(db, range, { types: types ?? [], leaseMs: this.#options.leaseMs });
    if (behind === undefined) {
      await this.#turn(replay, 'running', null);
      return 0;
    }
    if (behind !== replay.state_reason) await run(db, tellReplay, replay.id, replay.version, behind);
    return VERSION_POLL_MS;
  }

  async #beginWave(replay: Replay): Promise<number> {
    const size = waveSize(replay.waves as Waves, replay.wave + 1, replay.items);
    await run(this.#deps.db, beginWave, replay.id, replay.wave, size);
    return 0;
  }

  async #awaitWave(replay: Replay, { tookMs }: Sight): Promise<number> {
    const { wave_timeout_ms: timeoutMs, waited_ms: waitedMs, wave } = replay;
    if (timeoutMs !== null && waitedMs >= timeoutMs) {
      const reason = `wave ${wave}: not every first new attempt ended within ${timeoutMs} ms; resume to go on without them`;
      await this.#turn(replay, 'paused', reason);
      return 0;
    }
    // A single press: nobody waits for its result, and there may be thousands.
    if (timeoutMs === null) return Math.min(Math.max(POLL_MS, waitedMs / 2), POLL_SLOWLY_MS * 5);
    const leftMs = Math.max(10, timeoutMs - waitedMs);
    return Math.min(leftMs, Math.max(POLL_MS, Math.min(waitedMs / 20, 2_000), tookMs * REST));
  }

  /** Stops the replay where too many items of the wave failed of the same. */
  async #isStopped(
    replay: Replay,
    { failures, fingerprint }: { readonly failures: number; readonly fingerprint: string | null },
    isSending: boolean,
  ): Promise<boolean> {
    const { db, log } = this.#deps;
    const planned = replay.wave_end - replay.wave_start + 1;
    // What is skipped does not count, and how much that is, is known when all of the wave was looked at.
    const sent = isSending ? planned : ((await run(db, countWave, replay.id))[0]?.sent ?? planned);
    const limit = stopLimit(replay.stop_after, sent);
    if (failures < limit) return false;
    const reason = `wave ${replay.wave}: ${failures} of ${sent} items failed of the same (${fingerprint ?? 'unknown'}), the limit is ${limit}`;
    await this.#turn(replay, 'stopped', reason);
    log.warn('replay stopped by itself', { replayId: replay.id, reason });
    return true;
  }

  async #turn(replay: Replay, state: ReplayState, reason: string | null): Promise<void> {
    const { db } = this.#deps;
    await retryConflicts(db, async () => await run(db, turnReplay, replay.id, replay.version, state, reason, newId()));
  }
}
