/** A TCP proxy that breaks links in the ways that networks do. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { systemClock } from '../../shared/time/clock.ts';

/** Which way bytes go. */
export type Direction = 'to-server' | 'to-client';

interface Link {
  readonly client: Socket;
  readonly server: Socket;
  isForgotten: boolean;
}

/** A proxy in front of one server. */
export class FaultyProxy implements AsyncDisposable {
  readonly #target: { readonly host: string; readonly port: number };
  readonly #server: Server;
  readonly #links = new Set<Link>();
  /** Clients that came while nothing was passed on, with what they sent. */
  readonly #held = new Map<Socket, Buffer[]>();
  readonly #dropped = new Set<Direction>();
  #cutAfter: { readonly direction: Direction; bytes: number } | undefined;
  #appended: { readonly after: Buffer; readonly bytes: Buffer } | undefined;
  #isPaused = false;
  #isRefusing = false;
  #bytesPerSecond = Number.POSITIVE_INFINITY;
  #accepted = 0;

  private constructor(target: { readonly host: string; readonly port: number }) {
    this.#target = target;
    this.#server = createServer((client) => this.#accept(client));
  }

  /** Listens on a free port of 127.0.0.1 and passes everything on to the host of `url`. */
  static async open(url: string): Promise<FaultyProxy> {
    const { hostname, port } = new URL(url);
    const proxy = new FaultyProxy({ host: hostname, port: Number(port === '' ? 5672 : port) });
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** `url` with this proxy in place of its host. */
  urlOf(url: string): string {
    const through = new URL(url);
    through.hostname = '127.0.0.1';
    through.port = String((this.#server.address() as AddressInfo).port);
    return through.href;
  }

  /** Connections taken so far. */
  get accepted(): number {
    return this.#accepted;
  }

  get openLinks(): number {
    return this.#links.size;
  }

  /** Stops passing bytes on; what comes waits, links stay open. */
  pause(): void {
    this.#isPaused = true;
    for (const { client, server } of this.#links) {
      client.pause();
      server.pause();
    }
  }

  /** Ends a pause, a throttle and all dropping. */
  resume(): void {
    this.#isPaused = false;
    this.#bytesPerSecond = Number.POSITIVE_INFINITY;
    this.#dropped.clear();
    for (const { client, server, isForgotten } of this.#links) {
      if (isForgotten) continue;
      client.resume();
      server.resume();
    }
    for (const [client, sent] of this.#held) {
      this.#held.delete(client);
      client.removeAllListeners();
      this.#connect(client, Buffer.concat(sent));
    }
  }

  /** Breaks every open link at once. */
  cut(): void {
    for (const client of this.#held.keys()) client.resetAndDestroy();
    for (const { client, server } of this.#links) {
      client.resetAndDestroy();
      server.resetAndDestroy();
    }
    this.#links.clear();
  }

  /** Passes so many bytes more one way, then breaks every link: in the middle of whatever was under way. */
  cutAfter(bytes: number, direction: Direction): void {
    this.#cutAfter = { bytes, direction };
  }

  /** Sends the client `bytes` together with the next bytes of the server that hold `after`, once. */
  append(after: Buffer, bytes: Buffer): void {
    this.#appended = { after, bytes };
  }

  /** Open links pass nothing on any more and stay open, as when a firewall forgot them; new ones work. */
  forget(): void {
    for (const link of this.#links) {
      link.isForgotten = true;
      link.client.pause();
      link.server.pause();
    }
  }

  /** Breaks new connections as soon as they are made, until `accept`. */
  refuse(): void {
    this.#isRefusing = true;
  }

  /** Ends `refuse`. */
  accept(): void {
    this.#isRefusing = false;
  }

  /** Throws away what goes one way, as a firewall that forgot the link. */
  drop(direction: Direction): void {
    this.#dropped.add(direction);
  }

  /** Passes on at most so many bytes a second to the server on each link. */
  throttle(bytesPerSecond: number): void {
    this.#bytesPerSecond = bytesPerSecond;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(client: Socket): void {
    this.#accepted += 1;
    client.on('error', () => undefined);
    if (this.#isRefusing) {
      client.resetAndDestroy();
      return;
    }
    if (this.#isPaused) this.#hold(client);
    else this.#connect(client, Buffer.alloc(0));
  }

  /** A server beyond a silent network never hears of who tries to reach it, nor of who gave up. */
  #hold(client: Socket): void {
    const sent: Buffer[] = [];
    this.#held.set(client, sent);
    client.on('data', (chunk: Buffer) => sent.push(chunk));
    client.on('close', () => this.#held.delete(client));
  }

  #connect(client: Socket, sent: Buffer): void {
    client.on('error', () => undefined);
    const server = connect(this.#target);
    const link: Link = { client, server, isForgotten: false };
    this.#links.add(link);
    const end = (): void => {
      this.#links.delete(link);
      client.destroy();
      server.destroy();
    };
    server.on('error', end);
    client.on('close', end);
    server.on('close', end);
    client.on('data', (chunk: Buffer) => this.#pass(link, chunk, 'to-server'));
    server.on('data', (chunk: Buffer) => this.#pass(link, chunk, 'to-client'));
    if (sent.length > 0) this.#pass(link, sent, 'to-server');
  }

  #pass(link: Link, chunk: Buffer, direction: Direction): void {
    if (link.isForgotten || this.#dropped.has(direction)) return;
    const [from, to] = direction === 'to-server' ? [link.client, link.server] : [link.server, link.client];
    if (this.#cutAfter?.direction === direction) {
      const { bytes } = this.#cutAfter;
      this.#cutAfter.bytes -= chunk.length;
      if (chunk.length >= bytes) {
        this.#cutAfter = undefined;
        to.write(chunk.subarray(0, bytes), () => this.cut());
        return;
      }
    }
    const isFree = to.write(direction === 'to-client' ? this.#withAppended(chunk) : chunk);
    const waitMs = direction === 'to-server' ? (chunk.length / this.#bytesPerSecond) * 1_000 : 0;
    if (isFree && waitMs < 1) return;
    from.pause();
    const goOn = (): void => {
      if (!this.#isPaused && !link.isForgotten) from.resume();
    };
    if (waitMs >= 1) systemClock.after(waitMs, goOn);
    else to.once('drain', goOn);
  }

  #withAppended(chunk: Buffer): Buffer {
    if (this.#appended === undefined || !chunk.includes(this.#appended.after)) return chunk;
    const { bytes } = this.#appended;
    this.#appended = undefined;
    return Buffer.concat([chunk, bytes]);
  }
}
