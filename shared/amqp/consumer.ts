/**
 * Takes deliveries from one queue. The only file that answers deliveries.
 *
 * The broker's consumer is registered anew after a reconnect, after the death of its channel and after a cancel by the
 * server; prefetch is set each time. Answers go to the channel that delivered and to no other.
 */
import type { ConfirmChannel, ConsumeMessage } from 'amqplib';
import { toError } from '../errors/to-error.ts';
import { WarrenError } from '../errors/warren-error.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import { isWorthTelling } from '../observability/repeats.ts';
import type { Clock } from '../time/clock.ts';
import { backoffMs } from './backoff.ts';
import type { BackoffOptions } from './backoff.ts';
import { Answers } from './answers.ts';
import { goodbyeBy } from './channel.ts';
import type { SupervisedChannel } from './channel.ts';
import type { AmqpConnection } from './connection.ts';
import { ChannelDelivery } from './delivery.ts';
import type { Answer, Delivery } from './delivery.ts';
import { queueCounts } from './throwaway-channel.ts';

export type { Delivery } from './delivery.ts';

/** What to consume. */
export interface ConsumerOptions {
  /** Full name of the queue on the broker. */
  readonly queue: string;
  /** Deliveries that the broker may leave unanswered with this consumer, 1 to 65 535; 0 would mean no limit and is refused. */
  readonly prefetch: number;
  /** Consumer priority (`x-priority`): the broker serves higher ones first. Default 0. */
  readonly priority?: number;
}

/** What a consumer needs. */
export interface ConsumerDeps {
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  /** Takes one delivery and answers it, sooner or later. A throw is logged and leaves the delivery unanswered. */
  readonly onDelivery: (delivery: Delivery) => void;
  /** Declares the queue that is not there. The consumer tries again afterwards, with backoff. */
  readonly onQueueMissing?: () => Promise<void>;
  /** Told each time the broker cancelled the consumer, to count it. */
  readonly onServerCancel?: () => void;
}

const BACKOFF: BackoffOptions = { minMs: 100, maxMs: 10_000 };
/** Milliseconds of a stop's time that are kept for the broker to hear the last answers. */
const LAST_WORDS_MS = 150;

/** amqplib's inner registration of callbacks by tag. */
interface CallbackRegister {
  registerConsumer?(tag: string, callback: (message: ConsumeMessage | null) => void): void;
}

/** One consumer of one queue. */
export class Consumer implements Part {
  readonly #deps: ConsumerDeps;
  readonly #options: ConsumerOptions;
  readonly #channel: SupervisedChannel;
  #wanted = true;
  #isCancelled = false;
  #registered: { readonly channel: ConfirmChannel; readonly tag: string } | undefined;
  #settling: Promise<void> | undefined;
  #waking = new AbortController();
  #tags = 0;
  /** Of the live channel. */
  #answers: Answers | undefined;
  #deadAnswers = 0;
  #whenAnswered: (() => void) | undefined;

  constructor(deps: ConsumerDeps, options: ConsumerOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#channel = deps.connection.channel({
      name: `consume ${options.queue}`,
      setup: async (channel) => {
        await channel.prefetch(options.prefetch);
        channel.on('cancel', ({ consumerTag }) => this.#onServerCancel(channel, consumerTag));
      },
    });
    this.#channel.onUp((channel) => {
      this.#answers = new Answers(channel, options.prefetch);
      this.#wake();
    });
    this.#channel.onDown(() => this.#onChannelDown());
  }

  /** True while the broker has our consumer on a live channel. False means deaf: not ready. */
  get isConsuming(): boolean {
    return this.#registered !== undefined && this.#registered.channel === this.#channel.current();
  }

  /** Deliveries of the live channel that were not answered. */
  get unanswered(): number {
    return this.#answers?.unanswered ?? 0;
  }

  /** Answers that came too late (channel gone) or twice, and did nothing. */
  get deadAnswers(): number {
    return this.#deadAnswers;
  }

  /** Begins to consume and returns; `isConsuming` tells when it does. Throws `config-invalid` for a prefetch out of range. */
  async start(): Promise<void> {
    const { prefetch } = this.#options;
    if (!Number.isInteger(prefetch) || prefetch < 1 || prefetch > 65_535) {
      throw new WarrenError('config-invalid', { field: 'prefetch', reason: 'must be an integer from 1 to 65535' });
    }
    await this.#channel.start();
  }

  /**
   * Takes no new deliveries until `resume`. What was delivered stays ours to answer. Resolves once the broker agreed, or was
   * silent for two seconds; it is then cut off soon, and may deliver until that.
   */
  async pause(): Promise<void> {
    this.#wanted = false;
    this.#wake();
    await this.#within(this.#settled(), goodbyeBy(this.#deps.clock, Number.POSITIVE_INFINITY));
  }

  async #settled(): Promise<void> {
    // It may begin anew when it ends, where something changed meanwhile.
    while (this.#settling !== undefined) await this.#settling;
  }

  /** Ends a pause. */
  resume(): void {
    if (this.#isCancelled) return;
    this.#wanted = true;
    this.#wake();
  }

  /**
   * Takes no new deliveries ever again, and waits for the broker's cancel-ok as `pause` does. Deliveries that were on their way are
   * still handed to `onDelivery` before this resolves; none comes after. Those unanswered stay ours until `close`.
   */
  async cancel(): Promise<void> {
    this.#isCancelled = true;
    await this.pause();
  }

  /** Waits until every delivery is answered or the deadline has passed, then closes the channel; the broker takes back the rest. */
  async close(deadlineMs: number): Promise<void> {
    this.#isCancelled = true;
    this.#wanted = false;
    if (this.unanswered > 0) {
      const race = new AbortController();
      this.#whenAnswered = (): void => race.abort();
      const left = deadlineMs - LAST_WORDS_MS - this.#deps.clock.monotonicMs();
      await this.#deps.clock.sleep(Math.max(0, left), race.signal);
      this.#whenAnswered = undefined;
    }
    this.#waking.abort();
    const channel = this.#channel.current();
    const answers = this.#answers;
    if (channel !== undefined && answers !== undefined) {
      await this.#within(
        answers.settled(this.#deps.clock, () => this.#channel.current() === channel),
        goodbyeBy(this.#deps.clock, deadlineMs),
      );
    }
    await this.#channel.stop(deadlineMs);
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#within(this.cancel(), deadlineMs);
    await this.close(deadlineMs);
  }

  /** Brings what is registered to what is wanted. */
  #wake(): void {
    this.#waking.abort();
    this.#settling ??= this.#settle().finally(() => {
      this.#settling = undefined;
      if (this.#isUnsettled()) this.#wake();
    });
  }

  #isUnsettled(): boolean {
    const channel = this.#channel.current();
    return channel !== undefined && this.#wanted !== (this.#registered?.channel === channel);
  }

  async #settle(): Promise<void> {
    let failures = 0;
    while (this.#isUnsettled()) {
      const channel = this.#channel.current();
      if (channel === undefined) return;
      try {
        if (this.#wanted) await this.#register(channel);
        else await this.#unregister(channel);
        failures = 0;
      } catch (thrown) {
        failures += 1;
        if (isWorthTelling(failures)) {
          this.#deps.log.warn('consumer could not be registered', {
            queue: this.#options.queue,
            failuresInRow: failures,
            err: toError(thrown),
          });
        }
        this.#waking = new AbortController();
        await this.#deps.clock.sleep(backoffMs(BACKOFF, failures, this.#deps.random), this.#waking.signal, {
          unref: true,
        });
      }
    }
  }

  async #register(channel: ConfirmChannel): Promise<void> {
    const { connection, clock, log, onQueueMissing } = this.#deps;
    const { queue, priority } = this.#options;
    // Asked on another channel: consuming from a queue that is not there would close this one, and with it the
    // deliveries that wait for their answers.
    const asking = { connection, clock };
    if ((await queueCounts(asking, queue)) === undefined) {
      log.warn('queue is missing', { queue });
      await onQueueMissing?.();
      if ((await queueCounts(asking, queue)) === undefined) throw new WarrenError('queue-unknown', { queue });
    }
    if (!this.#wanted || this.#channel.current() !== channel) return;
    this.#tags += 1;
    const tag = `${queue}.${this.#tags}`;
    await channel.consume(queue, this.#callback(channel), {
      consumerTag: tag,
      ...(priority === undefined ? {} : { priority }),
    });
    if (this.#channel.current() !== channel) return;
    this.#registered = { channel, tag };
    log.debug('consumer registered', { queue, tag });
  }

  async #unregister(channel: ConfirmChannel): Promise<void> {
    const registered = this.#registered;
    if (registered === undefined) return;
    try {
      await channel.cancel(registered.tag);
    } catch (thrown) {
      // A channel that died took its consumer with it.
      if (this.#channel.current() === channel) throw thrown;
    }
    if (this.#registered === registered) this.#registered = undefined;
  }

  #callback(channel: ConfirmChannel): (message: ConsumeMessage | null) => void {
    return (message) => {
      if (message === null) return; // a cancel by the server: see #onServerCancel
      const delivery = new ChannelDelivery(message, this.#deps.clock.monotonicMs(), {
        isLive: () => this.#channel.current() === channel,
        answer: (given, answer) => this.#answer(channel, given, answer),
      });
      this.#answers?.add(message);
      try {
        this.#deps.onDelivery(delivery);
      } catch (thrown) {
        // Left to amqplib, a throw from here closes the channel.
        this.#deps.log.error('delivery could not be taken', { queue: this.#options.queue, err: toError(thrown) });
      }
    };
  }

  #answer(channel: ConfirmChannel, message: ConsumeMessage | undefined, answer: Answer): void {
    const answers = this.#answers;
    if (message === undefined || answers === undefined || this.#channel.current() !== channel) {
      this.#deadAnswers += 1;
      return;
    }
    if (!answers.answer(message, answer)) this.#deadAnswers += 1;
    if (answers.unanswered === 0) this.#whenAnswered?.();
  }

  /**
   * The server cancelled our consumer: its queue was deleted or failed over, or (from 4.3) a delivery was left unanswered
   * too long. In the last case the broker keeps the consumer and goes on delivering to it until it is cancelled by us too,
   * and amqplib, which has forgotten the tag by now, closes the channel at such a delivery: so the tag is made known again.
   */
  #onServerCancel(channel: ConfirmChannel, tag: string): void {
    const registered = this.#registered;
    if (registered === undefined || registered.channel !== channel || registered.tag !== tag) return;
    this.#deps.log.warn('consumer cancelled by the broker', { queue: this.#options.queue, tag });
    this.#deps.onServerCancel?.();
    (channel as CallbackRegister).registerConsumer?.(tag, this.#callback(channel));
    this.#registered = undefined;
    channel.cancel(tag).catch(() => undefined); // only a dead channel fails here, and its death is heard of
    this.#wake();
  }

  #onChannelDown(): void {
    this.#registered = undefined;
    this.#answers = undefined;
    this.#whenAnswered?.();
  }

  async #within(promise: Promise<void>, deadlineMs: number): Promise<void> {
    const race = new AbortController();
    const left = Math.max(0, deadlineMs - this.#deps.clock.monotonicMs());
    await Promise.race([promise, this.#deps.clock.sleep(left, race.signal)]);
    race.abort();
  }
}
