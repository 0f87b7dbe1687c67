/**
 * Publishes with confirms. The only file that publishes.
 *
 * amqplib's own confirms have no deadline and its write buffer no bound; here every publish ends in time, and what awaits
 * its confirm is bounded in messages and bytes. Nothing is buffered while there is no broker: whoever publishes has the
 * outbox for that.
 */
import type { ConfirmChannel, Message, Options } from 'amqplib';
import { toError } from '../errors/to-error.ts';
import { WarrenError } from '../errors/warren-error.ts';
import type { ErrorCode } from '../errors/catalogue.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import type { Clock } from '../time/clock.ts';
import type { SupervisedChannel } from './channel.ts';
import type { AmqpConnection } from './connection.ts';
import { findFault } from './outgoing.ts';
import { replyCodeOf } from './throwaway-channel.ts';
import type { Outgoing } from './outgoing.ts';

export type { Outgoing, OutgoingProperties } from './outgoing.ts';

/** Bounds of a publisher. */
export interface PublisherOptions {
  /** Name in log lines. */
  readonly name: string;
  /** Milliseconds within which the broker must confirm. Default 10 000. */
  readonly confirmWithinMs: number;
  /** Most messages that await their confirm, late ones included. Default 10 000. */
  readonly maxUnconfirmed: number;
  /** Most bytes of bodies that await their confirm. Default 67 108 864. */
  readonly maxUnconfirmedBytes: number;
}

/** Defaults of all that has one. */
export const DEFAULT_PUBLISHER = {
  confirmWithinMs: 10_000,
  maxUnconfirmed: 10_000,
  maxUnconfirmedBytes: 67_108_864,
} as const satisfies Omit<PublisherOptions, 'name'>;

/** What a publisher needs. */
export interface PublisherDeps {
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly log: Logger;
}

/** One publish that the broker has not answered. */
interface Pending {
  readonly sequence: number;
  readonly message: Outgoing;
  readonly deadlineMs: number;
  readonly resolve: () => void;
  readonly reject: (error: WarrenError) => void;
  /** The caller has its answer; the broker may still owe its own. */
  isLate: boolean;
  isAnswered: boolean;
}

/** Publishes with confirms, on a channel of its own. */
export class Publisher implements Part {
  readonly #deps: PublisherDeps;
  readonly #options: PublisherOptions;
  readonly #channel: SupervisedChannel;
  /** In the order of publishing, so in the order of deadlines; answered ones are dropped from the front. */
  #pending: Pending[] = [];
  #head = 0;
  #sequence = 0;
  #unconfirmed = 0;
  #unconfirmedBytes = 0;
  /** Messages that came back, and the last publish they can stand for. */
  readonly #returned = new Map<string, number>();
  #returnedUpTo = 0;
  #cancelSweep: (() => void) | undefined;
  #isStopping = false;
  #whenEmpty: (() => void) | undefined;

  constructor(deps: PublisherDeps, options: PublisherOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#channel = deps.connection.channel({
      name: options.name,
      setup: async (channel) => {
        channel.on('return', (message) => this.#onReturn(message));
        await Promise.resolve();
      },
    });
    this.#channel.onDown((_channel, reason) => this.#failAll(reason));
  }

  /** Calls `listener` whenever publishing may have become possible: after a connect, and after the end of an alarm. */
  onReady(listener: () => void): void {
    const tell = (): void => {
      if (this.isReady) listener();
    };
    this.#channel.onUp(tell);
    this.#deps.connection.onStateChange(tell);
  }

  /** Messages that await their confirm. */
  get unconfirmed(): number {
    return this.#unconfirmed;
  }

  /** True while a publish would be tried: connected, not blocked, channel open, not stopping. */
  get isReady(): boolean {
    return !this.#isStopping && this.#channel.current() !== undefined && !this.#deps.connection.isBlocked;
  }

  async start(): Promise<void> {
    await this.#channel.start();
  }

  /** Takes no more, waits for confirms until the deadline, closes the channel; what is left fails with `broker-unavailable`. */
  async stop(deadlineMs: number): Promise<void> {
    this.#isStopping = true;
    if (this.#unconfirmed > 0) {
      const race = new AbortController();
      this.#whenEmpty = (): void => race.abort();
      await this.#deps.clock.sleep(Math.max(0, deadlineMs - this.#deps.clock.monotonicMs()), race.signal);
      this.#whenEmpty = undefined;
    }
    await this.#channel.stop(deadlineMs);
    this.#cancelSweep?.();
  }

  /**
   * Publishes one message; resolves when the broker has confirmed it. Rejects with `broker-unavailable` (not connected,
   * blocked by an alarm, or lost before the confirm), `publish-buffer-full`, `confirm-late`, `publish-refused` (nack),
   * `unroutable` (mandatory and no queue, or no such exchange), or, with nothing sent, `field-invalid`, `headers-too-large`, `body-too-large`.
   * After `confirm-late`, and `broker-unavailable` with `wasSent`, the message may have arrived all the same.
   */
  publish(message: Outgoing): Promise<void> {
    const channel = this.#channel.current();
    const refusal = this.#refusalNow(channel) ?? findFault(message);
    if (refusal !== undefined || channel === undefined) {
      return Promise.reject(refusal ?? new WarrenError('broker-unavailable', { reason: 'not connected' }));
    }
    return new Promise((resolve, reject) => this.#send(channel, message, resolve, reject));
  }

  #refusalNow(channel: ConfirmChannel | undefined): WarrenError | undefined {
    const { connection } = this.#deps;
    if (this.#isStopping) return new WarrenError('broker-unavailable', { reason: 'stopping' });
    if (channel === undefined) {
      return new WarrenError('broker-unavailable', { reason: 'not connected' }, connection.failure);
    }
    if (connection.isBlocked) {
      return new WarrenError('broker-unavailable', { reason: `blocked: ${connection.blockedBecause ?? ''}` });
    }
    const { maxUnconfirmed, maxUnconfirmedBytes } = this.#options;
    if (this.#unconfirmed >= maxUnconfirmed || this.#unconfirmedBytes >= maxUnconfirmedBytes) {
      return new WarrenError('publish-buffer-full', { unconfirmed: this.#unconfirmed, bytes: this.#unconfirmedBytes });
    }
    return undefined;
  }

  #send(channel: ConfirmChannel, message: Outgoing, resolve: () => void, reject: (error: WarrenError) => void): void {
    const pending: Pending = {
      sequence: this.#sequence + 1,
      message,
      deadlineMs: this.#deps.clock.monotonicMs() + this.#options.confirmWithinMs,
      resolve,
      reject,
      isLate: false,
      isAnswered: false,
    };
    try {
      // amqplib encodes all before it writes, so that a throw leaves the channel as it was. Its `false` (buffer full)
      // needs no look: what it holds is bounded by what is unconfirmed.
      channel.publish(message.exchange, message.routingKey, message.body, publishOptions(message), (refusal: unknown) =>
        this.#onAnswer(pending, refusal),
      );
    } catch (thrown) {
      reject(sendFailure(thrown));
      return;
    }
    this.#sequence = pending.sequence;
    this.#pending.push(pending);
    this.#unconfirmed += 1;
    this.#unconfirmedBytes += message.body.length;
    if (this.#cancelSweep === undefined) this.#sweepIn(this.#options.confirmWithinMs);
  }

  /** The broker's ack or nack, or the end of the channel. */
  #onAnswer(pending: Pending, refusal: unknown): void {
    if (pending.isAnswered) return;
    this.#take(pending);
    if (pending.isLate) return;
    if (refusal !== null && refusal !== undefined) {
      const error = toError(refusal);
      // The only mark by which amqplib tells a nack from the end of the channel.
      const isNack = error.message === 'message nacked';
      pending.reject(isNack ? this.#failure('publish-refused', pending) : lost(pending, error));
    } else if (pending.message.mandatory && this.#cameBack(pending)) {
      pending.reject(this.#failure('unroutable', pending));
    } else {
      pending.resolve();
    }
  }

  #take(pending: Pending): void {
    pending.isAnswered = true;
    this.#unconfirmed -= 1;
    this.#unconfirmedBytes -= pending.message.body.length;
    const queue = this.#pending;
    while (this.#head < queue.length && queue[this.#head]?.isAnswered === true) this.#head += 1;
    if (this.#head === queue.length) {
      this.#pending = [];
      this.#head = 0;
      this.#whenEmpty?.();
    } else if (this.#head > 1_024 && this.#head * 2 > queue.length) {
      this.#pending = queue.slice(this.#head);
      this.#head = 0;
    }
  }

  /**
   * A mandatory message that no queue took. It comes before its own confirm and names no publish, so that it is matched
   * by what it carries; equal messages in flight are equally unroutable.
   */
  #onReturn(returned: Message): void {
    const { exchange, routingKey } = returned.fields;
    this.#returned.set(keyOf(exchange, routingKey, returned.properties.messageId), this.#sequence);
    this.#returnedUpTo = this.#sequence;
  }

  #cameBack(pending: Pending): boolean {
    if (this.#returned.size === 0) return false;
    const { exchange, routingKey, properties } = pending.message;
    const upTo = this.#returned.get(keyOf(exchange, routingKey, properties.messageId)) ?? 0;
    // Once all that could be meant is answered, what came back is of no more use.
    const oldest = this.#pending[this.#head]?.sequence ?? this.#sequence + 1;
    if (oldest > this.#returnedUpTo) this.#returned.clear();
    return pending.sequence <= upTo;
  }

  /** One timer for all: it stands at the deadline of the oldest publish. */
  #sweepIn(ms: number): void {
    this.#cancelSweep = this.#deps.clock.after(ms, () => {
      this.#cancelSweep = undefined;
      this.#sweep();
    });
  }

  #sweep(): void {
    const nowMs = this.#deps.clock.monotonicMs();
    let lateCount = 0;
    for (let index = this.#head; index < this.#pending.length; index += 1) {
      const pending = this.#pending[index];
      if (pending === undefined || pending.isAnswered || pending.isLate) continue;
      if (pending.deadlineMs > nowMs) {
        this.#sweepIn(pending.deadlineMs - nowMs + 1);
        break;
      }
      // It keeps its place in the bounds: the broker still owes an answer, and amqplib still holds the bytes.
      pending.isLate = true;
      lateCount += 1;
      pending.reject(this.#failure('confirm-late', pending));
    }
    if (lateCount > 0) {
      const { name, confirmWithinMs } = this.#options;
      this.#deps.log.warn('confirms are late', {
        publisher: name,
        lateCount,
        confirmWithinMs,
        unconfirmed: this.#unconfirmed,
      });
    }
  }

  #failAll(reason: Error | undefined): void {
    const open = this.#pending.slice(this.#head);
    this.#pending = [];
    this.#head = 0;
    this.#unconfirmed = 0;
    this.#unconfirmedBytes = 0;
    this.#returned.clear();
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
    for (const pending of open) {
      if (pending.isAnswered) continue;
      pending.isAnswered = true;
      if (!pending.isLate) pending.reject(lost(pending, reason));
    }
    this.#whenEmpty?.();
  }

  #failure(code: ErrorCode, { message }: Pending): WarrenError {
    const { exchange, routingKey } = message;
    const facts = { exchange, routingKey };
    return new WarrenError(
      code,
      code === 'confirm-late' ? { ...facts, withinMs: this.#options.confirmWithinMs } : facts,
    );
  }
}

function lost({ message }: Pending, reason: Error | undefined): WarrenError {
  // The broker closes the channel over one message; the others on it were merely lost.
  if (replyCodeOf(reason) === 404 && reason?.message.includes(`no exchange '${message.exchange}'`) === true) {
    return new WarrenError('unroutable', { exchange: message.exchange, routingKey: message.routingKey }, reason);
  }
  const facts = { reason: 'lost before the confirm', wasSent: true, exchange: message.exchange };
  return new WarrenError('broker-unavailable', facts, reason);
}

function sendFailure(thrown: unknown): WarrenError {
  const error = toError(thrown);
  if (error.name === 'IllegalOperationError')
    return new WarrenError('broker-unavailable', { reason: 'closing' }, error);
  return new WarrenError('field-invalid', { field: 'properties', reason: error.message }, error);
}

function keyOf(exchange: string, routingKey: string, messageId: unknown): string {
  return `${exchange}\n${routingKey}\n${typeof messageId === 'string' ? messageId : ''}`;
}

/** The members that are spread stand last: each that is added after them costs a microsecond (Node 20), of every message. */
function publishOptions({ properties, mandatory }: Outgoing): Options.Publish {
  return { persistent: true, mandatory, ...properties };
}
