/** Publishes header tables that amqplib would not encode, byte by byte. */
import type { ConfirmChannel } from 'amqplib';
import { once } from 'node:events';

interface InnerChannel {
  readonly ch: number;
  readonly connection: { sendBytes(bytes: Buffer): void };
}

const BASIC_PUBLISH = 3_932_200;
const BASIC_CLASS = 60;
const CONTENT_TYPE_AND_HEADERS = 0xa000;

/** One field of a table: name, type tag, value bytes. */
export function rawField(name: string, tag: string, value: Buffer): Buffer {
  return Buffer.concat([shortString(name), Buffer.from(tag), value]);
}

/** A field that holds a table. */
export function rawTable(name: string, fields: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(fields.length);
  return rawField(name, 'F', Buffer.concat([length, fields]));
}

/** Tables within tables, `depth` of them. */
export function rawNest(depth: number): Buffer {
  let table: Buffer = Buffer.alloc(0);
  for (let level = 0; level < depth; level += 1) table = rawTable('a', table);
  return table;
}

/** Publishes a message `x` of content type text/plain with these headers to a queue; resolves once confirmed. */
export async function publishRawHeaders(channel: ConfirmChannel, queue: string, table: Buffer): Promise<void> {
  const { ch, connection } = channel as unknown as InnerChannel;
  const method = Buffer.alloc(6);
  method.writeUInt32BE(BASIC_PUBLISH);
  const body = Buffer.from('x');
  const header = Buffer.alloc(14);
  header.writeUInt16BE(BASIC_CLASS, 0);
  header.writeBigUInt64BE(BigInt(body.length), 4);
  header.writeUInt16BE(CONTENT_TYPE_AND_HEADERS, 12);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(table.length);
  // amqplib counts its own publishes: a callback in the same place keeps its confirms in step.
  (channel as unknown as { pushConfirmCallback(callback: () => void): void }).pushConfirmCallback(() => undefined);
  const confirmed = once(channel, 'ack');
  connection.sendBytes(
    Buffer.concat([
      frame(1, ch, Buffer.concat([method, shortString(''), shortString(queue), Buffer.from([0])])),
      frame(2, ch, Buffer.concat([header, shortString('text/plain'), length, table])),
      frame(3, ch, body),
    ]),
  );
  await confirmed;
}

function shortString(text: string): Buffer {
  return Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);
}

function frame(type: number, channel: number, payload: Buffer): Buffer {
  const start = Buffer.alloc(7);
  start.writeUInt8(type, 0);
  start.writeUInt16BE(channel, 1);
  start.writeUInt32BE(payload.length, 3);
  return Buffer.concat([start, payload, Buffer.from([206])]);
}
