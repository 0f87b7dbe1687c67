/**
 * One channel per role, made again whenever it dies, alone or with its connection.
 *
 * amqp-connection-manager's own wrapper makes a channel again only with its connection, so that one which the broker
 * closed alone (404, 406, the ack timeout) stayed dead (its issue 378), and answers deliveries on whatever channel is current.
 */
import type { ChannelModel, ConfirmChannel } from 'amqplib';
import { toError } from '../errors/to-error.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import { isWorthTelling } from '../observability/repeats.ts';
import type { Clock } from '../time/clock.ts';
import { backoffMs } from './backoff.ts';
import type { BackoffOptions } from './backoff.ts';

/** What a channel stands on. */
export interface ChannelSource {
  /** The live connection, or `undefined` while there is none. */
  readonly model: ChannelModel | undefined;
  /** Calls `listener` at each change of the connection; the returned function ends that. */
  onStateChange(listener: () => void): () => void;
}

/** What a channel is for. */
export interface ChannelRole {
  /** Name in log lines. */
  readonly name: string;
  /** Makes a new channel ready (prefetch, listeners). Where it fails the channel is closed and made again after a wait. */
  readonly setup: (channel: ConfirmChannel) => Promise<void>;
}

/** What a supervised channel needs. */
export interface ChannelDeps {
  readonly source: ChannelSource;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
}

/** Told when a channel is ready. */
export type ChannelUp = (channel: ConfirmChannel, generation: number) => void;
/** Told when a channel is gone, with the broker's reason where it gave one. */
export type ChannelDown = (channel: ConfirmChannel, reason: Error | undefined) => void;

/** A channel that lives as long as the part does. Made by `AmqpConnection.channel`. */
export class SupervisedChannel implements Part {
  readonly #deps: ChannelDeps;
  readonly #role: ChannelRole;
  readonly #backoff: BackoffOptions;
  readonly #upListeners = new Set<ChannelUp>();
  readonly #downListeners = new Set<ChannelDown>();
  #stopping = new AbortController();
  #waking = new AbortController();
  #unsubscribe: (() => void) | undefined;
  #opening: Promise<void> | undefined;
  #channel: ConfirmChannel | undefined;
  #generation = 0;
  #failures = 0;
  #failedOn: ChannelModel | undefined;

  constructor(deps: ChannelDeps, role: ChannelRole, backoff: BackoffOptions) {
    this.#deps = deps;
    this.#role = role;
    this.#backoff = backoff;
  }

  /** The live channel, or `undefined`. Compare with `===` to know whether a channel held from before still lives. */
  current(): ConfirmChannel | undefined {
    return this.#channel;
  }

  /** Counts the channels made so far; 0 before the first. */
  get generation(): number {
    return this.#generation;
  }

  /** Calls `listener` whenever a channel is ready. Listeners must not throw. */
  onUp(listener: ChannelUp): () => void {
    this.#upListeners.add(listener);
    return () => this.#upListeners.delete(listener);
  }

  /** Calls `listener` whenever the channel is gone, at once and before anything else hears of it. */
  onDown(listener: ChannelDown): () => void {
    this.#downListeners.add(listener);
    return () => this.#downListeners.delete(listener);
  }

  async start(): Promise<void> {
    if (this.#unsubscribe !== undefined || this.#stopping.signal.aborted) return;
    this.#unsubscribe = this.#deps.source.onStateChange(() => this.#wake());
    this.#wake();
    await Promise.resolve();
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#stopping.abort();
    this.#waking.abort();
    this.#unsubscribe?.();
    const byMs = goodbyeBy(this.#deps.clock, deadlineMs);
    const channel = this.#channel;
    if (channel !== undefined) {
      this.#lost(channel, undefined);
      await this.#close(channel, byMs);
    }
    // An open that hangs on a stalled connection ends with it; it holds nothing of ours.
    if (this.#opening !== undefined) await this.#within(this.#opening, byMs);
  }

  /** Opens a channel unless one is open or being opened, and cuts a wait between attempts short. */
  #wake(): void {
    this.#waking.abort();
    if (this.#channel !== undefined || this.#stopping.signal.aborted) return;
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
      // The connection may have come back after the last look at it.
      if (this.#channel === undefined && this.#deps.source.model !== undefined) this.#wake();
    });
  }

  async #open(): Promise<void> {
    const { source, clock, log, random } = this.#deps;
    while (!this.#stopping.signal.aborted && this.#channel === undefined) {
      if (source.model !== this.#failedOn) {
        // A new connection has waited enough; only failures on one and the same are waited for here.
        this.#failedOn = source.model;
        this.#failures = 0;
      }
      if (this.#failures > 0) {
        this.#waking = new AbortController();
        await clock.sleep(backoffMs(this.#backoff, this.#failures, random), this.#waking.signal, { unref: true });
      }
      const { model } = source;
      if (model === undefined || this.#stopping.signal.aborted) return;
      if (model !== this.#failedOn) continue;
      try {
        await this.#openOn(model);
      } catch (thrown) {
        this.#failures += 1;
        if (isWorthTelling(this.#failures)) {
          log.warn('channel could not be opened', {
            role: this.#role.name,
            failuresInRow: this.#failures,
            err: toError(thrown),
          });
        }
      }
    }
  }

  async #openOn(model: ChannelModel): Promise<void> {
    const channel = await model.createConfirmChannel();
    let isDead = false;
    let reason: Error | undefined;
    channel.on('error', (error) => {
      reason = error;
      this.#lost(channel, error);
    });
    channel.on('close', () => {
      isDead = true;
      this.#lost(channel, reason);
    });
    try {
      await this.#role.setup(channel);
    } catch (thrown) {
      if (!isDead) void this.#close(channel, this.#deps.clock.monotonicMs() + 5_000); // its end is of no interest
      throw reason ?? thrown;
    }
    // A connection that died in the same tick told its channels before anybody listened.
    if (isDead || this.#deps.source.model !== model || this.#stopping.signal.aborted) {
      if (!isDead) void this.#close(channel, this.#deps.clock.monotonicMs() + 5_000); // as above
      if (reason !== undefined) throw reason;
      return;
    }
    this.#channel = channel;
    this.#generation += 1;
    const opened = this.#generation;
    this.#deps.clock.after(this.#backoff.maxMs, () => {
      if (this.#generation === opened && this.#channel === channel) this.#failures = 0;
    });
    this.#deps.log.debug('channel opened', { role: this.#role.name, generation: this.#generation });
    for (const listener of this.#upListeners) listener(channel, this.#generation);
  }

  #lost(channel: ConfirmChannel, reason: Error | undefined): void {
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    // Counted as a failure until it has lived a while: a channel that dies at its first publish must not spin.
    this.#failures += 1;
    if (reason !== undefined)
      this.#deps.log.warn('channel closed by the broker', { role: this.#role.name, err: reason });
    for (const listener of this.#downListeners) listener(channel, reason);
    if (!this.#stopping.signal.aborted) this.#wake();
  }

  async #close(channel: ConfirmChannel, deadlineMs: number): Promise<void> {
    const closing = closeQuietly(channel);
    await this.#within(closing, deadlineMs);
  }

  async #within(promise: Promise<void>, deadlineMs: number): Promise<void> {
    const race = new AbortController();
    const left = Math.max(0, deadlineMs - this.#deps.clock.monotonicMs());
    await Promise.race([promise, this.#deps.clock.sleep(left, race.signal)]);
    race.abort();
  }
}

/** Milliseconds that the broker may take to answer a goodbye. */
const GOODBYE_WITHIN_MS = 2_000;

/** Until when to wait for the broker's word at a cancel or close: a silent one must not use up the time that the work needs. */
export function goodbyeBy(clock: Clock, deadlineMs: number): number {
  return Math.min(deadlineMs, clock.monotonicMs() + GOODBYE_WITHIN_MS);
}

/** Closes a channel that may be closed or closing already. Never rejects. */
export async function closeQuietly(channel: { close(): Promise<void> }): Promise<void> {
  try {
    await channel.close();
  } catch {
    // It was closed already: that is what was wanted.
  }
}
