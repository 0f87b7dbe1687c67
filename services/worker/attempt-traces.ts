/** The spans of attempts: received, run, settled. There is none of these where nobody wants spans. */
import type { Delivery } from '../../shared/amqp/delivery.ts';
import { spanIdOf } from '../../shared/observability/trace-context.ts';
import { runInTrace } from '../../shared/observability/tracing.ts';
import type { Tracing } from '../../shared/observability/tracing.ts';
import type { TaskType } from '../../shared/tasks/define-task.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import type { Claim } from './claims.ts';
import type { Settled } from './settles.ts';

/** The spans of one attempt. */
export interface AttemptSpans {
  /** The claim, standing where the handler runs. */
  readonly claim: Claim;
  /** Runs the handler, whose own spans become children. */
  run<T>(handler: () => T): T;
  /** The handler has ended. */
  ended(outcome: Outcome): void;
  /** The settle begins; what is given is called as it ends. */
  settling(): (settled: Settled) => void;
}

/** Makes the spans of a worker's attempts. */
export class AttemptTraces {
  readonly #tracing: Tracing;
  readonly #monotonicMs: () => number;

  constructor(tracing: Tracing, monotonicMs: () => number) {
    this.#tracing = tracing;
    this.#monotonicMs = monotonicMs;
  }

  /**
   * A claimed attempt starts. Receiving and running are children of the acceptance; of a task that was accepted by somebody who makes no
   * spans, receiving begins the trace.
   */
  begin(type: TaskType, claim: Claim, delivery: Pick<Delivery, 'routingKey' | 'receivedAtMs'>): AttemptSpans {
    const { taskId, attempt, flowId } = claim;
    const about = { taskType: type.name, queue: delivery.routingKey, taskId, attempt, flowId };
    const received = this.#tracing.receive(about, claim.trace, this.#monotonicMs() - delivery.receivedAtMs);
    const running = this.#tracing.process(about, claim.trace ?? received, claim.failedSpan);
    const { trace } = running;
    return {
      claim: { ...claim, trace, span: spanIdOf(trace) },
      run: (handler) => runInTrace(trace, handler),
      ended: (outcome) => {
        const facts = { 'warren.outcome': outcome.kind };
        if (outcome.kind === 'failed')
          running.fail(outcome.error.code ?? outcome.error.type ?? 'Error', outcome.error.message);
        else running.end(facts);
      },
      settling: () => {
        const span = this.#tracing.settle(about, trace);
        return (settled) => {
          if (settled === 'fenced') span.fail('fenced', 'the claim was no longer this worker’s');
          else span.end({ 'warren.task.state': settled });
        };
      },
    };
  }
}
