/** The built-in type `http.request`: a task that calls a URL, so that a service in any language can be the worker. */
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { allowHosts } from '../../../shared/http/allowed-hosts.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { TaskContext, TaskType } from '../../../shared/tasks/define-task.ts';
import { NonRetryable, RetryAfter } from '../../../shared/tasks/handler-errors.ts';
import type { Clock } from '../../../shared/time/clock.ts';

/** How `http.request` may call. */
export interface HttpRequestOptions {
  /** Hosts that may be called: `api.example.com`, `127.0.0.1:8080`, `*.example.com`. Empty: none. Default empty. */
  readonly allowHosts: readonly string[];
  /** Part of a response body that is kept in the result, in bytes. Default 16 384. */
  readonly maxResponseBytes: number;
}

/** The defaults. */
export const DEFAULT_HTTP_REQUEST: HttpRequestOptions = { allowHosts: [], maxResponseBytes: 16_384 };

/** What a call gave. */
export interface HttpResult {
  readonly status: number;
  /** Those of content-type, content-length, etag, last-modified and x-request-id that came. */
  readonly headers: Record<string, string>;
  /** As UTF-8, at most `maxResponseBytes` of it. */
  readonly body: string;
  readonly isBodyCut: boolean;
}

const MOST_REDIRECTS = 5;
const KEPT_HEADERS = ['content-type', 'content-length', 'etag', 'last-modified', 'x-request-id'];
/** What would break the framing of the request, or speak to what lies between. */
const REFUSED_HEADER =
  /^(host|connection|keep-alive|content-length|transfer-encoding|te|trailer|upgrade|expect|proxy-.*)$/i;

const HttpInput = z
  .strictObject({
    /** http or https, without user name and password. */
    url: z
      .string()
      .max(8_192)
      .refine((text) => isCallable(text), 'must be an http or https URL without credentials'),
    method: z.enum(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']).default('POST'),
    headers: z
      .record(
        z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}$/),
        z
          .string()
          .max(8_192)
          .regex(/^[\t\x20-\x7e]*$/),
      )
      .refine(
        (headers) => !Object.keys(headers).some((name) => REFUSED_HEADER.test(name)),
        'holds a header that is not yours to set',
      )
      .default({}),
    /** A text is sent as it is, anything else as JSON. */
    body: z.unknown().optional(),
    /** Longest wait for the whole answer, in milliseconds. */
    timeoutMs: z.int().min(1).max(60_000).default(30_000),
  })
  .refine(({ method, body }) => body === undefined || (method !== 'GET' && method !== 'HEAD'), {
    path: ['body'],
    message: 'cannot be sent with GET or HEAD',
  });

type HttpInput = z.output<typeof HttpInput>;

/**
 * Makes the type. 2xx and 3xx succeed; 5xx, 408, 429 and network errors are tried again (`Retry-After` is honoured); other
 * 4xx and hosts that are not allowed are not. Each host has its circuit breaker. The call carries `warren-task-id`,
 * `warren-attempt` and, unless given, `idempotency-key`. Throws `config-invalid` for a wrong pattern.
 */
export function createHttpRequestType(clock: Clock, options: HttpRequestOptions = DEFAULT_HTTP_REQUEST): TaskType {
  const isAllowed = allowHosts(options.allowHosts);
  return defineTask({
    name: 'http.request',
    input: HttpInput,
    timeoutMs: 120_000,
    retry: { maxAttempts: 8, neverOn: ['host-not-allowed'] },
    run: async (input, ctx): Promise<HttpResult> => {
      const url = new URL(input.url);
      if (!isAllowed(url)) throw new WarrenError('host-not-allowed', { host: url.host });
      return await ctx.breaker(`http:${url.host}`, async (signal) => {
        const limited = new AbortController();
        const cancel = clock.after(input.timeoutMs, () =>
          limited.abort(new WarrenError('attempt-timeout', { timeoutMs: input.timeoutMs })),
        );
        try {
          const response = await call(url, input, ctx, AbortSignal.any([signal, limited.signal]), isAllowed);
          return await read(response, options.maxResponseBytes, clock);
        } finally {
          cancel();
        }
      });
    },
  });
}

async function call(
  first: URL,
  input: HttpInput,
  ctx: TaskContext,
  signal: AbortSignal,
  isAllowed: (url: URL) => boolean,
): Promise<Response> {
  let url = first;
  let { method } = input;
  let body = bodyOf(input);
  const headers = headersOf(input, ctx);
  for (let redirects = 0; redirects <= MOST_REDIRECTS; redirects += 1) {
    const response = await fetch(url.href, {
      method,
      headers,
      redirect: 'manual',
      signal,
      ...(body === undefined ? {} : { body }),
    });
    const location = response.headers.get('location');
    if (location === null || ![301, 302, 303, 307, 308].includes(response.status)) return response;
    await response.body?.cancel();
    if (!URL.canParse(location, url.href)) throw new NonRetryable('redirects to what is no URL');
    const next = new URL(location, url.href);
    if (!isCallable(next.href) || !isAllowed(next)) throw new WarrenError('host-not-allowed', { host: next.host });
    if (next.origin !== url.origin) {
      headers.delete('authorization'); // meant for the first host alone: Fetch standard, HTTP-redirect fetch, step 13
      headers.delete('cookie');
    }
    if (response.status <= 303 && method !== 'GET' && method !== 'HEAD') {
      method = 'GET';
      body = undefined;
      headers.delete('content-type');
    }
    url = next;
  }
  throw new NonRetryable(`more than ${MOST_REDIRECTS} redirects`);
}

function headersOf(input: HttpInput, ctx: TaskContext): Headers {
  const headers = new Headers({ 'idempotency-key': ctx.taskId, 'user-agent': 'warren' });
  if (input.body !== undefined && typeof input.body !== 'string') headers.set('content-type', 'application/json');
  for (const [name, value] of Object.entries(input.headers)) headers.set(name, value);
  headers.set('warren-task-id', ctx.taskId);
  headers.set('warren-attempt', String(ctx.attempt));
  return headers;
}

function bodyOf({ body }: HttpInput): string | undefined {
  if (body === undefined) return undefined;
  return typeof body === 'string' ? body : JSON.stringify(body);
}

async function read(response: Response, maxBytes: number, clock: Clock): Promise<HttpResult> {
  const { status } = response;
  if (status >= 400) {
    const shown = await readBody(response, 1_024);
    const message = `answered ${status}: ${shown.text}`;
    if (status < 500 && status !== 408 && status !== 429) throw new NonRetryable(message);
    const delayMs = retryAfterMs(response.headers.get('retry-after'), clock);
    throw delayMs === undefined ? new Error(message) : new RetryAfter(delayMs, message);
  }
  const body = await readBody(response, maxBytes);
  const kept = KEPT_HEADERS.map((name): [string, string | null] => [name, response.headers.get(name)]);
  const headers = Object.fromEntries(kept.filter((entry): entry is [string, string] => entry[1] !== null));
  return { status, headers, body: body.text, isBodyCut: body.isCut };
}

async function readBody(response: Response, maxBytes: number): Promise<{ text: string; isCut: boolean }> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  if (response.body !== null) {
    for await (const chunk of response.body as ReadableStream<Uint8Array>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxBytes) break; // leaving the loop cancels the stream
    }
  }
  return { text: Buffer.concat(chunks).subarray(0, maxBytes).toString('utf8'), isCut: size > maxBytes };
}

/** Retry-After as milliseconds from now: seconds or a date. RFC 9110 §10.2.3. `undefined` where it is neither. */
export function retryAfterMs(header: string | null, clock: Clock): number | undefined {
  if (header === null) return undefined;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header) * 1_000;
  const at = /^[A-Z][a-z]+,? /.test(header) ? Date.parse(header) : Number.NaN; // Date.parse takes "-1" for a year
  return Number.isNaN(at) ? undefined : Math.max(at - clock.now().getTime(), 0);
}

function isCallable(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password } = new URL(text);
  return (protocol === 'http:' || protocol === 'https:') && username === '' && password === '';
}
