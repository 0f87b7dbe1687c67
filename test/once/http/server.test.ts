import { createHash } from 'node:crypto';
import { afterEach, describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import type { Token } from '../../../shared/config/format.ts';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { HttpServer, requireRole } from '../../../shared/http/server.ts';
import type { App, HttpServerOptions } from '../../../shared/http/server.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { createMetrics } from '../../../shared/observability/metrics.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { openSocket, send } from '../../support/raw-http.ts';

const LIMITS = { maxDepth: 8, maxBytes: 2_000 };
const thingBody = z.object({ name: z.string().min(1), count: z.int().optional() }).strict();
const JSON_HEADERS = { 'content-type': 'application/json' };
const TOKENS: readonly Token[] = [
  { name: 'dashboard', role: 'viewer', token: 'viewer-token-0123456789' },
  { name: 'ops', role: 'operator', token: 'operator-token-0123456789' },
];

function addRoutes(app: App): void {
  app.get('/v1/things/:id', { schema: { params: z.object({ id: z.uuid() }) } }, (request) => ({
    id: request.params.id,
    actor: request.actor,
  }));
  app.post(
    '/v1/things',
    {
      ...requireRole('operator'),
      schema: { body: rawBody(thingBody), response: { 202: z.object({ name: z.string(), by: z.string() }) } },
    },
    async (request, reply) => {
      const { value } = parseBody(request.body, thingBody, LIMITS);
      return await reply.code(202).send({ name: value.name, by: request.actor.name });
    },
  );
  app.post(
    '/v1/fail/:how',
    { ...requireRole('viewer'), schema: { params: z.object({ how: z.string() }) } },
    (request) => {
      if (request.params.how === 'full') throw new WarrenError('outbox-full', { retryAfterSeconds: 30 });
      throw new Error('password=geheim at /srv/secret.ts');
    },
  );
}

let server: HttpServer | undefined;
const metrics = createMetrics({ service: 'test', version: '0', withProcess: false });
afterEach(async () => {
  await server?.stop(systemClock.monotonicMs() + 100);
  server = undefined;
});

async function serve(options: Partial<HttpServerOptions> = {}): Promise<string> {
  server = new HttpServer(
    {
      clock: systemClock,
      log: silentLogger,
      checks: [{ name: 'postgres', check: () => undefined }],
      metrics,
      addRoutes,
    },
    { host: '127.0.0.1', port: 0, tokens: [], bodyBytes: 2_000, title: 'Things', version: '1.0.0', ...options },
  );
  await server.start();
  return (server.url ?? '').replace('0.0.0.0', '127.0.0.1');
}

const post = async (
  url: string,
  body: string | Buffer,
  headers: Record<string, string> = JSON_HEADERS,
): ReturnType<typeof send> => await send(`${url}/v1/things`, { method: 'POST', headers, body });
const problemOf = ({ status, headers, body }: Awaited<ReturnType<typeof send>>): unknown => ({
  ...(JSON.parse(body) as object),
  answered: status,
  media: headers['content-type'],
});

describe('bodies', () => {
  test('a good one is taken', async () => {
    const answer = await post(await serve(), '{"name":"a"}');
    expect([answer.status, JSON.parse(answer.body)]).toEqual([202, { name: 'a', by: 'local' }]);
  });

  test.each([
    ['not JSON', '{"name":', 400, { type: 'body-invalid', field: 'body' }],
    ['nothing', '', 400, { type: 'body-invalid' }],
    ['no object', '42', 400, { type: 'field-invalid', field: 'body' }],
    ['a wrong type', '{"name":1}', 400, { type: 'field-invalid', field: 'name', reason: expect.any(String) }],
    ['an unknown member', '{"name":"a","x":1}', 400, { type: 'field-invalid' }],
    ['__proto__', '{"name":"a","__proto__":{"polluted":1}}', 400, {}],
    ['too deep', `{"name":${'['.repeat(9)}${']'.repeat(9)}}`, 400, { type: 'body-too-deep' }],
    [
      'too large',
      `{"name":"${'x'.repeat(2_000)}"}`,
      413,
      { type: 'body-too-large', detail: 'body: the limit is 2000 bytes' },
    ],
    ['U+0000', '{"name":"\\u0000"}', 400, { type: 'text-invalid', field: 'name' }],
  ])('%s is a problem that names what is wrong', async (_what, body, status, members) => {
    const url = await serve();
    const problem = problemOf(await post(url, body));
    expect(problem).toMatchObject({
      answered: status,
      status,
      media: 'application/problem+json; charset=utf-8',
      instance: '/v1/things',
      title: expect.any(String),
      ...members,
    });
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    expect((await post(url, '{"name":"a"}')).status).toBe(202);
  });

  test.each([
    ['text/plain'],
    ['application/x-www-form-urlencoded'],
    ['multipart/form-data; boundary=x'],
    ['application/json; charset=utf-16'],
    ['application/jsonx'],
  ])('%s is refused', async (type) => {
    const answer = await post(await serve(), '{"name":"a"}', { 'content-type': type });
    expect(problemOf(answer)).toMatchObject({ answered: 415, type: 'content-type-unsupported' });
  });

  test('a compressed body, or one that says so, is refused', async () => {
    const answer = await post(await serve(), '{"name":"a"}', { ...JSON_HEADERS, 'content-encoding': 'gzip' });
    expect(problemOf(answer)).toMatchObject({ answered: 415, type: 'content-type-unsupported', encoding: 'gzip' });
  });

  test('200 MB in chunks are stopped early with bounded memory', async () => {
    const url = await serve();
    const { socket, closed } = await openSocket(url);
    const before = process.memoryUsage().rss;
    socket.write(
      'POST /v1/things HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    const chunk = Buffer.alloc(65_536, 0x20);
    let sent = 0;
    while (sent < 200_000_000 && !socket.destroyed) {
      socket.write(`${chunk.length.toString(16)}\r\n`);
      socket.write(chunk);
      if (!socket.write('\r\n')) await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), closed]);
      sent += chunk.length;
    }
    const answer = await closed;
    expect(answer === '' || answer.startsWith('HTTP/1.1 413')).toBe(true); // the reset can overtake the answer
    expect(sent).toBeLessThan(20_000_000);
    expect(process.memoryUsage().rss - before).toBeLessThan(50_000_000);
    expect((await post(url, '{"name":"a"}')).status).toBe(202);
  });

  test('a body that comes too slowly is answered 408 and cut', async () => {
    const { socket, closed } = await openSocket(await serve({ requestWithinMs: 300 }));
    socket.write(
      'POST /v1/things HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{',
    );
    const answer = await closed;
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(answer).toContain('"type":"request-timeout"');
  });

  test('what is no HTTP, and headers that are too large, are answered and cut', async () => {
    const url = await serve();
    const noise = await openSocket(url);
    noise.socket.write('\x16\x03\x01 hello\r\n\r\n');
    expect(await noise.closed).toMatch(/^HTTP\/1\.1 400 .*"type":"request-invalid"/s);
    const large = await openSocket(url);
    large.socket.write(`GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`);
    expect(await large.closed).toMatch(/^HTTP\/1\.1 400 .*headers are too large/s);
  });
});

describe('addresses', () => {
  test('unknown ones, other methods and HEAD', async () => {
    const url = await serve();
    expect(problemOf(await send(`${url}/v1/nothing?x=1`))).toMatchObject({
      answered: 404,
      type: 'not-found',
      instance: '/v1/nothing',
    });
    const wrong = await send(`${url}/v1/things`, { method: 'DELETE' });
    expect(problemOf(wrong)).toMatchObject({ answered: 405, type: 'method-not-allowed', allowed: ['POST'] });
    expect(wrong.headers['allow']).toBe('POST');
    const head = await send(`${url}/v1/things/019a0000-0000-7000-8000-000000000000`, { method: 'HEAD' });
    expect([head.status, head.body]).toEqual([200, '']);
    expect(problemOf(await send(`${url}/v1/things/x`))).toMatchObject({
      answered: 400,
      type: 'field-invalid',
      field: 'id',
    });
    expect((await send(`${url}/v1/things/%zz`)).status).toBe(400);
  });

  test('our own faults show nothing of themselves', async () => {
    const url = await serve();
    const answer = await send(`${url}/v1/fail/other`, { method: 'POST' });
    expect(problemOf(answer)).toMatchObject({ answered: 500, type: 'internal', requestId: expect.any(String) });
    expect(answer.body).not.toMatch(/geheim|secret/);
    const full = await send(`${url}/v1/fail/full`, { method: 'POST' });
    expect([full.status, full.headers['retry-after']]).toEqual([503, '30']);
  });

  test('the OpenAPI document is made of the schemas that validate', async () => {
    const document = JSON.parse((await send(`${await serve()}/openapi.json`)).body) as {
      openapi: string;
      paths: Record<string, { post: { requestBody: { content: Record<string, { schema: unknown }> } } }>;
    };
    expect(document.openapi).toBe('3.1.0');
    expect(Object.keys(document.paths)).toEqual(['/v1/things/{id}', '/v1/things', '/v1/fail/{how}']);
    expect(document.paths['/v1/things']?.post.requestBody.content['application/json']?.schema).toMatchObject({
      type: 'object',
      required: ['name'],
      additionalProperties: false,
    });
  });

  test('the reference page lets a browser load nothing and run nothing', async () => {
    const { status, headers, body } = await send(`${await serve()}/reference`);
    expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    expect(headers['content-security-policy']).toMatch(
      /^default-src 'none'; style-src 'sha256-[\w+/]+=*'; base-uri 'none'; /,
    );
    const style = /<style>([\s\S]*)<\/style>/.exec(body)?.[1] ?? '';
    expect(headers['content-security-policy']).toContain(createHash('sha256').update(style).digest('base64'));
    expect(body).toContain('<code>POST /v1/things</code>');
  });

  test('health and metrics are there, and requests are counted by route', async () => {
    const url = await serve({ host: '0.0.0.0', tokens: TOKENS });
    expect((await send(`${url}/livez`)).status).toBe(200);
    expect(JSON.parse((await send(`${url}/readyz`)).body)).toEqual({
      status: 'ok',
      checks: { postgres: { status: 'ok' } },
    });
    await send(`${url}/v1/nothing-${systemClock.monotonicMs()}`);
    const { body } = await send(`${url}/metrics`);
    expect(body).toMatch(/warren_http_requests_total\{route="\/livez",status="200"\} \d+/);
    expect(body).not.toContain('nothing-');
  });
});

describe('on loopback without a token', () => {
  test('a program of this machine is the local admin', async () => {
    const url = await serve();
    const answer = await send(`${url}/v1/things/019a0000-0000-7000-8000-000000000000`);
    expect(JSON.parse(answer.body)).toMatchObject({ actor: { name: 'local', role: 'admin' } });
  });

  test.each([
    ['localhost with a port', (host: string) => ({ host: host.replace('127.0.0.1', 'localhost') })],
    ['our own page', (host: string) => ({ origin: `http://${host}`, 'sec-fetch-site': 'same-origin' })],
    ['an address typed into a browser', () => ({ 'sec-fetch-site': 'none' })],
  ])('%s may', async (_who, headersFor) => {
    const url = await serve();
    const { host } = new URL(url);
    const answer = await post(url, '{"name":"a"}', { ...JSON_HEADERS, host, ...headersFor(host) } as Record<
      string,
      string
    >);
    expect(answer.status).toBe(202);
  });

  test.each([
    ['a rebound name', { host: 'warren.example.com' }, 'host'],
    ['a rebound name that looks local', { host: '127.0.0.1.example.com:80' }, 'host'],
    ['a page of another site', { origin: 'https://example.com' }, 'origin'],
    ['a page of another local port', { origin: 'http://127.0.0.1:3000' }, 'origin'],
    ['a sandboxed page', { origin: 'null' }, 'origin'],
    ['a request that a browser calls cross-site', { 'sec-fetch-site': 'cross-site' }, 'sec-fetch-site'],
    ['a request that a browser calls same-site', { 'sec-fetch-site': 'same-site' }, 'sec-fetch-site'],
  ])('%s may not', async (_who, headers, header) => {
    const answer = await post(await serve(), '{"name":"a"}', { ...JSON_HEADERS, ...headers } as Record<string, string>);
    expect(problemOf(answer)).toMatchObject({ answered: 403, type: 'origin-refused', header });
  });

  test('a token that is sent counts, and a wrong one is refused even here', async () => {
    const url = await serve({ tokens: TOKENS });
    const path = `${url}/v1/things/019a0000-0000-7000-8000-000000000000`;
    const known = await send(path, { headers: { authorization: `Bearer ${TOKENS[0]?.token ?? ''}` } });
    expect(JSON.parse(known.body)).toMatchObject({ actor: { name: 'dashboard', role: 'viewer' } });
    const wrong = await send(path, { headers: { authorization: 'Bearer something-else-entirely' } });
    expect(problemOf(wrong)).toMatchObject({ answered: 401, type: 'token-invalid' });
  });
});

describe('beyond loopback', () => {
  test('no start without tokens', async () => {
    await expect(serve({ host: '0.0.0.0' })).rejects.toMatchObject({ code: 'config-invalid' });
  });

  test('every API route and the document want a token, with the role that the route needs', async () => {
    const url = await serve({ host: '0.0.0.0', tokens: TOKENS });
    for (const path of [
      '/openapi.json',
      '/reference',
      '/v1/things/019a0000-0000-7000-8000-000000000000',
      '/v1/things',
      '/v1/nothing',
    ]) {
      const answer = await send(url + path);
      expect([answer.status, answer.headers['www-authenticate']]).toEqual([401, 'Bearer']);
    }
    const viewer = { ...JSON_HEADERS, authorization: `Bearer ${TOKENS[0]?.token ?? ''}` };
    const operator = {
      ...JSON_HEADERS,
      authorization: `bearer ${TOKENS[1]?.token ?? ''}`,
      origin: 'https://example.com',
    };
    expect(problemOf(await post(url, '{"name":"a"}', viewer))).toMatchObject({
      answered: 403,
      type: 'role-insufficient',
      needed: 'operator',
    });
    const taken = await post(url, '{"name":"a"}', operator);
    expect([taken.status, JSON.parse(taken.body)]).toEqual([202, { name: 'a', by: 'ops' }]);
    for (const authorization of ['Basic b3BzOng=', 'Bearer', 'Bearer  ', `Bearer ${TOKENS[1]?.token ?? ''}x`]) {
      expect((await post(url, '{"name":"a"}', { ...JSON_HEADERS, authorization })).status).toBe(401);
    }
  });
});

test('a route that changes something and names no role is refused at start', async () => {
  const unguarded = new HttpServer(
    {
      clock: systemClock,
      log: silentLogger,
      checks: [],
      metrics,
      addRoutes: (app) => void app.post('/v1/open', () => ({})),
    },
    { host: '127.0.0.1', port: 0, tokens: [], bodyBytes: 100, title: 'x', version: '1' },
  );
  await expect(unguarded.start()).rejects.toThrow('POST /v1/open does not say which role it needs');
  await unguarded.stop(0);
});

test('stop cuts what has not ended at its deadline, and start and stop twice are harmless', async () => {
  const url = await serve();
  await server?.start();
  const { socket, closed } = await openSocket(url);
  socket.write(
    'POST /v1/things HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{',
  );
  await send(`${url}/livez`);
  await server?.stop(systemClock.monotonicMs() + 100);
  await server?.stop(0);
  await closed;
  await expect(send(`${url}/livez`)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
});

test('a connection is kept for longer than load balancers keep theirs, and idle ones make room for new ones', async () => {
  const url = await serve();
  const head = 'GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';
  const ask = async (): Promise<string> => {
    const { socket, closed } = await openSocket(url);
    const answered = new Promise<string>((resolve) => socket.once('data', (data: Buffer) => resolve(data.toString())));
    socket.write(head);
    return await Promise.race([answered, closed]);
  };
  expect(await ask()).toMatch(/\r\nKeep-Alive: timeout=65\r\n/);
  // More than the server takes at once, none of which closes its own.
  for (let opened = 1; opened < 1_100; opened += 1) expect(await ask()).toMatch(/^HTTP\/1\.1 \d{3} /);
});
