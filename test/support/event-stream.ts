/** Reads server-sent events, as a browser does. */
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';

/** One event. */
export interface ReadEvent {
  readonly id: string;
  readonly event: string;
  readonly data: Record<string, unknown>;
}

/** A stream that is read. */
export interface ReadStream {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  /** What came so far. */
  readonly events: ReadEvent[];
  readonly comments: string[];
  /** What the server said of when to come again, in milliseconds. */
  retryMs(): number | undefined;
  /** Resolves when the stream is over. */
  readonly ended: Promise<void>;
  /** Takes nothing more from the socket, until `resume`. */
  pause(): void;
  resume(): void;
  close(): void;
}

/** Opens a stream and reads it in the background. */
export async function openEvents(url: string, headers: Readonly<Record<string, string>> = {}): Promise<ReadStream> {
  const asked = request(url, { headers: { accept: 'text/event-stream', ...headers }, agent: false });
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    asked.once('response', resolve);
    asked.once('error', reject);
    asked.end();
  });
  const events: ReadEvent[] = [];
  const comments: string[] = [];
  let retryMs: number | undefined;
  let left = '';
  response.setEncoding('utf8');
  response.on('data', (text: string) => {
    const blocks = (left + text).split('\n\n');
    left = blocks.pop() ?? '';
    for (const block of blocks) {
      const fields = new Map(
        block.split('\n').map((line) => {
          const colon = line.indexOf(':');
          return [line.slice(0, colon), line.slice(colon + 1).trim()] as const;
        }),
      );
      const comment = fields.get('');
      if (comment !== undefined) comments.push(comment);
      if (fields.has('retry')) retryMs = Number(fields.get('retry'));
      const data = fields.get('data');
      if (data === undefined) continue;
      events.push({
        id: fields.get('id') ?? '',
        event: fields.get('event') ?? 'message',
        data: JSON.parse(data) as Record<string, unknown>,
      });
    }
  });
  const ended = new Promise<void>((resolve) => {
    response.once('close', resolve);
    response.once('error', () => resolve());
  });
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    events,
    comments,
    retryMs: () => retryMs,
    ended,
    pause: () => response.socket.pause(),
    resume: () => response.socket.resume(),
    close: () => response.destroy(),
  };
}
