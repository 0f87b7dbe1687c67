/** Operators of flows: they send signals, some twice, cancel flows, and have flows go on that ended as they should not. */
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { Background } from './background.ts';
import type { FlowSubmission } from './flow-load.ts';
import { SIGNAL } from './flow-shapes.ts';

/** What an operator needs. */
export interface FlowOperatorDeps {
  /** URL of a producer that is up, by a number from 0 to 1. */
  readonly producerUrl: (choice: number) => string | undefined;
  /** Flows in the order of their starts. */
  readonly flows: () => readonly FlowSubmission[];
  readonly random: () => number;
}

const EVERY_MS = 500;
/** Flows that wait for a signal get it in so many rounds of a hundred; the others' steps expire. */
const SIGNAL_SHARE = 0.25;
const CANCEL_SHARE = 0.12;
const RETRY_SHARE = 0.5;
/** The youngest flows, of which some are cancelled. */
const YOUNGEST = 12;

/** Acts until it is stopped. */
export class FlowOperator {
  /** Flows whose cancelling was asked for, whatever was answered. */
  readonly cancelled = new Set<string>();
  /** Flows that somebody wanted to go on, whatever was answered. */
  readonly retried = new Set<string>();
  readonly #deps: FlowOperatorDeps;
  readonly #background = new Background();

  constructor(deps: FlowOperatorDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#background.start(async () => await this.#run());
  }

  async stop(): Promise<void> {
    await this.#background.stop();
  }

  async #run(): Promise<void> {
    const { random, flows } = this.#deps;
    while (!this.#background.signal.aborted) {
      await systemClock.sleep(EVERY_MS, this.#background.signal);
      const known = flows().flatMap((each) => (each.flowId === undefined ? [] : [{ ...each, flowId: each.flowId }]));
      const pick = (from: typeof known): (typeof known)[number] | undefined => from[Math.floor(random() * from.length)];
      for (const { flowId, plan } of known.slice(-YOUNGEST)) {
        const waits = Object.values(plan.steps).some(({ signalMs }) => signalMs !== undefined);
        if (waits && random() < SIGNAL_SHARE) this.#post(`${flowId}/signals/${SIGNAL}`, { data: 'yes' });
      }
      const unwanted = random() < CANCEL_SHARE ? pick(known.slice(-YOUNGEST)) : undefined;
      if (unwanted !== undefined) {
        this.cancelled.add(unwanted.flowId);
        this.#post(`${unwanted.flowId}/cancel`, { reason: 'chaos' });
      }
      // Most have not ended, or succeeded: they are answered so.
      const again = random() < RETRY_SHARE ? pick(known) : undefined;
      if (again !== undefined) {
        const from = Object.keys(again.plan.steps)[Math.floor(random() * 12)];
        this.retried.add(again.flowId);
        this.#post(`${again.flowId}/retry`, { reason: 'chaos', ...(from === undefined ? {} : { from }) });
      }
    }
  }

  #post(path: string, body: unknown): void {
    const url = this.#deps.producerUrl(this.#deps.random());
    if (url === undefined) return;
    const asking = call(url, 'POST', `/v1/flows/${path}`, body).then(
      () => undefined,
      () => undefined, // no answer: it may have worked
    );
    this.#background.track(asking);
  }
}
