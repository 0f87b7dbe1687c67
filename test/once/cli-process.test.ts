/** The process `warren` itself: exit codes, Ctrl-C, and readers that have enough. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';

const MAIN = fileURLToPath(new URL('../../cli/main.ts', import.meta.url));
const REGISTER = new URL('../support/ts-register.mjs', import.meta.url).href;
const ID = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

async function serve(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

interface Started {
  readonly kill: (signal: NodeJS.Signals) => void;
  readonly out: { stdout: string; stderr: string };
  /** Closes our end of its standard output. */
  readonly stopReading: () => void;
  readonly exitCode: Promise<number | null>;
}

function start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Started {
  const child = spawn(process.execPath, ['--no-warnings', '--import', REGISTER, MAIN, ...args], {
    env: { PATH: '/usr/bin:/bin', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const out = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (out.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (out.stderr += chunk.toString()));
  return {
    kill: (signal) => void child.kill(signal),
    out,
    stopReading: () => child.stdout.destroy(),
    exitCode: once(child, 'close').then(([code]) => code as number | null),
  };
}

test('a service that is not there is exit 69, with the address and what to do', async () => {
  const { exitCode, out } = start(['task', 'get', ID], { WARREN_URL: 'http://127.0.0.1:1' });
  expect(await exitCode).toBe(69);
  expect(out.stderr).toContain('http://127.0.0.1:1');
  expect(out.stderr).toContain('WARREN_URL');
});

test('Ctrl-C during --wait is exit 130, and says that the task goes on', async () => {
  const url = await serve((_request, response) =>
    response
      .setHeader('content-type', 'application/json')
      .end(JSON.stringify({ id: ID, state: 'running', attempt: 1 })),
  );
  const warren = start(['task', 'get', ID, '--wait'], { WARREN_URL: url });
  await eventually(() => expect(warren.out.stderr).toContain('running, attempt 1\n'));
  warren.kill('SIGINT');
  expect(await warren.exitCode).toBe(130);
  expect(warren.out).toMatchObject({ stdout: '', stderr: expect.stringContaining('The task goes on.') as unknown });
});

test('Ctrl-C ends a request that nobody answers', async () => {
  let asked = 0;
  const url = await serve(() => void (asked += 1));
  const warren = start(['task', 'list'], { WARREN_URL: url });
  await eventually(() => expect(asked).toBe(1));
  warren.kill('SIGINT');
  expect(await warren.exitCode).toBe(130);
});

test('a reader that has enough ends it quietly', async () => {
  const items = Array.from({ length: 200 }, () => ({
    id: ID,
    state: 'dead',
    type: 'x'.repeat(100),
    queue: 'y'.repeat(5_000),
  }));
  const url = await serve((request, response) => {
    const page = Number(new URL(request.url ?? '', 'http://x').searchParams.get('cursor') ?? '0') + 1;
    response
      .setHeader('content-type', 'application/json')
      .end(JSON.stringify({ items, ...(page < 5 ? { nextCursor: String(page) } : {}) }));
  });
  const warren = start(['task', 'list', '--all'], { WARREN_URL: url });
  await eventually(() => expect(warren.out.stdout.length).toBeGreaterThan(0));
  warren.stopReading();
  expect(await warren.exitCode).toBe(0);
  expect(warren.out.stderr).toBe('');
});

test('a proxy that answers with a web page is no Warren service', async () => {
  const url = await serve((_request, response) => response.setHeader('content-type', 'text/html').end('<html>'));
  const { exitCode, out } = start(['task', 'list', '--json'], { WARREN_URL: url });
  expect(await exitCode).toBe(69);
  expect(JSON.parse(out.stderr)).toMatchObject({ code: 'server-unreachable', exitCode: 69 });
});
