/** One message handed to a consumer, unanswered. */
import type { ConsumeMessage, MessageProperties } from 'amqplib';
import { UNDECODED_HEADERS } from './header-guard.ts';
import type { Headers } from './headers.ts';

/** How a delivery is answered. `nack` gives it back to the queue; `reject` makes it a dead letter. */
export type Answer = 'ack' | 'reject' | 'nack';

/** AMQP properties as they came: any publisher's, so of any type. */
export type DeliveryProperties = Readonly<Record<keyof MessageProperties, unknown>>;

/** One message handed to a consumer. Answer it exactly once; a second answer, or one after its channel died, does nothing and is counted. */
export interface Delivery {
  readonly body: Buffer;
  readonly exchange: string;
  readonly routingKey: string;
  /** True where the broker has handed it out before. */
  readonly redelivered: boolean;
  readonly properties: DeliveryProperties;
  /** As they came: untrusted. Look names up with `Object.hasOwn`. */
  readonly headers: Headers;
  /** The bytes of a header table that could not be decoded, where there is one; `headers` is then empty. Never a valid submission. */
  readonly undecodedHeaders: Buffer | undefined;
  /** 0 to 255; 0 where the message has none. */
  readonly priority: number;
  /** When it came, on the monotonic clock. */
  readonly receivedAtMs: number;
  /** True while an answer would reach the broker. False means that the broker has taken it back, or it was answered. */
  readonly isAlive: boolean;
  /** Done with; the broker forgets it. */
  ack(): void;
  /** `basic.reject` without requeue: goes to the dead-letter exchange. Counts against a quorum queue's delivery limit. */
  reject(): void;
  /** `basic.nack` with requeue: back to the queue. On 4.3 it then comes before all others, and is not counted. */
  nack(): void;
}

/** What a delivery asks of its consumer. */
export interface DeliveryOwner {
  readonly isLive: () => boolean;
  /** `message` is undefined for an answer after the first. */
  readonly answer: (message: ConsumeMessage | undefined, answer: Answer) => void;
}

const NO_HEADERS: Headers = Object.freeze({});

/** A delivery on the channel that brought it. */
export class ChannelDelivery implements Delivery {
  readonly receivedAtMs: number;
  readonly #message: ConsumeMessage;
  readonly #owner: DeliveryOwner;
  #isAnswered = false;

  constructor(message: ConsumeMessage, receivedAtMs: number, owner: DeliveryOwner) {
    this.#message = message;
    this.receivedAtMs = receivedAtMs;
    this.#owner = owner;
  }

  get body(): Buffer {
    return this.#message.content;
  }

  get exchange(): string {
    return this.#message.fields.exchange;
  }

  get routingKey(): string {
    return this.#message.fields.routingKey;
  }

  get redelivered(): boolean {
    return this.#message.fields.redelivered;
  }

  get properties(): DeliveryProperties {
    return this.#message.properties;
  }

  get headers(): Headers {
    return this.#message.properties.headers ?? NO_HEADERS;
  }

  get undecodedHeaders(): Buffer | undefined {
    const bytes: unknown = Reflect.get(this.#message.properties, UNDECODED_HEADERS);
    return Buffer.isBuffer(bytes) ? bytes : undefined;
  }

  get priority(): number {
    const priority: unknown = this.#message.properties.priority;
    return typeof priority === 'number' ? priority : 0;
  }

  get isAlive(): boolean {
    return !this.#isAnswered && this.#owner.isLive();
  }

  ack(): void {
    this.#answer('ack');
  }

  reject(): void {
    this.#answer('reject');
  }

  nack(): void {
    this.#answer('nack');
  }

  #answer(answer: Answer): void {
    const isFirst = !this.#isAnswered;
    this.#isAnswered = true;
    this.#owner.answer(isFirst ? this.#message : undefined, answer);
  }
}
