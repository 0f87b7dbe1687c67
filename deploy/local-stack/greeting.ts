/** The first words of an AMQP 0-9-1 broker. They come before any sign-in, and name the product and its version. */
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** What a broker says of itself. */
export interface Greeting {
  readonly product: string;
  readonly version: string;
}

const PROTOCOL_HEADER = Buffer.from('AMQP\x00\x00\x09\x01', 'latin1');

/** Knocks at the broker of an `amqp:` or `amqps:` URL. `undefined` when none answers within `withinMs` milliseconds. */
export async function greetBroker(url: string, withinMs: number): Promise<Greeting | undefined> {
  const { protocol, hostname, port } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, '');
  return await new Promise((resolve) => {
    const socket =
      protocol === 'amqps:'
        ? connectTls({ host, port: Number(port || 5671), servername: host, rejectUnauthorized: false }) // nothing secret is said
        : connect({ host, port: Number(port || 5672) });
    let heard = Buffer.alloc(0);
    const end = (greeting: Greeting | undefined): void => {
      socket.destroy();
      resolve(greeting);
    };
    socket.setTimeout(withinMs, () => end(undefined));
    socket.once('error', () => end(undefined));
    socket.once('close', () => resolve(undefined));
    socket.once(protocol === 'amqps:' ? 'secureConnect' : 'connect', () => socket.write(PROTOCOL_HEADER));
    socket.on('data', (chunk: Buffer) => {
      heard = Buffer.concat([heard, chunk]);
      const greeting = parseGreeting(heard);
      if (greeting !== undefined || heard.length > 65_536) end(greeting);
    });
  });
}

/** Reads `connection.start`; `undefined` while it is not complete or is something else. Source: AMQP 0-9-1, 4.2.3. */
export function parseGreeting(bytes: Buffer): Greeting | undefined {
  if (bytes.length < 7 || bytes.readUInt8(0) !== 1) return undefined;
  if (bytes.length < 8 + bytes.readUInt32BE(3)) return undefined;
  const product = longString(bytes, 'product');
  const version = longString(bytes, 'version');
  return product === undefined || version === undefined ? undefined : { product, version };
}

/** A field of type S in a table: length of the name, name, 'S', four bytes of length, text. */
function longString(bytes: Buffer, name: string): string | undefined {
  const head = Buffer.concat([Buffer.from([name.length]), Buffer.from(`${name}S`, 'latin1')]);
  const at = bytes.indexOf(head);
  if (at < 0) return undefined;
  const start = at + head.length + 4;
  return bytes.toString('utf8', start, start + bytes.readUInt32BE(start - 4));
}
