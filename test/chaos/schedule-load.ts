/** Schedules of every second, one whose runs may overlap and one whose runs may not, and an operator who pauses them, has them go on and runs them now. */
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { Background } from './background.ts';

/** What it needs. */
export interface ScheduleLoadDeps {
  /** URL of a producer that is up, by a number from 0 to 1; `undefined` while there is none. */
  readonly producerUrl: (choice: number) => string | undefined;
  readonly random: () => number;
}

/** The schedule whose runs never overlap; the other allows it. */
export const ALONE = 'alone';
const BESIDE = 'beside';
/** Milliseconds between two instants of each. */
export const PACE_MS = 1_000;
const EVERY_MS = 1_000;
const PAUSE_SHARE = 0.08;
const RUN_SHARE = 0.1;
const AGAIN_AFTER_MS = 300;
const WITHIN_MS = 60_000;

/** Makes the schedules, acts until it is stopped, and leaves them paused. */
export class ScheduleLoad {
  readonly #deps: ScheduleLoadDeps;
  readonly #journal: string;
  readonly #background = new Background();

  constructor(deps: ScheduleLoadDeps, journal: string) {
    this.#deps = deps;
    this.#journal = journal;
  }

  start(): void {
    this.#background.start(async () => await this.#run());
  }

  /** Acts no more. Nothing is paused by that: see `pauseAll`. */
  async stop(): Promise<void> {
    await this.#background.stop();
  }

  /** Pauses them, so that an end comes. Throws where no producer answers in time. */
  async pauseAll(): Promise<void> {
    for (const name of [ALONE, BESIDE]) await this.#insist('POST', `/${name}/pause`, { reason: 'the run is over' });
  }

  async #run(): Promise<void> {
    const { random } = this.#deps;
    const { signal } = this.#background;
    for (const [name, overlap, ms] of [
      [ALONE, 'queue', 700],
      [BESIDE, 'allow', 100],
    ] as const) {
      const task = { type: 'fault.step', input: { journal: this.#journal, ms } };
      await this.#insist('POST', '', { name, everyMs: PACE_MS, overlap, catchUp: 'all', catchUpMost: 100, task });
    }
    while (!signal.aborted) {
      await systemClock.sleep(EVERY_MS, signal);
      for (const name of [ALONE, BESIDE]) {
        if (random() < PAUSE_SHARE) this.#post(`/${name}/pause`);
        else if (random() < 0.5) this.#post(`/${name}/resume`);
        if (random() < RUN_SHARE) this.#post(`/${name}/run`);
      }
    }
  }

  /** Sends it until it is answered with success: making the same again, or pausing what is paused, changes nothing. */
  async #insist(method: 'POST', path: string, body: unknown): Promise<void> {
    const untilMs = systemClock.monotonicMs() + WITHIN_MS;
    for (;;) {
      const status = await this.#send(method, path, body);
      if (status !== undefined && status < 300) return;
      if (systemClock.monotonicMs() > untilMs)
        throw new Error(`schedules${path} was answered ${status ?? 'by nobody'}`);
      await systemClock.sleep(AGAIN_AFTER_MS);
    }
  }

  #post(path: string): void {
    const asking = this.#send('POST', path, { reason: 'chaos' }).then(() => undefined);
    this.#background.track(asking);
  }

  async #send(method: 'POST', path: string, body: unknown): Promise<number | undefined> {
    const url = this.#deps.producerUrl(this.#deps.random());
    if (url === undefined) return undefined;
    try {
      return (await call(url, method, `/v1/schedules${path}`, body)).status;
    } catch {
      return undefined; // no answer: it may have worked
    }
  }
}
