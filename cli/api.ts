/** The HTTP client of the Task API and the Dead Letter API. Answers keep their bytes, so that `--json` shows what came. */
import { codeOf, toError } from '../shared/errors/to-error.ts';
import { tlsFailure } from '../shared/tls/tls-failure.ts';
import { CATALOGUE } from '../shared/errors/catalogue.ts';
import type { Clock } from '../shared/time/clock.ts';
import { CliError, exitCodeOf, withHint } from './cli-error.ts';
import type { Problem } from './cli-error.ts';
import { EXIT_CODES } from './exit-codes.ts';

/** What the client needs. */
export interface ApiDeps {
  readonly fetch: typeof globalThis.fetch;
  readonly clock: Clock;
  /** Ends every request when it aborts; exit 130. */
  readonly interrupted: AbortSignal;
}

/** Where the API is and who calls. */
export interface ApiOptions {
  /** `http://host:port`, with a path where a proxy adds one. */
  readonly baseUrl: string;
  /** Bearer token; `undefined`: none is sent. */
  readonly token: string | undefined;
  /** Setting that names the URL, for messages. */
  readonly setting: string;
}

/** A 2xx answer: a JSON object and the bytes that it was parsed from. */
export interface ApiAnswer {
  readonly value: Readonly<Record<string, unknown>>;
  readonly bytes: Buffer;
}

interface Asked {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Query parameters; `undefined` ones are left out. */
export type Query = Readonly<Record<string, string | number | readonly string[] | undefined>>;

/** Milliseconds after which a request is given up. */
const REQUEST_TIMEOUT_MS = 30_000;
/** Milliseconds without a byte after which an answer of lines is given up. */
const STREAM_IDLE_MS = 60_000;
/** Bytes of an answer at most: a page of a thousand tasks fits. */
const ANSWER_MAX_BYTES = 512 * 1024 * 1024;

/** Calls one service. Every failure is a CliError: `server-unreachable` (69), or the problem that the service answered. */
export class ApiClient {
  readonly #deps: ApiDeps;
  readonly #options: ApiOptions;

  constructor(deps: ApiDeps, options: ApiOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  async get(path: string, query: Query = {}): Promise<ApiAnswer> {
    return await this.#send({ method: 'GET', path: path + renderQuery(query) });
  }

  /** Posts `body`, JSON text as it is to be sent. */
  async post(path: string, body: string, headers: Readonly<Record<string, string>> = {}): Promise<ApiAnswer> {
    return await this.#send({ method: 'POST', path, body, headers });
  }

  /** Changes what is at `path`; `ifMatch`: only where it still is as that ETag says. */
  async patch(path: string, body: string, ifMatch?: string): Promise<ApiAnswer> {
    return await this.#send({
      method: 'PATCH',
      path,
      body,
      headers: ifMatch === undefined ? {} : { 'if-match': ifMatch },
    });
  }

  /** Takes away what is at `path`. */
  async delete(path: string, body: string): Promise<ApiAnswer> {
    return await this.#send({ method: 'DELETE', path, body });
  }

  /**
   * Gets an answer of lines of any length and hands each piece on as it comes; the next is not read before `take` has it. Throws
   * where the answer breaks off: what was taken is not the whole then.
   */
  async getLines(path: string, query: Query, take: (bytes: Uint8Array) => Promise<void>): Promise<void> {
    const isFitting = (headers: Headers): boolean =>
      headers.get('content-type')?.startsWith('application/jsonl') === true;
    await this.#getStream(path + renderQuery(query), isFitting, take);
  }

  /** Gets a file of any length by the path of a link, in the same way. */
  async getFile(path: string, take: (bytes: Uint8Array) => Promise<void>): Promise<void> {
    await this.#getStream(
      path,
      (headers) => headers.get('content-disposition')?.startsWith('attachment') === true,
      take,
    );
  }

  async #getStream(
    path: string,
    isFitting: (headers: Headers) => boolean,
    take: (bytes: Uint8Array) => Promise<void>,
  ): Promise<void> {
    const { clock, interrupted } = this.#deps;
    const idle = new AbortController();
    let cancel = clock.after(STREAM_IDLE_MS, () => idle.abort());
    const moved = (): void => {
      cancel();
      cancel = clock.after(STREAM_IDLE_MS, () => idle.abort());
    };
    try {
      const response = await this.#ask({ method: 'GET', path }, idle.signal);
      if (!response.ok || response.body === null || !isFitting(response.headers)) {
        this.#judge(response, await readAll(response));
        throw this.#unreachable(`what answers there (HTTP ${response.status}) is no Warren service`);
      }
      for await (const bytes of response.body as AsyncIterable<Uint8Array>) {
        moved();
        await take(bytes);
        moved();
      }
    } catch (thrown) {
      if (interrupted.aborted) throw interruptedError(thrown);
      if (toError(thrown).name === 'CliError') throw thrown;
      const reason = idle.signal.aborted ? `nothing came for ${STREAM_IDLE_MS / 1_000} s` : reasonOf(thrown);
      throw this.#unreachable(reason, thrown);
    } finally {
      cancel();
    }
  }

  async #ask({ method, path, body, headers }: Asked, late: AbortSignal): Promise<Response> {
    const { fetch, interrupted } = this.#deps;
    const { baseUrl, token } = this.#options;
    return await fetch(baseUrl + path, {
      method,
      redirect: 'manual', // a token must not follow a redirect to another host
      signal: AbortSignal.any([interrupted, late]),
      headers: {
        accept: 'application/json, application/problem+json',
        ...headers,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { body }),
    });
  }

  async #send(asked: Asked): Promise<ApiAnswer> {
    const { clock, interrupted } = this.#deps;
    const late = new AbortController();
    const cancel = clock.after(REQUEST_TIMEOUT_MS, () => late.abort());
    try {
      const response = await this.#ask(asked, late.signal);
      return this.#judge(response, await readAll(response));
    } catch (thrown) {
      if (interrupted.aborted) throw interruptedError(thrown);
      if (toError(thrown).name === 'CliError') throw thrown;
      const reason = late.signal.aborted ? `no answer within ${REQUEST_TIMEOUT_MS / 1_000} s` : reasonOf(thrown);
      throw this.#unreachable(reason, thrown);
    } finally {
      cancel();
    }
  }

  #judge(response: Response, bytes: Buffer): ApiAnswer {
    const value = parseObject(bytes);
    if (response.ok && value !== undefined) return { value, bytes };
    if (!response.ok && value !== undefined && isProblem(response, value)) {
      const problem = readProblem(response, value);
      throw new CliError(exitCodeOf(problem.code, response.status), problem);
    }
    throw this.#unreachable(`what answers there (HTTP ${response.status}) is no Warren service`);
  }

  #unreachable(reason: string, cause?: unknown): CliError {
    const { baseUrl, setting } = this.#options;
    return new CliError(
      EXIT_CODES.unreachable,
      {
        code: 'server-unreachable',
        title: CATALOGUE['server-unreachable'].title,
        url: baseUrl,
        reason,
        hint: `Start the service (\`warren dev\` starts all), or point ${setting} at it.`,
      },
      cause,
    );
  }
}

/** The error of a command that Ctrl-C ended. */
export function interruptedError(cause?: unknown): CliError {
  return new CliError(EXIT_CODES.interrupted, { code: 'interrupted', title: 'Interrupted.' }, cause);
}

/** An id or name as one step of a path. */
export function pathStep(text: string): string {
  // "." and ".." would be taken as steps of the path itself.
  return /^\.{1,2}$/.test(text)
    ? text.replaceAll('.', '%2E')
    : encodeURIComponent(text.replaceAll(/\p{Surrogate}/gu, '\ufffd'));
}

function renderQuery(query: Query): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const one of typeof value === 'object' ? value : [value]) params.append(name, String(one));
  }
  const text = params.toString();
  return text === '' ? '' : `?${text}`;
}

async function readAll(response: Response): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  if (response.body !== null) {
    for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
      size += chunk.length;
      if (size > ANSWER_MAX_BYTES) throw new Error(`the answer is larger than ${ANSWER_MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
  }
  return Buffer.concat(chunks);
}

function parseObject(bytes: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined; // not JSON: the caller says what that means
  }
}

function isProblem(response: Response, value: Readonly<Record<string, unknown>>): boolean {
  return (response.headers.get('content-type') ?? '').includes('json') && typeof value['title'] === 'string';
}

/** RFC 9457: `type` identifies the problem; ours ends in the code of the catalogue. */
function readProblem(response: Response, value: Readonly<Record<string, unknown>>): Problem {
  const given = typeof value['code'] === 'string' ? value['code'] : value['type'];
  const code = typeof given === 'string' ? (given.split(/[/:#]/).at(-1) ?? given) : `http-${response.status}`;
  const retryAfter = response.headers.get('retry-after');
  return withHint({
    ...value,
    code,
    title: String(value['title']),
    status: response.status,
    ...(retryAfter === null ? {} : { retryAfter }),
  });
}

/** The servers ask for no certificate; a proxy before them may. */
const TLS_NAMES = { ca: '--ca-file or WARREN_CA_FILE', cert: 'a program that has one: warren has none' };

/** `fetch failed` says nothing; its cause does. */
function reasonOf(thrown: unknown): string {
  const error = toError(thrown);
  const cause = error.cause === undefined ? error : toError(error.cause);
  const code = codeOf(cause);
  if (code === 'ECONNREFUSED') return 'nothing listens there';
  const tls = tlsFailure(cause, TLS_NAMES);
  if (tls !== undefined) return tls;
  if (/wrong.version.number|packet length too long/i.test(`${code} ${cause.message}`)) {
    return 'the server speaks no TLS there; write http:// where it is meant to';
  }
  if (code === 'UND_ERR_SOCKET' || code === 'ECONNRESET') {
    return 'the server hung up; where it speaks TLS, write https://';
  }
  if (code === 'ENOTFOUND') return 'the host name is not known';
  const message = cause.message === '' ? error.message : cause.message;
  return code === undefined || message.includes(code) ? message : `${code} ${message}`;
}
