import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { allowHosts } from '../../../../../shared/http/allowed-hosts.ts';
import { createHttpRequestType, retryAfterMs } from '../../../../../services/worker/builtin/http-request.ts';
import { newId } from '../../../../../shared/tasks/ids.ts';
import type { Outcome } from '../../../../../shared/tasks/outcome.ts';
import { systemClock } from '../../../../../shared/time/clock.ts';
import { openRunner } from '../../../../support/runner.ts';
import type { TestRunner } from '../../../../support/runner.ts';

interface Seen {
  readonly method: string | undefined;
  readonly path: string | undefined;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

let server: Server;
let other: Server;
let base: string;
let runner: TestRunner;
let seen: Seen[];
let answer: (request: Seen, response: ServerResponse) => void;

async function listen(): Promise<Server> {
  const made = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const { method, url: path, headers } = request;
      const one = { method, path, headers, body: Buffer.concat(chunks).toString() };
      seen.push(one);
      answer(one, response);
    })();
  });
  made.listen(0, '127.0.0.1');
  await once(made, 'listening');
  return made;
}

const hostOf = (one: Server): string => `127.0.0.1:${(one.address() as AddressInfo).port}`;

beforeAll(async () => {
  server = await listen();
  other = await listen();
  base = `http://${hostOf(server)}`;
});
beforeEach(async () => {
  seen = [];
  answer = (_request, response) => response.end('ok');
  await runner?.[Symbol.asyncDispose]();
  runner = await openRunner({ breaker: { volumeThreshold: 5 } });
});
afterAll(async () => {
  await runner[Symbol.asyncDispose]();
  for (const one of [server, other]) {
    one.closeAllConnections();
    one.close();
  }
});

const call = (input: object, taskId = newId()): Promise<Outcome> =>
  runner.run(
    createHttpRequestType(systemClock, { allowHosts: [hostOf(server)], maxResponseBytes: 100 }),
    input,
    taskId,
  );

const valueOf = (outcome: Outcome): unknown =>
  outcome.kind === 'succeeded' && outcome.result !== undefined ? JSON.parse(outcome.result.toString()) : outcome;

describe('a call', () => {
  test('sends method, headers and body, and says which task and attempt it is', async () => {
    const taskId = newId();
    answer = (_request, response) =>
      response.writeHead(201, { 'x-request-id': 'r1', 'set-cookie': 'secret=1' }).end('made');
    const outcome = await call(
      { url: `${base}/a?b=1`, method: 'PUT', headers: { authorization: 'Bearer t' }, body: { n: 1 } },
      taskId,
    );
    expect(valueOf(outcome)).toEqual({
      status: 201,
      headers: { 'x-request-id': 'r1' },
      body: 'made',
      isBodyCut: false,
    });
    expect(seen).toMatchObject([
      {
        method: 'PUT',
        path: '/a?b=1',
        body: '{"n":1}',
        headers: {
          authorization: 'Bearer t',
          'content-type': 'application/json',
          'warren-task-id': taskId,
          'warren-attempt': '1',
          'idempotency-key': taskId,
        },
      },
    ]);
  });

  test('keeps only so much of the answer', async () => {
    answer = (_request, response) => response.end('x'.repeat(1_000_000));
    expect(valueOf(await call({ url: base }))).toMatchObject({ body: 'x'.repeat(100), isBodyCut: true });
  });

  test.each([400, 404, 409, 410, 422])('%i is for good', async (status) => {
    answer = (_request, response) => response.writeHead(status).end('why');
    const message = `answered ${status}: why`;
    expect(await call({ url: base })).toMatchObject({ kind: 'failed', reason: 'non_retryable', error: { message } });
  });

  test.each([500, 502, 503, 408, 429])('%i is tried again', async (status) => {
    answer = (_request, response) => response.writeHead(status).end();
    expect(await call({ url: base })).toMatchObject({ kind: 'failed', reason: 'error', retryable: true });
  });

  test('Retry-After of a 429 and a 503 is honoured', async () => {
    answer = (_request, response) => response.writeHead(503, { 'retry-after': '7' }).end();
    expect(await call({ url: base })).toMatchObject({ retryable: true, delayMs: 7_000 });
  });

  test('a refused connection and a cut answer are tried again', async () => {
    answer = (_request, response) => response.socket?.destroy();
    expect(await call({ url: base })).toMatchObject({ kind: 'failed', reason: 'error', retryable: true });
  });

  test('an answer that does not come is cut off at the timeout of the input', async () => {
    answer = () => undefined;
    expect(await call({ url: base, timeoutMs: 30 })).toMatchObject({
      kind: 'failed',
      retryable: true,
      error: { code: 'attempt-timeout' },
    });
    answer = (_request, response) => response.write('a body that never ends');
    expect(await call({ url: base, timeoutMs: 30 })).toMatchObject({
      retryable: true,
      error: { code: 'attempt-timeout' },
    });
  });

  test('a host that keeps failing is left alone: the task is deferred', async () => {
    answer = (_request, response) => response.writeHead(500).end();
    for (let round = 0; round < 5; round += 1) await call({ url: base });
    expect(await call({ url: base })).toMatchObject({ kind: 'deferred', why: 'breaker' });
    expect(seen).toHaveLength(5);
  });

  test('a host that answers 404 is not left alone', async () => {
    answer = (_request, response) => response.writeHead(404).end();
    for (let round = 0; round < 8; round += 1) expect((await call({ url: base })).kind).toBe('failed');
    expect(seen).toHaveLength(8);
  });
});

describe('the allow-list', () => {
  test('a host that is not on it is refused for good, before any connection', async () => {
    expect(await call({ url: `http://${hostOf(other)}/` })).toMatchObject({
      kind: 'failed',
      reason: 'non_retryable',
      error: { code: 'host-not-allowed' },
    });
    expect(seen).toEqual([]);
  });

  test('nor does a redirect lead there', async () => {
    answer = (_request, response) => response.writeHead(302, { location: `http://${hostOf(other)}/` }).end();
    expect(await call({ url: base })).toMatchObject({ error: { code: 'host-not-allowed' } });
    answer = (_request, response) => response.writeHead(302, { location: 'file:///etc/passwd' }).end();
    expect(await call({ url: base })).toMatchObject({ error: { code: 'host-not-allowed' } });
    expect(seen).toHaveLength(2);
  });

  test('a redirect within it is followed, a POST as GET, and not for ever', async () => {
    answer = ({ path }, response) =>
      path === '/from' ? response.writeHead(303, { location: '/to' }).end() : response.end('there');
    expect(valueOf(await call({ url: `${base}/from`, body: 'x' }))).toMatchObject({ status: 200, body: 'there' });
    expect(seen.map(({ method, path, body }) => [method, path, body])).toEqual([
      ['POST', '/from', 'x'],
      ['GET', '/to', ''],
    ]);
    answer = (_request, response) => response.writeHead(307, { location: '/again' }).end();
    expect(await call({ url: base })).toMatchObject({ reason: 'non_retryable' });
  });

  const isAllowed = allowHosts([
    'api.example.com',
    '127.0.0.1:8080',
    '*.example.org',
    '*.example.net:8443',
    '[::1]:80',
  ]);
  test.each([
    'https://api.example.com/x',
    'http://API.EXAMPLE.COM:80/',
    'http://127.0.0.1:8080/',
    'http://0x7f.1:8080/',
    'https://a.b.example.org/',
    'https://x.example.net:8443/',
    'http://[::1]/',
  ])('%s is allowed', (url) => {
    expect(isAllowed(new URL(url))).toBe(true);
  });

  test.each([
    'https://api.example.com:8443/',
    'https://xapi.example.com/',
    'https://api.example.com.evil.test/',
    'https://example.org/',
    'https://evilexample.org/',
    'https://example.org.evil.test/',
    'http://127.0.0.1/',
    'http://127.0.0.1:80801/'.replace('80801', '8081'),
    'https://x.example.net/',
    'ftp://api.example.com/',
    'http://user@evil.test/?api.example.com',
  ])('%s is not', (url) => {
    expect(isAllowed(new URL(url))).toBe(false);
  });

  test.each([
    '',
    '*',
    '*.',
    'http://api.example.com',
    'a b',
    '*.*.com',
    'api.example.com/x',
    '.*example.com',
    'x:999999',
  ])('the pattern %j is refused', (pattern) => {
    expect(() => allowHosts([pattern])).toThrow('httpRequest.allowHosts');
  });

  test('empty, it allows nothing', () => {
    expect(allowHosts([])(new URL('http://127.0.0.1/'))).toBe(false);
  });
});

test.each([
  [{ url: 'http://user:secret@127.0.0.1/' }, 'input.url'],
  [{ url: 'ftp://127.0.0.1/' }, 'input.url'],
  [{ url: 'nope' }, 'input.url'],
  [{ url: 'http://x/', method: 'CONNECT' }, 'input.method'],
  [{ url: 'http://x/', headers: { Host: 'evil.test' } }, 'input.headers'],
  [{ url: 'http://x/', headers: { 'proxy-authorization': 'x' } }, 'input.headers'],
  [{ url: 'http://x/', headers: { 'x-a': 'b\r\nc: d' } }, 'input.headers["x-a"]'],
  [{ url: 'http://x/', timeoutMs: 60_001 }, 'input.timeoutMs'],
  [{ url: 'http://x/', method: 'GET', body: 'x' }, 'input.body'],
  [{ url: 'http://x/', extra: 1 }, 'input'],
])('the input %j is refused', async (input, field) => {
  const outcome = await call(input);
  expect(outcome).toMatchObject({ kind: 'failed', reason: 'invalid_input', error: { code: 'input-invalid' } });
  expect((outcome as { error: { message: string } }).error.message).toContain(`field: ${field}`);
});

test('Retry-After is seconds or a date', () => {
  const clock = { ...systemClock, now: () => new Date('2026-11-29T12:00:00Z') };
  expect(retryAfterMs('120', clock)).toBe(120_000);
  expect(retryAfterMs('Sun, 29 Nov 2026 12:01:00 GMT', clock)).toBe(60_000);
  expect(retryAfterMs('Sun, 29 Nov 2026 11:00:00 GMT', clock)).toBe(0);
  expect([null, '', '-1', 'soon'].map((header) => retryAfterMs(header, clock))).toEqual(Array(4).fill(undefined));
});
