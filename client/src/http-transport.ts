/** One request over HTTP and its answer: tried again where that is safe, within the time of the call. */
import { ProblemError, UnreachableError } from './errors.ts';
import type { Problem } from './errors.ts';
import type { CallOptions } from './options.ts';
import { startLimit } from './time.ts';
import type { ClientDeps, Limit } from './time.ts';

/** Where the Task API is, and who calls. */
export interface HttpOptions {
  /** `https://host:port`, with a path where a proxy adds one. */
  readonly url: string;
  /** Bearer token; without one none is sent. */
  readonly token?: string;
}

/** A request. It must be safe to repeat: a GET, or one with a key. */
export interface Request {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A 2xx answer. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly value: Readonly<Record<string, unknown>>;
  /** 1 where the first try was answered. */
  readonly tries: number;
}

/** Milliseconds of one call, where it does not say. */
export const CALL_TIMEOUT_MS = 30_000;
/** Milliseconds after which one try is given up. */
const TRY_TIMEOUT_MS = 15_000;
const FIRST_BACKOFF_MS = 100;
const LONGEST_BACKOFF_MS = 5_000;
/** Bytes of an answer at most: a batch of a thousand tasks is a tenth of it. */
const ANSWER_MAX_BYTES = 67_108_864;
const RETRIED_STATUSES = [408, 425, 429, 502, 503, 504];

/** What a try came to when it gave no answer. */
interface Failure {
  readonly error: ProblemError | UnreachableError;
  readonly isRetryable: boolean;
  readonly retryAfterMs: number | undefined;
}

/** Speaks to one service. */
export class HttpTransport {
  readonly #deps: ClientDeps;
  readonly #options: HttpOptions;

  constructor(deps: ClientDeps, options: HttpOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /**
   * Sends a request until it is answered, with full jitter between tries, or as `Retry-After` says. Throws `ProblemError` for a
   * refusal, `UnreachableError` where the time is over, and the signal's reason where the caller aborted.
   */
  async send(request: Request, { signal, timeoutMs = CALL_TIMEOUT_MS }: CallOptions = {}): Promise<Answer> {
    signal?.throwIfAborted();
    const limit = startLimit(this.#deps, timeoutMs, signal);
    try {
      for (let tries = 1; ; tries += 1) {
        const tried = await this.#try(request, limit, tries);
        signal?.throwIfAborted();
        if ('value' in tried) return tried;
        const backoffMs = this.#deps.random() * Math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (tries - 1));
        const waitMs = Math.max(tried.retryAfterMs ?? 0, backoffMs);
        if (!tried.isRetryable || limit.isOver() || waitMs >= limit.leftMs()) throw tried.error;
        await this.#deps.sleep(waitMs, limit.signal);
        signal?.throwIfAborted();
      }
    } finally {
      limit.end();
    }
  }

  /** Reads a file by the path of its link, which needs no token, within so many milliseconds. Throws `UnreachableError`. */
  async download(path: string, { signal, timeoutMs = CALL_TIMEOUT_MS }: CallOptions = {}): Promise<string> {
    const limit = startLimit(this.#deps, timeoutMs, signal);
    try {
      const response = await this.#deps.fetch(this.#options.url.replace(/\/+$/, '') + path, { signal: limit.signal });
      const text = await readText(response);
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      return text;
    } catch (thrown) {
      signal?.throwIfAborted();
      throw new UnreachableError(
        `a file cannot be read: ${limit.isOver() ? 'no answer in time' : reasonOf(thrown)}`,
        thrown,
      );
    } finally {
      limit.end();
    }
  }

  async #try(request: Request, limit: Limit, tries: number): Promise<Answer | Failure> {
    const own = startLimit(this.#deps, TRY_TIMEOUT_MS, limit.signal);
    try {
      const { url, token } = this.#options;
      const response = await this.#deps.fetch(url.replace(/\/+$/, '') + request.path, {
        method: request.method,
        headers: {
          accept: 'application/json',
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...(request.body === undefined ? {} : { 'content-type': 'application/json' }),
          ...request.headers,
        },
        ...(request.body === undefined ? {} : { body: request.body }),
        redirect: 'error', // a token goes to the address that was configured, and nowhere else
        signal: own.signal,
      });
      return this.#judge(response, parseObject(await readText(response)), tries);
    } catch (thrown) {
      const why = own.isOver() || limit.isOver() ? 'did not answer in time' : `cannot be reached: ${reasonOf(thrown)}`;
      const error = new UnreachableError(`${this.#options.url} ${why}`, thrown);
      return { error, isRetryable: true, retryAfterMs: undefined };
    } finally {
      own.end();
    }
  }

  #judge(response: Response, value: Record<string, unknown> | undefined, tries: number): Answer | Failure {
    const { status, headers } = response;
    if (response.ok && value !== undefined) return { status, headers, value, tries };
    const seconds = Number(headers.get('retry-after') ?? Number.NaN);
    const retryAfterMs = Number.isFinite(seconds) ? seconds * 1_000 : undefined;
    if (value === undefined || typeof value['type'] !== 'string' || typeof value['title'] !== 'string') {
      const error = new UnreachableError(`what answers at ${this.#options.url} (HTTP ${status}) is no Warren service`);
      return { error, isRetryable: RETRIED_STATUSES.includes(status), retryAfterMs };
    }
    const code = value['type'].split(/[/:#]/).at(-1) ?? value['type'];
    const error = new ProblemError({ ...value, type: code, status } as unknown as Problem);
    const isRetryable = RETRIED_STATUSES.includes(status) || code === 'idempotency-key-in-flight';
    return { error, isRetryable, retryAfterMs };
  }
}

async function readText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  if (response.body !== null) {
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      size += chunk.length;
      if (size > ANSWER_MAX_BYTES) throw new Error(`the answer is larger than ${ANSWER_MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined; // no JSON: whoever asked says what that means
  }
}

/** `fetch failed` says nothing; its cause does. */
function reasonOf(thrown: unknown): string {
  const error = thrown as {
    readonly message?: unknown;
    readonly cause?: { readonly message?: unknown; readonly code?: unknown };
  };
  const said = [error.cause?.code, error.cause?.message, error.message].find(
    (each) => typeof each === 'string' && each !== '',
  );
  return String(said ?? thrown);
}
