/**
 * The deliveries of one channel that wait for their answer, and the way their answers reach the broker.
 *
 * Acks of one turn of the event loop are sent together: a run that has nothing unanswered before it is one frame
 * (`multiple`). On a quorum queue each ack frame is a command of its own in the queue's log, and a channel that has more
 * than some thirty of them under way keeps the rest back; what it keeps back is lost when the channel closes. With 100
 * single acks before the close, 10 of 60 closes lost some (RabbitMQ 4.3, 2 busy cores, 2026-11), and each lost ack is a
 * message that comes again. Hence also `settled`.
 */
import type { ConfirmChannel, ConsumeMessage } from 'amqplib';
import type { Clock } from '../time/clock.ts';
import type { Answer } from './delivery.ts';

/** Round trips before a close, and milliseconds between them. Three without a pause lost nothing in 60 closes. */
const ROUND_TRIPS = 3;
const PAUSE_MS = 20;

/** Answers for one channel. Made anew with each channel; the broker takes back what a dead channel leaves unanswered. */
export class Answers {
  readonly #channel: ConfirmChannel;
  readonly #prefetch: number;
  /** Delivery tags without an answer, in the order of delivery, which is rising. */
  readonly #unanswered = new Set<number>();
  /** Acked by us and not sent yet. */
  readonly #acked = new Map<number, ConsumeMessage>();
  #sending: NodeJS.Immediate | undefined;
  #hasSent = false;

  constructor(channel: ConfirmChannel, prefetch: number) {
    this.#channel = channel;
    this.#prefetch = prefetch;
  }

  /** Deliveries without an answer of ours. */
  get unanswered(): number {
    return this.#unanswered.size - this.#acked.size;
  }

  /** Notes a delivery. */
  add(message: ConsumeMessage): void {
    this.#unanswered.add(message.fields.deliveryTag);
  }

  /** Answers one delivery. False where the channel took it no more: the broker takes the delivery back. */
  answer(message: ConsumeMessage, answer: Answer): boolean {
    if (answer === 'ack') {
      this.#acked.set(message.fields.deliveryTag, message);
      this.#sending ??= setImmediate(() => this.flush());
      return true;
    }
    this.#unanswered.delete(message.fields.deliveryTag);
    this.#hasSent = true;
    return this.#send(() => {
      if (answer === 'reject') this.#channel.reject(message, false);
      else this.#channel.nack(message, false, true);
    });
  }

  /** Sends the acks that were given in this turn. */
  flush(): void {
    clearImmediate(this.#sending);
    this.#sending = undefined;
    if (this.#acked.size === 0) return;
    this.#hasSent = true;
    this.#sendRun();
    for (const [tag, message] of this.#acked) {
      this.#unanswered.delete(tag);
      this.#send(() => this.#channel.ack(message));
    }
    this.#acked.clear();
  }

  /** Acks as one what was acked without a gap from the oldest unanswered delivery on. */
  #sendRun(): void {
    let last: ConsumeMessage | undefined;
    for (const tag of this.#unanswered) {
      const message = this.#acked.get(tag);
      if (message === undefined) break;
      last = message;
      this.#acked.delete(tag);
      this.#unanswered.delete(tag);
    }
    if (last !== undefined) this.#send(() => this.#channel.ack(last, true));
  }

  /**
   * Gives the broker the time to pass on what was answered, before the channel closes. There is no confirm for an ack;
   * each round trip lets the channel send on what it had kept back.
   */
  async settled(clock: Clock, isLive: () => boolean): Promise<void> {
    this.flush();
    for (let trip = 0; this.#hasSent && trip < ROUND_TRIPS && isLive(); trip += 1) {
      if (trip > 0) await clock.sleep(PAUSE_MS);
      await this.#channel.prefetch(this.#prefetch).catch(() => undefined); // a channel that died has nothing to pass on
    }
  }

  #send(send: () => void): boolean {
    try {
      send();
      return true;
    } catch {
      // The channel is closing and nobody told us yet: the broker takes the delivery back.
      return false;
    }
  }
}
