/**
 * The AMQP front door: takes what was published to the tasks exchange, accepts it in batches, and acks what is committed.
 * What is refused is rejected into the dead-letter exchange, where the handler finds the reason anew. While Postgres is away
 * nothing is taken: the queue keeps it.
 */
import type { Delivery } from '../../shared/amqp/delivery.ts';
import { JSON_CONTENT_TYPE } from '../../shared/amqp/message.ts';
import type { Outgoing } from '../../shared/amqp/outgoing.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { backoffMs } from '../../shared/resilience/backoff.ts';
import { checkMessage, isMiss } from '../../shared/tasks/check-submission.ts';
import type { CheckedSubmission, SubmissionLimits } from '../../shared/tasks/check-submission.ts';
import type { Acceptance, Submission, SubmissionFault } from '../../shared/tasks/submission.ts';
import type { Catalog } from '../../shared/tasks/type-catalog.ts';
import type { Clock } from '../../shared/time/clock.ts';

/** What the ingress asks of its consumer; `Consumer` is one. */
export interface IngressConsumer extends Part {
  readonly isConsuming: boolean;
  pause(): Promise<void>;
  resume(): void;
}

/** What the ingress needs. */
export interface IngressDeps {
  /** Makes the consumer of the ingress queue, not started. */
  readonly createConsumer: (onDelivery: (delivery: Delivery) => void) => IngressConsumer;
  /** Throws `database-unavailable` and `outbox-full`. */
  readonly submit: (submission: Submission) => Promise<Acceptance>;
  /** Puts an input that is too large for its row into the store. Throws `file-store-unavailable`, `database-unavailable`. */
  readonly storeInput: (submission: Submission) => Promise<Submission>;
  readonly catalog: Catalog & { readonly isLoaded: boolean; refreshAfterMiss(): Promise<void> };
  /** Publishes a reply; resolves with the broker's confirm. */
  readonly publish: (message: Outgoing) => Promise<void>;
  /** True while Postgres answers. */
  readonly isDatabaseAvailable: () => boolean;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Logger;
  readonly metrics: Pick<Metrics, 'tasksAccepted' | 'submissionsRefused' | 'submissionsRepeated' | 'published'>;
}

/** How the ingress works. */
export interface IngressOptions {
  readonly limits: SubmissionLimits;
}

/** Pause after a failure, in milliseconds; doubled per failure in a row. */
const BACKOFF = { firstDelayMs: 500, maxDelayMs: 10_000, minDelayMs: 100 };
/** Milliseconds between two looks whether Postgres answers again. */
const LOOK_EVERY_MS = 100;
/** Milliseconds, about, until an input is tried again whose store did not take it. */
const STORE_AGAIN_MS = 5_000;
const LONGEST_REPLY_TO = 255;

/** Drains the ingress queue. */
export class Ingress implements Part {
  readonly #deps: IngressDeps;
  readonly #options: IngressOptions;
  readonly #consumer: IngressConsumer;
  readonly #stopping = new AbortController();
  readonly #replies = new Set<Promise<void>>();
  #isStarted = false;
  /** Set while nothing is taken; resolves once the broker delivers no more. */
  #paused: Promise<void> | undefined;
  #recovering: Promise<void> | undefined;
  #failuresInRow = 0;

  constructor(deps: IngressDeps, options: IngressOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#consumer = deps.createConsumer((delivery) => void this.#take(delivery)); // answers by itself, never rejects
  }

  /** True while submissions wait in their queue because Postgres, or the outbox, takes none. */
  get isPaused(): boolean {
    return this.#paused !== undefined;
  }

  /** True while the broker has our consumer. */
  get isConsuming(): boolean {
    return this.#consumer.isConsuming;
  }

  async start(): Promise<void> {
    if (this.#isStarted) return;
    this.#isStarted = true;
    // An empty catalog would call every type unknown.
    if (!this.#deps.catalog.isLoaded) this.#pause('task types are not loaded');
    await this.#consumer.start();
  }

  /** Takes no more, answers what it holds, sends the replies. What the deadline cuts short goes back to the queue. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopping.abort();
    await this.#consumer.stop(deadlineMs);
    await this.#recovering;
    const race = new AbortController();
    const left = Math.max(0, deadlineMs - this.#deps.clock.monotonicMs());
    await Promise.race([Promise.all(this.#replies), this.#deps.clock.sleep(left, race.signal)]);
    race.abort();
  }

  /** The way of one message. Each exit answers the broker exactly once. */
  async #take(delivery: Delivery): Promise<void> {
    if (this.#paused !== undefined) return await this.#giveBack(delivery);
    try {
      const checked = await this.#check(delivery);
      if (checked.kind === 'refused') return this.#refuse(delivery, checked.faults);
      const acceptance = await this.#deps.submit(await this.#deps.storeInput(checked.submission));
      this.#failuresInRow = 0;
      switch (acceptance.kind) {
        case 'accepted':
          this.#deps.metrics.tasksAccepted.add(1, checked.submission.type, 'amqp');
          delivery.ack(); // committed, so the message has done its duty
          return this.#reply(delivery, { accepted: { id: acceptance.id } });
        case 'duplicate':
        case 'existing':
        case 'replaced':
          this.#deps.metrics.submissionsRepeated.add(
            1,
            'amqp',
            acceptance.kind === 'duplicate' ? 'message id' : 'unique key',
          );
          delivery.ack();
          return this.#reply(delivery, { accepted: { id: acceptance.id, duplicate: true } });
        case 'refused':
          return this.#refuse(delivery, [acceptance.fault]);
      }
    } catch (thrown) {
      if (isWarrenError(thrown, 'file-store-unavailable')) return await this.#putOff(delivery, thrown);
      this.#failed(thrown);
      return await this.#giveBack(delivery);
    }
  }

  async #check(delivery: Delivery): Promise<CheckedSubmission> {
    const checked = this.#judge(delivery);
    if (!isMiss(checked)) return checked;
    // A refusal is for good here, so Postgres must have said that there is no such name.
    await this.#deps.catalog.refreshAfterMiss();
    return this.#judge(delivery);
  }

  /** A message that breaks the check itself must not come again and again, and hold up all others. */
  #judge(delivery: Delivery): CheckedSubmission {
    try {
      return checkMessage(delivery, this.#deps.catalog, this.#options.limits);
    } catch (thrown) {
      this.#deps.log.error('submission could not be checked', { err: toError(thrown) });
      return { kind: 'refused', faults: [{ code: 'internal', field: 'body', reason: 'could not be checked' }] };
    }
  }

  #refuse(delivery: Delivery, faults: readonly SubmissionFault[]): void {
    const [first] = faults;
    const { code = 'field-invalid', field = 'body', reason = 'cannot be read' } = first ?? {};
    this.#deps.metrics.submissionsRefused.add(1, 'amqp', code);
    this.#deps.log.debug('submission refused', { code, field });
    delivery.reject();
    this.#reply(delivery, { refused: { code, field, reason, faults } });
  }

  /** Back to the queue, but not before the broker has stopped to deliver: it would come again at once, for ever. */
  async #giveBack(delivery: Delivery): Promise<void> {
    await this.#paused;
    delivery.nack();
  }

  /** Large inputs wait for their store, and hold up nothing else. Only so many are held, since the prefetch is bounded. */
  async #putOff(delivery: Delivery, thrown: unknown): Promise<void> {
    const { clock, random, log } = this.#deps;
    log.warn('submission waits for the store of files', { err: toError(thrown) });
    await clock.sleep(STORE_AGAIN_MS * (0.5 + random()), this.#stopping.signal);
    await this.#giveBack(delivery);
  }

  #failed(thrown: unknown): void {
    const isExpected = isWarrenError(thrown, 'database-unavailable') || isWarrenError(thrown, 'outbox-full');
    if (!isExpected) this.#deps.log.error('submissions cannot be stored', { err: toError(thrown) });
    this.#pause(toError(thrown).message);
  }

  #pause(reason: string): void {
    if (this.#paused !== undefined) return;
    this.#failuresInRow += 1;
    this.#deps.log.warn('front door paused', { reason, hint: 'submissions wait in their queue' });
    this.#paused = this.#consumer.pause();
    this.#recovering = this.#recover();
  }

  async #recover(): Promise<void> {
    const { clock, random, catalog, isDatabaseAvailable, log } = this.#deps;
    const { signal } = this.#stopping;
    await this.#paused;
    await clock.sleep(backoffMs(BACKOFF, this.#failuresInRow, random), signal);
    while (!signal.aborted && !(isDatabaseAvailable() && catalog.isLoaded)) {
      await clock.sleep(LOOK_EVERY_MS, signal);
      if (isDatabaseAvailable() && !catalog.isLoaded) await this.#loadCatalog();
    }
    if (signal.aborted) return;
    this.#paused = undefined;
    log.info('front door open again');
    this.#consumer.resume();
  }

  async #loadCatalog(): Promise<void> {
    try {
      await this.#deps.catalog.refreshAfterMiss();
    } catch (thrown) {
      this.#deps.log.debug('front door waits for task types', { err: toError(thrown) });
    }
  }

  /** Tells the publisher, if it asked for it. Nobody waits for it: a reply that is lost is counted and no more. */
  #reply(delivery: Delivery, answer: Readonly<Record<string, unknown>>): void {
    const { replyTo, correlationId, messageId } = delivery.properties;
    if (typeof replyTo !== 'string' || replyTo === '' || Buffer.byteLength(replyTo) > LONGEST_REPLY_TO) return;
    // A publisher must not write into Warren's own queues by our hand.
    if (this.#options.limits.isOwnQueue(replyTo)) return;
    const about = textOf(correlationId) ?? textOf(messageId);
    const sending = this.#send({
      exchange: '',
      routingKey: replyTo,
      body: Buffer.from(JSON.stringify(answer)),
      properties: { contentType: JSON_CONTENT_TYPE, ...(about === undefined ? {} : { correlationId: about }) },
      mandatory: true,
    });
    this.#replies.add(sending);
    void sending.finally(() => this.#replies.delete(sending)); // never rejects
  }

  async #send(message: Outgoing): Promise<void> {
    const { publish, metrics, log } = this.#deps;
    try {
      await publish(message);
      metrics.published.add(1, 'reply', 'confirmed');
    } catch (thrown) {
      metrics.published.add(1, 'reply', answerOf(thrown));
      log.debug('reply not delivered', { err: toError(thrown) });
    }
  }
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

function answerOf(thrown: unknown): 'refused' | 'unroutable' | 'late' | 'lost' {
  if (isWarrenError(thrown, 'unroutable')) return 'unroutable';
  if (isWarrenError(thrown, 'confirm-late')) return 'late';
  return isWarrenError(thrown, 'broker-unavailable') ? 'lost' : 'refused';
}
