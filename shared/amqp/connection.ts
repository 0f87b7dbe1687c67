/**
 * One connection to RabbitMQ that comes back by itself. The only file that knows amqp-connection-manager, of which only
 * the connecting is used: its fixed wait between attempts is replaced by our jittered one, its channels by `SupervisedChannel`.
 */
import { AmqpConnectionManagerClass } from 'amqp-connection-manager';
import type { ChannelModel } from 'amqplib';
import { toError } from '../errors/to-error.ts';
import { isWarrenError, WarrenError } from '../errors/warren-error.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import type { Clock } from '../time/clock.ts';
import type { TlsFiles } from '../tls/tls-files.ts';
import { parseAddress } from './address.ts';
import type { BrokerAddress } from './address.ts';
import { backoffMs } from './backoff.ts';
import { capabilitiesOf } from './capabilities.ts';
import type { Capabilities } from './capabilities.ts';
import { SupervisedChannel, goodbyeBy } from './channel.ts';
import type { ChannelRole, ChannelSource } from './channel.ts';
import { connectFailure } from './connect-failure.ts';
import { gatherWrites } from './gather-writes.ts';
import { guardHeaders } from './header-guard.ts';

/** How to reach the broker. */
export interface AmqpOptions {
  /** One or more `amqp://user:password@host:5672/vhost` or `amqps://…`; tried in random order. */
  readonly urls: readonly string[];
  /** Name of the connection in the broker's list. */
  readonly connectionName: string;
  /** Seconds between heartbeats, 1 to 600. A dead link is noticed after two to three of them. Default 10. */
  readonly heartbeatSeconds: number;
  /** Longest wait before the first attempt to reconnect, milliseconds. Default 200. */
  readonly reconnectMinMs: number;
  /** No wait between attempts is longer, milliseconds. Default 10 000. */
  readonly reconnectMaxMs: number;
  /** Milliseconds without a byte after which an attempt to connect is given up. Default 10 000. */
  readonly connectTimeoutMs: number;
  /** Certificates for `amqps://`, read at each attempt to connect. Default: the system's. */
  readonly tls?: TlsFiles;
}

/** Defaults of all that has one. */
export const DEFAULT_AMQP = {
  heartbeatSeconds: 10,
  reconnectMinMs: 200,
  reconnectMaxMs: 10_000,
  connectTimeoutMs: 10_000,
} as const satisfies Partial<AmqpOptions>;

/** What a connection needs. */
export interface AmqpDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
}

const SAME_FAILURE_EVERY_MS = 30_000;
const MOST_FAILURES_KNOWN = 100;

/** amqplib's inner connection; its socket must be let go by force where the peer no longer answers. */
interface InnerConnection {
  readonly stream?: { destroy(error?: Error): void; readonly writableEnded?: boolean };
  readonly blocked?: boolean;
}

/** A connection that is made again whenever it is lost. */
export class AmqpConnection implements Part, ChannelSource {
  readonly #deps: AmqpDeps;
  readonly #options: AmqpOptions;
  readonly #listeners = new Set<() => void>();
  readonly #waiting = new Set<{ resolve: () => void; reject: (error: WarrenError) => void }>();
  readonly #stopping = new AbortController();
  #manager: AmqpConnectionManagerClass | undefined;
  #addresses: readonly BrokerAddress[] = [];
  #untried: BrokerAddress[] = [];
  #trying: BrokerAddress | undefined;
  #rounds = 0;
  #model: ChannelModel | undefined;
  #upSinceMs = 0;
  #blockedBecause: string | undefined;
  #capabilities: Capabilities | undefined;
  #failure: WarrenError | undefined;
  /** When each failure was logged last, by what it says: several addresses fail in turn. */
  readonly #failuresLogged = new Map<string, number>();
  #reconnects = 0;
  #stopped: Promise<void> | undefined;

  constructor(deps: AmqpDeps, options: AmqpOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** The live connection, or `undefined`. For `shared/amqp` alone. */
  get model(): ChannelModel | undefined {
    return this.#model;
  }

  get isConnected(): boolean {
    return this.#model !== undefined;
  }

  /** True while the broker takes no publishes because of an alarm (memory, disk). */
  get isBlocked(): boolean {
    return this.#blockedBecause !== undefined;
  }

  /** The broker's reason for blocking, or `undefined`. */
  get blockedBecause(): string | undefined {
    return this.#blockedBecause;
  }

  /** How often the connection was made again since the start. */
  get reconnects(): number {
    return this.#reconnects;
  }

  /** The broker's version as of the last connection, or `undefined` before the first. */
  get brokerVersion(): string | undefined {
    return this.#capabilities?.version;
  }

  /** What the broker can, as of the last connection, or `undefined` before the first. */
  get capabilities(): Capabilities | undefined {
    return this.#capabilities;
  }

  /** Why the last attempt to connect failed; `undefined` while connected. */
  get failure(): WarrenError | undefined {
    return this.#failure;
  }

  /** Calls `listener` after each change of `isConnected` or `isBlocked`; the returned function ends that. */
  onStateChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** A channel of this connection for one role. It is a part of its own: start it, and stop it before the connection. */
  channel(role: ChannelRole): SupervisedChannel {
    const { reconnectMinMs: minMs, reconnectMaxMs: maxMs } = this.#options;
    return new SupervisedChannel({ ...this.#deps, source: this }, role, { minMs, maxMs });
  }

  /** Begins to connect and returns; `connected` waits. Throws `config-invalid` for a wrong URL, heartbeat or file. */
  async start(): Promise<void> {
    if (this.#manager !== undefined || this.#stopping.signal.aborted) return;
    const { connectionName, heartbeatSeconds, connectTimeoutMs, tls } = this.#options;
    // 0 would turn heartbeats off, and with them the only notice of a dead link.
    if (!(heartbeatSeconds >= 1 && heartbeatSeconds <= 600)) {
      throw new WarrenError('config-invalid', { field: 'heartbeatSeconds', reason: 'must be 1 to 600' });
    }
    this.#addresses = this.#options.urls.map((url) => parseAddress(url));
    if (this.#addresses.length === 0)
      throw new WarrenError('config-invalid', { field: 'amqp url', reason: 'none given' });
    tls?.read(); // a file that is wrong from the start ends the start
    const connectionOptions = {
      noDelay: true,
      keepAlive: true,
      timeout: connectTimeoutMs,
      clientProperties: { connection_name: connectionName },
    };
    const manager = new AmqpConnectionManagerClass(undefined, {
      heartbeatIntervalInSeconds: heartbeatSeconds,
      // Its own wait is made as short as it can be; ours is in #nextServer, which it calls before each attempt.
      reconnectTimeInSeconds: 0.001,
      findServers: async () => {
        const server = await this.#nextServer();
        manager.connectionOptions = { ...connectionOptions, ...tls?.current() };
        return server;
      },
    });
    this.#manager = manager;
    manager.on('connect', () => this.#wentUp(manager.connection));
    manager.on('connectFailed', ({ err }) => this.#failed(err));
    manager.on('disconnect', ({ err }: { err?: Error }) => this.#wentDown(err));
    manager.on('blocked', ({ reason }: { reason: string }) => this.#setBlocked(reason));
    manager.on('unblocked', () => this.#setBlocked(undefined));
    // Rejects at a refused login and goes on trying all the same; `connected` says it better.
    manager.connect().catch(() => undefined);
    await Promise.resolve();
  }

  /**
   * Resolves once connected. Throws `broker-refused-login` as soon as the broker refuses, `broker-unavailable` when
   * `withinMs` has passed, `signal` aborts or the connection is stopped. Connecting goes on regardless.
   */
  async connected(options: { readonly withinMs: number; readonly signal?: AbortSignal }): Promise<void> {
    if (this.#model !== undefined) return;
    if (isWarrenError(this.#failure, 'broker-refused-login')) throw this.#failure;
    const race = new AbortController();
    const abort = (): void => race.abort();
    options.signal?.addEventListener('abort', abort, { once: true });
    this.#stopping.signal.addEventListener('abort', abort, { once: true });
    if (options.signal?.aborted === true || this.#stopping.signal.aborted) abort();
    let waiting: { resolve: () => void; reject: (error: WarrenError) => void } | undefined;
    try {
      await Promise.race([
        new Promise<void>((resolve, reject) => {
          waiting = { resolve, reject };
          this.#waiting.add(waiting);
        }),
        this.#deps.clock.sleep(options.withinMs, race.signal),
      ]);
    } finally {
      race.abort();
      options.signal?.removeEventListener('abort', abort);
      this.#stopping.signal.removeEventListener('abort', abort);
      if (waiting !== undefined) this.#waiting.delete(waiting);
    }
    // Read anew: the connection may have come while this waited.
    if (this.model === undefined) {
      throw this.failure ?? new WarrenError('broker-unavailable', { withinMs: options.withinMs });
    }
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#stopping.abort();
    if (this.#manager === undefined) return;
    this.#stopped ??= this.#close(this.#manager, deadlineMs);
    await this.#stopped;
  }

  async #close(manager: AmqpConnectionManagerClass, deadlineMs: number): Promise<void> {
    const model = this.#model;
    const race = new AbortController();
    const closing = manager.close().then(
      () => true,
      () => true, // it was closed already
    );
    const { clock } = this.#deps;
    const left = Math.max(0, goodbyeBy(clock, deadlineMs) - clock.monotonicMs());
    const isClosed = await Promise.race([closing, clock.sleep(left, race.signal).then(() => false)]);
    race.abort();
    if (!isClosed) {
      this.#deps.log.warn('connection closed by force', { hint: 'the broker did not answer in time' });
    }
    if (model !== undefined) letGo(model);
    if (this.#model !== undefined) this.#wentDown(undefined);
  }

  async #nextServer(): Promise<BrokerConnect> {
    const { clock, random } = this.#deps;
    if (this.#untried.length === 0) {
      if (this.#rounds > 0) {
        const { reconnectMinMs: minMs, reconnectMaxMs: maxMs } = this.#options;
        await clock.sleep(backoffMs({ minMs, maxMs }, this.#rounds, random), this.#stopping.signal);
      }
      this.#rounds += 1;
      this.#untried = shuffled(this.#addresses, random);
    }
    const address = this.#untried.pop();
    if (address === undefined || this.#stopping.signal.aborted)
      throw new WarrenError('broker-unavailable', { reason: 'stopping' });
    this.#trying = address;
    const { protocol, hostname, port, username, password } = address;
    return { protocol, hostname, port, username, password, vhost: encodeURIComponent(address.vhost) };
  }

  #wentUp(model: ChannelModel | undefined): void {
    if (model === undefined) return;
    if (this.#stopping.signal.aborted) {
      letGo(model);
      return;
    }
    const inner = model.connection as InnerConnection;
    if (inner.stream?.writableEnded === true) {
      // Closed in the same read that opened it: that was told before amqp-connection-manager listened.
      this.#failed(new Error('the server closed the connection as soon as it was open'));
      this.#manager?.reconnect();
      return;
    }
    guardHeaders(model);
    gatherWrites(model);
    if (this.#upSinceMs > 0) this.#reconnects += 1;
    this.#model = model;
    this.#untried = [];
    this.#upSinceMs = this.#deps.clock.monotonicMs();
    this.#failure = undefined;
    this.#failuresLogged.clear();
    this.#capabilities = capabilitiesOf(model.connection.serverProperties.version);
    this.#deps.log.info('broker connected', { server: this.#trying?.shown, version: this.brokerVersion });
    for (const { resolve } of this.#waiting) resolve();
    if (inner.blocked === true) this.#setBlocked('an alarm from before this connection');
    else this.#tellAll();
  }

  #wentDown(err: Error | undefined): void {
    const model = this.#model;
    if (model === undefined) return;
    this.#model = undefined;
    this.#blockedBecause = undefined;
    // A connection that lived counts as a new beginning; one that dies young is waited for longer and longer.
    const livedMs = this.#deps.clock.monotonicMs() - this.#upSinceMs;
    if (livedMs >= this.#options.reconnectMaxMs) this.#rounds = 1;
    // A peer that no longer answers would keep the socket, and what is buffered for it, for many minutes.
    this.#deps.clock.after(1_000, () => letGo(model));
    if (!this.#stopping.signal.aborted) {
      this.#deps.log.warn('broker connection lost', { server: this.#trying?.shown, err: err && toError(err) });
    }
    this.#tellAll();
  }

  #failed(thrown: unknown): void {
    if (this.#stopping.signal.aborted || this.#trying === undefined) return;
    const failure = connectFailure(thrown, this.#trying);
    this.#failure = failure;
    const nowMs = this.#deps.clock.monotonicMs();
    const loggedMs = this.#failuresLogged.get(failure.message) ?? Number.NEGATIVE_INFINITY;
    if (nowMs - loggedMs >= SAME_FAILURE_EVERY_MS) {
      if (this.#failuresLogged.size >= MOST_FAILURES_KNOWN) this.#failuresLogged.clear();
      this.#failuresLogged.set(failure.message, nowMs);
      this.#deps.log.warn('broker cannot be reached', { rounds: this.#rounds, err: failure });
    }
    if (failure.code !== 'broker-refused-login') return;
    for (const { reject } of this.#waiting) reject(failure);
  }

  #setBlocked(reason: string | undefined): void {
    this.#blockedBecause = reason;
    if (reason === undefined) this.#deps.log.info('broker takes publishes again');
    else this.#deps.log.error('broker blocks publishes', { reason, hint: 'free memory or disk space on the broker' });
    this.#tellAll();
  }

  #tellAll(): void {
    for (const listener of this.#listeners) {
      try {
        listener();
      } catch (thrown) {
        // A throw from here would reach amqp-connection-manager and orphan a live connection.
        this.#deps.log.error('connection listener failed', { err: toError(thrown) });
      }
    }
  }
}

interface BrokerConnect {
  readonly protocol: string;
  readonly hostname: string;
  readonly port: number;
  readonly username: string;
  readonly password: string;
  readonly vhost: string;
}

function letGo(model: ChannelModel): void {
  const inner = model.connection as InnerConnection;
  inner.stream?.destroy(new Error('connection given up'));
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  const result = [...items];
  for (let last = result.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    [result[last], result[other]] = [result[other] as T, result[last] as T];
  }
  return result;
}
