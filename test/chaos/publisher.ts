/** A publisher as a service outside Warren would be: persistent, mandatory, confirmed, and sent again until it is. */
import amqp from 'amqplib';
import type { ChannelModel, ConfirmChannel } from 'amqplib';
import { setMaxListeners } from 'node:events';
import { systemClock } from '../../shared/time/clock.ts';

/** One message of the front door. */
export interface FrontDoorMessage {
  readonly routingKey: string;
  readonly body: Buffer;
  readonly messageId: string;
  readonly priority: number;
  readonly headers: Readonly<Record<string, unknown>>;
}

const RECONNECT_AFTER_MS = 250;
const CONFIRM_WITHIN_MS = 15_000;

/** Publishes to one exchange over a connection that may break at any time. */
export class ChaosPublisher {
  readonly #url: string;
  readonly #exchange: string;
  readonly #stopping = new AbortController();
  /** By message id: what to call when the broker returned it. */
  readonly #returned = new Map<string, () => void>();
  #model: ChannelModel | undefined;
  #channel: ConfirmChannel | undefined;
  #loop: Promise<void> | undefined;

  constructor(url: string, exchange: string) {
    this.#url = url;
    this.#exchange = exchange;
    setMaxListeners(0, this.#stopping.signal); // one for each submission that waits
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#model?.close().catch(() => undefined);
    await this.#loop;
  }

  /** True where the broker confirmed that it has the message in a queue; false where nobody knows. */
  async publish({ routingKey, body, messageId, priority, headers }: FrontDoorMessage): Promise<boolean> {
    const channel = this.#channel;
    if (channel === undefined) {
      await systemClock.sleep(RECONNECT_AFTER_MS, this.#stopping.signal);
      return false;
    }
    return await new Promise<boolean>((resolve) => {
      let isReturned = false;
      const end = (isConfirmed: boolean): void => {
        cancel();
        channel.off('close', lost);
        this.#returned.delete(messageId);
        resolve(isConfirmed);
      };
      const lost = (): void => end(false);
      const cancel = systemClock.after(CONFIRM_WITHIN_MS, lost);
      channel.once('close', lost);
      this.#returned.set(messageId, () => {
        isReturned = true;
      });
      const properties = { persistent: true, mandatory: true, messageId, priority, headers, appId: 'chaos' };
      try {
        channel.publish(this.#exchange, routingKey, body, properties, (refusal: unknown) =>
          end(refusal === null && !isReturned),
        );
      } catch {
        lost(); // closed a moment ago
      }
    });
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      try {
        await this.#hold();
      } catch {
        // the broker is away, or the link is: that is what this is for
      }
      await systemClock.sleep(RECONNECT_AFTER_MS, this.#stopping.signal);
    }
  }

  async #hold(): Promise<void> {
    const model = await amqp.connect(`${this.#url}?heartbeat=2`, { timeout: 5_000 });
    model.on('error', () => undefined);
    this.#model = model;
    const closed = new Promise<void>((resolve) => model.once('close', () => resolve()));
    if (this.#stopping.signal.aborted) await model.close();
    const channel = await model.createConfirmChannel();
    channel.on('error', () => undefined);
    channel.setMaxListeners(0);
    channel.on('return', ({ properties }) => this.#returned.get(String(properties.messageId))?.());
    // A channel that closes alone is as good as a connection that does.
    channel.once('close', () => void model.close().catch(() => undefined));
    this.#channel = channel;
    await closed;
    this.#channel = undefined;
  }
}
