/** The server of an API: bounded in time and size, guarded, with problem documents and an OpenAPI document of its schemas. */
import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Socket } from 'node:net';
import type { Server as TlsServer } from 'node:tls';
import swagger from '@fastify/swagger';
import Fastify from 'fastify';
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifyBaseLogger, RawServerDefault } from 'fastify';
import { jsonSchemaTransform, serializerCompiler } from 'fastify-type-provider-zod';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ZodType } from 'zod';
import { checkBySchema } from '../tasks/check-by-schema.ts';
import type { SchemaFault } from '../tasks/check-by-schema.ts';
import { isStorableText } from '../text/storable.ts';
import type { Role, Token } from '../config/format.ts';
import { Bug, WarrenError } from '../errors/warren-error.ts';
import { codeOf, toError } from '../errors/to-error.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import type { Metrics } from '../observability/metrics.ts';
import { checkRole, createAuthenticate, plainAddress } from './auth.ts';
import type { Actor } from './auth.ts';
import { documentedBody, fieldInvalid } from './body.ts';
import type { RawBody } from './body.ts';
import { serverTls, watchCertificate } from './certificate.ts';
import { HEALTH_PATHS, answerHealth, hasTls, urlOf } from './health.ts';
import type { HealthDeps, ListenOptions } from './health.ts';
import type { OpenApi } from './open-api.ts';
import { PROBLEM_TYPE, errorToAnswer, problemHeaders, problemOf } from './problem.ts';
import type { Problem } from './problem.ts';
import { REFERENCE_HEADERS, renderReferencePage } from './reference-page.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Who calls. */
    actor: Actor;
  }
  interface FastifyContextConfig {
    /** The least role that may call the route: see `requireRole`. */
    role?: Role;
    /** True for health routes, which anybody may ask. */
    isOpen?: boolean;
  }
}

/** The server as routes see it: schemas are zod's, and type the request. */
export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** What a server needs. */
export interface HttpServerDeps extends HealthDeps {
  readonly log: Logger;
  readonly metrics: HealthDeps['metrics'] & Pick<Metrics, 'httpRequests' | 'httpSeconds'>;
  /** Adds the routes of the API. */
  readonly addRoutes: (app: App) => void;
}

/** How a server serves. */
export interface HttpServerOptions extends ListenOptions {
  readonly tokens: readonly Token[];
  /** Bytes of a body, where a route sets no `bodyLimit` of its own. */
  readonly bodyBytes: number;
  /** Milliseconds within which a whole request must have come. Default 30 000. */
  readonly requestWithinMs?: number;
  /** Title and version of the OpenAPI document. */
  readonly title: string;
  readonly version: string;
}

/** Options of a route that only `role` and those above it may call: `app.post(path, { ...requireRole('operator'), schema }, …)`. */
export function requireRole(role: Role): { readonly config: { readonly role: Role } } {
  return { config: { role } };
}

/**
 * Milliseconds for which an idle connection is kept: longer than load balancers keep theirs (60 s is the default of nginx and of AWS), else one of
 * them sends a request into a connection that is just being closed, and its client is told 502.
 */
const KEEP_ALIVE_MS = 65_000;
const MOST_CONNECTIONS = 1_000;

/** An API over HTTP. */
export class HttpServer implements Part {
  readonly #deps: HttpServerDeps;
  readonly #options: HttpServerOptions;
  #app: App | undefined;
  #endWatch: (() => void) | undefined;

  constructor(deps: HttpServerDeps, options: HttpServerOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** `http://127.0.0.1:8080`, or `https://…`, once started. */
  get url(): string | undefined {
    const address = this.#app?.server.address();
    return typeof address === 'object' && address !== null
      ? urlOf(address satisfies AddressInfo, hasTls(this.#options))
      : undefined;
  }

  async start(): Promise<void> {
    if (this.#app !== undefined) return;
    this.#app = createApp(this.#deps, this.#options);
    const { tls } = this.#options;
    if (tls?.isEmpty === false) {
      this.#endWatch = watchCertificate(this.#deps, tls, this.#app.server as unknown as TlsServer);
    }
    await this.#app.listen({ host: this.#options.host, port: this.#options.port });
  }

  /** Refuses new requests at once, lets those under way end until the deadline, then cuts them. */
  async stop(deadlineMs: number): Promise<void> {
    const app = this.#app;
    this.#app = undefined;
    this.#endWatch?.();
    if (app === undefined) return;
    const { clock } = this.#deps;
    const cancel = clock.after(Math.max(0, deadlineMs - clock.monotonicMs()), () => app.server.closeAllConnections());
    await app.close();
    cancel();
  }
}

/** Idle connections are kept while there is room, and go before anyone is turned away. */
function makeRoom(server: App['server']): void {
  server.getConnections((_error, count) => {
    if (count > MOST_CONNECTIONS * 0.9) server.closeIdleConnections();
  });
}

/** Makes the server without listening; `app.ready()` and `app.swagger()` then give the OpenAPI document. */
export function createApp(deps: HttpServerDeps, options: HttpServerOptions): App {
  const withinMs = options.requestWithinMs ?? 30_000;
  const limits = {
    headersTimeout: withinMs,
    maxHeaderSize: 16_384,
    connectionsCheckingInterval: Math.min(1_000, withinMs),
  };
  const { tls } = options;
  // The types of fastify know one or the other server; what is used here, both have.
  const transport =
    tls === undefined || tls.isEmpty
      ? { http: limits }
      : ({ https: { ...limits, ...serverTls(tls) } } as unknown as object);
  const app: App = Fastify({
    bodyLimit: options.bodyBytes,
    requestTimeout: withinMs,
    // Later than the check that answers a late request: this one cuts without a word.
    connectionTimeout: withinMs * 2 + 2_000,
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: 'idle',
    ...transport,
    genReqId: () => randomUUID(),
    clientErrorHandler: (error, socket) => answerBrokenRequest(codeOf(error), socket),
    frameworkErrors: (error, request, reply) => void sendProblem(deps.log, error, request, reply),
  }).withTypeProvider<ZodTypeProvider>();
  app.server.maxConnections = MOST_CONNECTIONS;
  app.server.on('connection', () => makeRoom(app.server));
  app.setValidatorCompiler(({ schema, httpPart }) => validatorOf(schema as unknown as ZodType, httpPart));
  app.setSerializerCompiler(serializerCompiler);
  app.setErrorHandler((error, request, reply) => sendProblem(deps.log, error, request, reply));
  takeJsonOnly(app);
  guard(app, options);
  refuseUnstorable(app);
  measure(app, deps);
  // Plugins load in this order; the hooks of swagger must see every route.
  void app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: options.title, version: options.version },
      components: { securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } } },
      security: [{ bearer: [] }],
    },
    transform: (input) => {
      const { schema, url } = jsonSchemaTransform({ ...input, schema: withDocumentedBody(input.schema) });
      const role = input.route.config?.role ?? 'viewer';
      return { url, schema: { ...schema, description: `Needs the role \`${role}\`.` } };
    },
  });
  void app.register(async (routes) => {
    const typed = routes.withTypeProvider<ZodTypeProvider>();
    addOwnRoutes(typed, app, deps);
    deps.addRoutes(typed);
    await Promise.resolve();
  });
  return app;
}

/** Checks a path, a query or headers; of a body the route checks what is in it. */
function validatorOf(schema: ZodType, part = 'request'): (given: unknown) => { value: unknown } | { error: Error } {
  return (given) => {
    const checked = checkBySchema(schema, given);
    if (checked.kind === 'ok') return { value: checked.value };
    const [first, ...others] = checked.faults;
    return { error: fieldInvalid([named(first, part), ...others.map((each) => named(each, part))]) };
  };
}

/** A name such as `if-match` as it is written; `body` is no part of a path, a query or headers. */
function named({ field, reason }: SchemaFault, part: string): SchemaFault {
  return { field: field === 'body' ? part : field.replace(/^\["([\w-]+)"\]$/, '$1'), reason };
}

/** Health for anybody, the document and the page made of it for whoever has a token. */
function addOwnRoutes(routes: App, app: App, deps: HttpServerDeps): void {
  for (const path of HEALTH_PATHS) {
    routes.get(path, { config: { isOpen: true }, schema: { hide: true } }, async (_request, reply) => {
      const answer = await answerHealth(path, deps);
      if (answer === undefined) throw new Bug(`no answer for ${path}`);
      return await reply
        .code(answer.status)
        .type(answer.contentType)
        .header('cache-control', 'no-store')
        .send(answer.body);
    });
  }
  routes.get('/openapi.json', { schema: { hide: true } }, () => app.swagger());
  let page: string | undefined;
  routes.get('/reference', { schema: { hide: true } }, async (_request, reply) => {
    page ??= renderReferencePage(app.swagger() as unknown as OpenApi);
    return await reply.headers(REFERENCE_HEADERS).send(page);
  });
}

/** A page can send a form or plain text without asking first; only JSON passes, and only as UTF-8 and uncompressed. */
function takeJsonOnly(app: App): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, raw, done) => {
    const { 'content-type': type = '', 'content-encoding': encoding = 'identity' } = request.headers;
    const charset = /;\s*charset\s*=\s*"?([^";\s]+)/i.exec(type)?.[1] ?? 'utf-8';
    if (!/^utf-?8$/i.test(charset)) return done(new WarrenError('content-type-unsupported', { charset }));
    if (encoding.toLowerCase() !== 'identity') return done(new WarrenError('content-type-unsupported', { encoding }));
    return done(null, { raw: raw as Buffer } satisfies RawBody);
  });
}

/** Authenticates before anything of a body is read. A route that changes something must say who may call it. */
function guard(app: App, options: HttpServerOptions): void {
  const authenticate = createAuthenticate(options.host, options.tokens);
  const routes: { readonly path: RegExp; readonly method: string }[] = [];
  app.decorateRequest('actor');
  app.addHook('onRoute', ({ url, method, config }) => {
    for (const each of [method].flat()) {
      const isReading = each === 'GET' || each === 'HEAD';
      if (!isReading && config?.role === undefined) throw new Bug(`${each} ${url} does not say which role it needs`);
      routes.push({ method: each, path: new RegExp(`^${url.replaceAll(/:[^/]+/g, '[^/]+')}$`) });
    }
  });
  // Not async, here and in `measure`: of what every request passes through, a promise is a good part.
  app.addHook('onRequest', (request, _reply, done) => {
    const { role = 'viewer', isOpen } = request.routeOptions.config;
    if (isOpen === true) return done();
    try {
      // Of the socket: what a header says of it, anybody can write.
      request.actor = { ...authenticate(request.headers), address: plainAddress(request.ip) };
      checkRole(request.actor, role);
    } catch (thrown) {
      return done(toError(thrown));
    }
    return done();
  });
  app.setNotFoundHandler((request, reply) => {
    const path = pathOf(request);
    const allowed = routes.filter((route) => route.path.test(path)).map(({ method }) => method);
    if (allowed.length === 0) throw new WarrenError('not-found');
    void reply.header('allow', [...new Set(allowed)].join(', '));
    throw new WarrenError('method-not-allowed', { allowed: [...new Set(allowed)] });
  });
}

/** What no table can hold is nowhere to be found, and Postgres would not even look: in a path or a query, decoded. */
function refuseUnstorable(app: App): void {
  app.addHook('preValidation', (request, _reply, done) => {
    for (const part of [request.params, request.query]) {
      for (const [field, value] of Object.entries(part as Readonly<Record<string, unknown>>)) {
        for (const text of [value].flat()) {
          if (typeof text === 'string' && !isStorableText(text)) {
            return done(new WarrenError('text-invalid', { field, reason: 'must not hold U+0000 or a lone surrogate' }));
          }
        }
      }
    }
    return done();
  });
}

function measure(app: App, { metrics }: HttpServerDeps): void {
  app.addHook('onResponse', (request, reply, done) => {
    const route = request.routeOptions.url ?? 'none';
    metrics.httpRequests.add(1, route, String(reply.statusCode));
    metrics.httpSeconds.observe(reply.elapsedTime / 1_000, route);
    done();
  });
}

function sendProblem(log: Logger, thrown: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const error = errorToAnswer(thrown, request.routeOptions.bodyLimit);
  const problem = problemOf(error, pathOf(request));
  const isOurFault = problem.status >= 500 && error.code !== 'outbox-full';
  if (isOurFault) {
    const level = error.code === 'internal' ? 'error' : 'warn';
    log[level]('request failed', {
      requestId: request.id,
      method: request.method,
      route: request.routeOptions.url,
      err: toError(thrown),
    });
  }
  return reply
    .code(problem.status)
    .type(PROBLEM_TYPE)
    .headers(problemHeaders(problem))
    .send(JSON.stringify(isOurFault ? { ...problem, requestId: request.id } : problem));
}

/** Answers what never became a request: too slow, too large, no HTTP. Only the socket is there. */
function answerBrokenRequest(code: string | undefined, socket: Socket): void {
  if (code === 'ECONNRESET' || socket.destroyed) return;
  const isLate = code === 'ERR_HTTP_REQUEST_TIMEOUT';
  const reason = code === 'HPE_HEADER_OVERFLOW' ? { reason: 'the headers are too large' } : {};
  const problem: Problem = problemOf(new WarrenError(isLate ? 'request-timeout' : 'request-invalid', reason));
  const body = JSON.stringify(problem);
  if (socket.writable) {
    socket.write(
      `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status] ?? ''}\r\nContent-Type: ${PROBLEM_TYPE}\r\n` +
        `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
    );
  }
  socket.destroySoon();
}

/** A route without a schema comes as `undefined`, whatever the type says. */
function withDocumentedBody<S extends object | undefined>(schema: S): S {
  return schema !== undefined && 'body' in schema ? { ...schema, body: documentedBody(schema.body) } : schema;
}

function pathOf(request: FastifyRequest): string {
  return request.url.split('?', 1)[0] ?? '';
}
