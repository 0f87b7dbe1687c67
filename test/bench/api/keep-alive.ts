/**
 * One kept HTTP connection with one request under way at a time, as little of a client as measuring needs: on two cores that the
 * server has to share, node's own client would take as much of them as the server does.
 */
import { connect } from 'node:net';
import type { Socket } from 'node:net';

/** A request as it goes over the wire, made once and sent often. */
export function renderRequest(
  host: string,
  { method, path, body }: { readonly method: string; readonly path: string; readonly body?: string | undefined },
): Buffer {
  const head = `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n`;
  if (body === undefined) return Buffer.from(`${head}\r\n`);
  const length = Buffer.byteLength(body);
  return Buffer.from(`${head}Content-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`);
}

/** One connection. Rejects, and is of no more use, where the server closes it or answers without a length. */
export class KeptConnection {
  readonly #socket: Socket;
  #pending: { readonly resolve: (status: number) => void; readonly reject: (error: Error) => void } | undefined;
  #head = '';
  #status = 0;
  /** Bytes of the body still to come; `undefined` while the head is read. */
  #left: number | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('the server closed a connection')));
  }

  /** Connects. Rejects with the system's error. */
  static async open(url: URL): Promise<KeptConnection> {
    const socket = connect({ host: url.hostname, port: Number(url.port) });
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', () => resolve());
      socket.once('error', reject);
    });
    return new KeptConnection(socket);
  }

  /** Sends a request and gives the status, once the whole answer has come. */
  async send(request: Buffer): Promise<number> {
    return await new Promise<number>((resolve, reject) => {
      if (this.#pending !== undefined || this.#socket.destroyed) {
        reject(new Error(this.#socket.destroyed ? 'the connection is closed' : 'a request is under way'));
        return;
      }
      this.#pending = { resolve, reject };
      this.#socket.write(request);
    });
  }

  /** Closes the connection. */
  close(): void {
    this.#pending = undefined;
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    let body = chunk.length;
    if (this.#left === undefined) {
      const before = this.#head.length;
      this.#head += chunk.toString('latin1');
      const end = this.#head.indexOf('\r\n\r\n');
      if (end === -1) return;
      const length = /\r\ncontent-length: (\d+)/i.exec(this.#head)?.[1];
      if (length === undefined) return this.#fail(new Error('an answer came without its length'));
      this.#status = Number(this.#head.slice(9, 12));
      this.#left = Number(length);
      body = chunk.length - (end + 4 - before);
      this.#head = '';
    }
    this.#left -= body;
    if (this.#left > 0) return undefined;
    this.#left = undefined;
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.resolve(this.#status);
    return undefined;
  }

  #fail(error: Error): void {
    this.#socket.destroy();
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.reject(error);
  }
}
