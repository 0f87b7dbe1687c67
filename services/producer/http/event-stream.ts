/** Server-sent events: streams with a bound on their number, on what waits in each, and on how long a reader may be slow. */
import { Readable } from 'node:stream';
import type { Clock } from '../../../shared/time/clock.ts';

/** One event. */
export interface ServerSentEvent {
  /** What the client gives back to go on from here. */
  readonly id: string;
  readonly event: string;
  /** Sent as one line of JSON. */
  readonly data: object;
}

/** How streams behave. */
export interface EventStreamOptions {
  /** Milliseconds between comments that keep the connection alive. Default 15 000. */
  readonly heartbeatMs: number;
  /** Milliseconds that a reader may take nothing before its stream ends. Default 30 000. */
  readonly stalledMs: number;
  /** Milliseconds after which a client shall come again where its stream was cut. Default 2 000. */
  readonly retryMs: number;
}

/** The defaults. */
export const DEFAULT_EVENT_STREAM: EventStreamOptions = { heartbeatMs: 15_000, stalledMs: 30_000, retryMs: 2_000 };

/** Bytes that wait in a stream before it takes no more. */
const MOST_WAITING_BYTES = 65_536;

/** One stream, to be sent as the body of an answer. */
export class EventStream {
  /** The body. */
  readonly body: Readable;
  readonly #clock: Clock;
  readonly #options: EventStreamOptions;
  #isReady = true;
  #fullSinceMs = 0;
  #cancelBeat: (() => void) | undefined;
  #hasEnded = false;

  constructor(clock: Clock, options: EventStreamOptions, onEnd: () => void) {
    this.#clock = clock;
    this.#options = options;
    this.body = new Readable({
      highWaterMark: MOST_WAITING_BYTES,
      read: () => {
        this.#isReady = true;
      },
    });
    this.body.once('close', () => {
      this.#hasEnded = true;
      this.#cancelBeat?.();
      onEnd();
    });
    // The header goes out with the first bytes, and a client that is cut off knows when to come again.
    this.#push(`retry: ${options.retryMs}\n\n`);
    this.#beat();
  }

  /** False while what was sent has not been taken, and once it has ended. */
  get isReady(): boolean {
    return this.#isReady && !this.#hasEnded;
  }

  /** Sends an event. */
  send({ id, event, data }: ServerSentEvent): void {
    this.#push(`id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  /** Ends it after what was sent; `why` is said in a comment. */
  end(why: string): void {
    if (this.#hasEnded) return;
    this.#push(`: ${why}\n\n`);
    this.#hasEnded = true;
    this.body.push(null);
  }

  #push(text: string): void {
    if (this.#hasEnded) return;
    if (this.body.push(text)) return;
    if (this.#isReady) this.#fullSinceMs = this.#clock.monotonicMs();
    this.#isReady = false;
  }

  #beat(): void {
    this.#cancelBeat = this.#clock.after(this.#options.heartbeatMs, () => {
      if (this.#hasEnded) return;
      if (this.#isReady) this.#push(': still here\n\n');
      else if (this.#clock.monotonicMs() - this.#fullSinceMs >= this.#options.stalledMs) this.body.destroy();
      this.#beat();
    });
  }
}

/** Every stream of a server. */
export class EventStreams {
  readonly #clock: Clock;
  readonly #options: EventStreamOptions;
  readonly #open = new Set<EventStream>();
  #isClosing = false;

  constructor(clock: Clock, options: EventStreamOptions = DEFAULT_EVENT_STREAM) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Opens one; `onEnd` is called once, whoever ended it. */
  open(onEnd: () => void): EventStream {
    const stream: EventStream = new EventStream(this.#clock, this.#options, () => {
      this.#open.delete(stream);
      onEnd();
    });
    this.#open.add(stream);
    if (this.#isClosing) stream.end(CLOSING);
    return stream;
  }

  /** Ends all at once, and whatever is opened from now on. */
  close(): void {
    this.#isClosing = true;
    for (const stream of this.#open) stream.end(CLOSING);
  }
}

const CLOSING = 'this server stops; come again with Last-Event-ID';
