/**
 * Keeps one message with headers that amqplib cannot decode from ending the connection.
 *
 * amqplib decodes headers while it reads frames, and treats a failure there as a broken connection. The broker redelivers the
 * message at once, so that any publisher could keep every consumer away for ever: with a table nested a few thousand
 * deep (35 kB), or on 3.10 with an unsigned 64-bit field. Tried on 3.10.8 and 4.3.6 with amqplib 2.3.1, 2026-11.
 */
import type { ChannelModel } from 'amqplib';

/** Property under which the undecoded bytes of a header table stand. */
export const UNDECODED_HEADERS = 'undecodedHeaders';

const FRAME_HEADER = 2;
const FRAME_END = 206;
/** Frame type, channel and payload size. */
const FRAME_START_BYTES = 7;
/** Within a header frame's payload: class, weight and body size, then the flags. */
const FLAGS_AT = FRAME_START_BYTES + 12;
const CONTENT_TYPE = 0x8000;
const CONTENT_ENCODING = 0x4000;
const HEADERS = 0x2000;

/** What is used of amqplib's inner connection. */
interface FrameReader {
  rest?: Buffer;
  recvFrame?: (this: FrameReader) => unknown;
}

/** Makes a connection survive undecodable headers: such a message comes without headers, their bytes under `UNDECODED_HEADERS`. */
export function guardHeaders(model: ChannelModel): void {
  const inner = model.connection as FrameReader;
  const { recvFrame } = inner;
  if (recvFrame === undefined) return;
  inner.recvFrame = function guarded(this: FrameReader): unknown {
    const before = this.rest;
    try {
      return recvFrame.call(this);
    } catch (thrown) {
      // The frame was whole, and taken out of the buffer, before it was decoded.
      const cut = before === undefined || before === this.rest ? undefined : withoutHeaders(before);
      if (cut === undefined) throw thrown;
      this.rest = Buffer.concat([cut.frame, this.rest ?? Buffer.alloc(0)]);
      const frame = recvFrame.call(this) as { fields: Record<string, unknown> };
      frame.fields[UNDECODED_HEADERS] = cut.headers;
      return frame;
    }
  };
}

/** The first frame of `bytes` with its header table cut out; `undefined` where it is no header frame with such a table. */
function withoutHeaders(bytes: Buffer): { readonly frame: Buffer; readonly headers: Buffer } | undefined {
  if (bytes.length < FLAGS_AT + 2 || bytes[0] !== FRAME_HEADER) return undefined;
  const flags = bytes.readUInt16BE(FLAGS_AT);
  if ((flags & HEADERS) === 0) return undefined;
  // Only content type and encoding come before the headers.
  let start = FLAGS_AT + 2;
  if ((flags & CONTENT_TYPE) !== 0) start += 1 + (bytes[start] ?? 0);
  if ((flags & CONTENT_ENCODING) !== 0) start += 1 + (bytes[start] ?? 0);
  const end = start + 4 + bytes.readUInt32BE(start);
  const payloadEnd = FRAME_START_BYTES + bytes.readUInt32BE(3);
  if (end > payloadEnd) return undefined;
  const frame = Buffer.concat([bytes.subarray(0, start), bytes.subarray(end, payloadEnd), Buffer.from([FRAME_END])]);
  frame.writeUInt32BE(frame.length - FRAME_START_BYTES - 1, 3);
  frame.writeUInt16BE(flags & ~HEADERS, FLAGS_AT);
  return { frame, headers: Buffer.from(bytes.subarray(start + 4, end)) };
}
