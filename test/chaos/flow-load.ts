/** The load of flows: some shapes at a steady rate, each start under a key of its own and sent again until it is answered. */
import { randomUUID } from 'node:crypto';
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { Background } from './background.ts';
import { bodyOf, drawShape } from './flow-shapes.ts';
import type { FlowPlan } from './flow-shapes.ts';
import type { Answer, Log } from './submissions.ts';

/** One start of a flow. */
export interface FlowSubmission {
  /** Its own name: the Idempotency-Key of the start, and a tag of the flow. */
  readonly key: string;
  readonly shape: string;
  readonly plan: FlowPlan;
  readonly answer: Answer;
  readonly flowId?: string | undefined;
  /** How often it was sent. */
  readonly times: number;
}

/** What the load needs. */
export interface FlowLoadDeps {
  readonly submissions: Log<FlowSubmission>;
  /** URL of a producer that is up, by a number from 0 to 1; `undefined` while there is none. */
  readonly producerUrl: (choice: number) => string | undefined;
  readonly random: () => number;
}

/** How heavy it is. */
export interface FlowLoadOptions {
  /** Flows a second. */
  readonly perSecond: number;
  /** Log of the handlers. */
  readonly journal: string;
}

const MOST_UNDER_WAY = 50;
const MOST_TIMES = 5;
const AGAIN_AFTER_MS = 500;

/** Starts flows until it is stopped. */
export class FlowLoad {
  readonly #deps: FlowLoadDeps;
  readonly #options: FlowLoadOptions;
  readonly #background = new Background();

  constructor(deps: FlowLoadDeps, options: FlowLoadOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  start(): void {
    this.#background.start(async () => await this.#run());
  }

  /** Starts no more, and resolves when every start has its answer. */
  async stop(): Promise<void> {
    await this.#background.stop();
  }

  async #run(): Promise<void> {
    const { random } = this.#deps;
    const startMs = systemClock.monotonicMs();
    for (let count = 0; !this.#background.signal.aborted; count += 1) {
      const dueMs = startMs + (count / this.#options.perSecond) * 1_000;
      await systemClock.sleep(Math.max(1, dueMs - systemClock.monotonicMs()), this.#background.signal);
      // The draws do not depend on what was answered, so that a seed gives the same flows.
      const shape = drawShape(random);
      const plan = shape.draw((least, most) => least + Math.floor(random() * (most - least + 1)));
      const choice = random();
      if (this.#background.underWay >= MOST_UNDER_WAY) continue;
      const submitting = this.#submit(shape.name, plan, choice);
      this.#background.track(submitting);
    }
  }

  async #submit(shape: string, plan: FlowPlan, choice: number): Promise<void> {
    const key = randomUUID();
    const body = bodyOf(plan, { name: shape, key, journal: this.#options.journal });
    let answer: Answer = 'unknown';
    let flowId: string | undefined;
    let times = 0;
    while (answer === 'unknown' && times < MOST_TIMES) {
      if (times > 0) await systemClock.sleep(AGAIN_AFTER_MS);
      times += 1;
      ({ answer, flowId } = await this.#post(key, body, choice));
    }
    this.#deps.submissions.add({ key, shape, plan, answer, times, ...(flowId === undefined ? {} : { flowId }) });
  }

  async #post(
    key: string,
    body: unknown,
    choice: number,
  ): Promise<{ readonly answer: Answer; readonly flowId: string | undefined }> {
    const nothing = { answer: 'unknown', flowId: undefined } as const;
    const url = this.#deps.producerUrl(choice);
    if (url === undefined) return nothing;
    try {
      const answered = await call(url, 'POST', '/v1/flows', body, undefined, { 'idempotency-key': key });
      if (answered.status === 202) return { answer: 'accepted', flowId: String(answered.body['id']) };
      // 409: the same key is under way.
      const isRefused = answered.status >= 400 && answered.status < 500 && answered.status !== 409;
      return isRefused ? { answer: 'refused', flowId: undefined } : nothing;
    } catch {
      return nothing; // killed, cut off, too late
    }
  }
}
