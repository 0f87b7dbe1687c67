/** `/livez`, `/readyz` and `/metrics`: what they answer, and a small server for processes that have no other. */
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { toError } from '../errors/to-error.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import type { Clock } from '../time/clock.ts';
import type { TlsFiles } from '../tls/tls-files.ts';
import { serverTls, watchCertificate } from './certificate.ts';

/** One thing that a service needs to do its work. */
export interface HealthCheck {
  /** Shown, such as `postgres`, `rabbitmq`, `consumer`. */
  readonly name: string;
  /** Gives why it is not well, in a few words without secrets; `undefined` when it is. */
  readonly check: () => string | undefined | Promise<string | undefined>;
  /** True: the service serves without it. It is shown as `degraded`, and readiness does not fail with it. Default false. */
  readonly isAdvisory?: boolean;
}

/** What the health routes need. */
export interface HealthDeps {
  readonly clock: Clock;
  /** Checks of readiness, all asked at once. */
  readonly checks: readonly HealthCheck[];
  /** Gives why the process should be started anew; `undefined` while it lives. Default: it lives as long as it answers. */
  readonly findDeath?: () => string | undefined;
  readonly metrics: { readonly contentType: string; render(): Promise<string> };
}

/** An answer, for whichever server gives it. */
export interface HealthAnswer {
  readonly status: 200 | 503;
  readonly contentType: string;
  readonly body: string;
}

/** Paths that `answerHealth` knows. */
export const HEALTH_PATHS = ['/livez', '/readyz', '/metrics'] as const;

/** Milliseconds that one check may take: below the usual timeout of a probe. */
const CHECK_WITHIN_MS = 2_000;

/** Answers a health path; `undefined` for any other. That it answers at all shows that the event loop turns. */
export async function answerHealth(path: string, deps: HealthDeps): Promise<HealthAnswer | undefined> {
  switch (path) {
    case '/livez': {
      const death = deps.findDeath?.();
      return json(
        death === undefined ? 200 : 503,
        death === undefined ? { status: 'ok' } : { status: 'failing', reason: death },
      );
    }
    case '/readyz':
      return await answerReady(deps);
    case '/metrics':
      return { status: 200, contentType: deps.metrics.contentType, body: await deps.metrics.render() };
    default:
      return undefined;
  }
}

async function answerReady({ checks, clock }: HealthDeps): Promise<HealthAnswer> {
  const race = new AbortController();
  const late = clock.sleep(CHECK_WITHIN_MS, race.signal).then(() => `no answer within ${CHECK_WITHIN_MS} ms`);
  const results = await Promise.all(
    checks.map(async ({ name, check, isAdvisory }) => {
      const reason = await Promise.race([ask(check), late]);
      const status = reason === undefined ? 'ok' : isAdvisory === true ? 'degraded' : 'failing';
      return { name, status, reason };
    }),
  );
  race.abort();
  const worst = ['failing', 'degraded'].find((each) => results.some(({ status }) => status === each)) ?? 'ok';
  const shown = results.map(({ name, ...result }) => [name, result] as const); // JSON leaves out a reason that is undefined
  return json(worst === 'failing' ? 503 : 200, { status: worst, checks: Object.fromEntries(shown) });
}

async function ask(check: HealthCheck['check']): Promise<string | undefined> {
  try {
    return await check();
  } catch (thrown) {
    return toError(thrown).message;
  }
}

function json(status: 200 | 503, body: unknown): HealthAnswer {
  return { status, contentType: 'application/json; charset=utf-8', body: `${JSON.stringify(body)}\n` };
}

/** Where a server listens. */
export interface ListenOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Certificate and key: https alone is spoken. Default, and where no file is named: http. */
  readonly tls?: TlsFiles;
}

/** Serves the health paths and nothing else. */
export class HealthServer implements Part {
  readonly #deps: HealthDeps & { readonly log: Logger };
  readonly #options: ListenOptions;
  #server: Server | TlsServer | undefined;
  #endWatch: (() => void) | undefined;

  constructor(deps: HealthDeps & { readonly log: Logger }, options: ListenOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** `http://127.0.0.1:8082`, or `https://…`, once started. */
  get url(): string | undefined {
    const address = this.#server?.address();
    return typeof address === 'object' && address !== null ? urlOf(address, hasTls(this.#options)) : undefined;
  }

  async start(): Promise<void> {
    if (this.#server !== undefined) return;
    const limits = {
      maxHeaderSize: 8_192,
      headersTimeout: 5_000,
      requestTimeout: 5_000,
      keepAliveTimeout: 5_000,
      connectionsCheckingInterval: 1_000,
    };
    const answer = (request: IncomingMessage, response: ServerResponse): void => void this.#answer(request, response);
    const { tls } = this.#options;
    let server: Server | TlsServer;
    if (tls === undefined || tls.isEmpty) server = createServer(limits, answer);
    else {
      const secure = createTlsServer({ ...limits, ...serverTls(tls) }, answer);
      this.#endWatch = watchCertificate(this.#deps, tls, secure);
      server = secure;
    }
    server.maxConnections = 100;
    this.#server = server;
    await listen(server, this.#options);
  }

  async stop(_deadlineMs: number): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    this.#endWatch?.();
    if (server === undefined || !server.listening) return;
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        response.writeHead(405, { allow: 'GET, HEAD' }).end();
        return;
      }
      const answer = await answerHealth((request.url ?? '').split('?', 1)[0] ?? '', this.#deps);
      if (answer === undefined) {
        response.writeHead(404).end();
        return;
      }
      const headers = {
        'content-type': answer.contentType,
        'content-length': Buffer.byteLength(answer.body),
        'cache-control': 'no-store',
      };
      response.writeHead(answer.status, headers).end(request.method === 'HEAD' ? undefined : answer.body);
    } catch (thrown) {
      this.#deps.log.error('health answer failed', { err: toError(thrown) });
      response.destroy();
    }
  }
}

/** Resolves when the server listens; rejects with the system's error, such as EADDRINUSE. */
async function listen(server: Server | TlsServer, { host, port }: ListenOptions): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** True where https is spoken. */
export function hasTls({ tls }: ListenOptions): boolean {
  return tls?.isEmpty === false;
}

/** The URL of a listening address. */
export function urlOf({ address, family, port }: AddressInfo, isSecure = false): string {
  return `${isSecure ? 'https' : 'http'}://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
