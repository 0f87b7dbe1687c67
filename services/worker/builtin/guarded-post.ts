/**
 * Posts to a URL that came from outside. The address is judged when the connection is made, so that a name cannot lead to one
 * address when it is checked and to another when it is called.
 */
import { lookup } from 'node:dns';
import type { LookupAddress, LookupOptions } from 'node:dns';
import { request as requestHttp } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { isPrivateAddress } from '../../../shared/http/private-address.ts';
import { MOST_ANSWER_BYTES } from './webhook-answer.ts';

/** A post. */
export interface GuardedPost {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** True: the host may have any address. */
  readonly mayBePrivate: boolean;
  readonly signal: AbortSignal;
}

/** What was answered. */
export interface PostAnswer {
  readonly status: number;
  readonly retryAfter: string | null;
  /** The start of the body. */
  readonly said: string;
}

type LookupCallback = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

/** Resolves names to public addresses alone; `host-not-allowed` where there is none. */
export function lookupPublic(host: string, options: LookupOptions, callback: LookupCallback): void {
  lookup(host, { ...options, all: true }, (error, addresses) => {
    if (error !== null) return callback(error, []);
    const found = addresses.filter(({ address }) => !isPrivateAddress(address));
    const [first] = found;
    if (first === undefined) return callback(new WarrenError('host-not-allowed', { host }), []);
    return options.all === true ? callback(null, found) : callback(null, first.address, first.family);
  });
}

/** Posts; follows no redirect, keeps no connection. Throws `host-not-allowed`, and what the network throws. */
export async function postGuarded({ url, headers, body, mayBePrivate, signal }: GuardedPost): Promise<PostAnswer> {
  const isHttps = url.protocol === 'https:';
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const asked = (isHttps ? requestHttps : requestHttp)(url, {
      method: 'POST',
      headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) },
      agent: false,
      signal,
      ...(mayBePrivate ? {} : { lookup: lookupPublic }),
    });
    asked.once('response', resolve);
    asked.once('error', reject);
    asked.end(body);
  });
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= MOST_ANSWER_BYTES) break; // leaving the loop destroys the stream
  }
  return {
    status: response.statusCode ?? 0,
    retryAfter: response.headers['retry-after'] ?? null,
    said: Buffer.concat(chunks).subarray(0, MOST_ANSWER_BYTES).toString('utf8'),
  };
}
