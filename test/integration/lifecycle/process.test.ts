import { spawn } from 'node:child_process';
import type { ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';
import { HealthServer } from '../../../shared/http/health.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { systemClock } from '../../../shared/time/clock.ts';

const register = new URL('../../support/ts-register.mjs', import.meta.url).href;
const service = fileURLToPath(new URL('../../support/sample-service.ts', import.meta.url));

interface Running {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  /** Resolves with the next log line of this message. */
  readonly next: (message: string) => Promise<Record<string, unknown>>;
  readonly ended: Promise<{ readonly code: number | null; readonly errors: string }>;
}

function start(args: readonly string[] = [], env: Record<string, string> = {}): Running {
  const child = spawn(process.execPath, ['--import', register, service, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: '/usr/bin:/bin', WARREN_HTTP_WORKER_PORT: '0', WARREN_WORKER_DRAIN_MS: '0', ...env },
  });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const lines: Record<string, unknown>[] = [];
  const reader = createInterface(child.stdout);
  reader.on('line', (line) => lines.push(JSON.parse(line) as Record<string, unknown>));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, errors }));
  return {
    child,
    ended,
    next: async (message) => {
      for (;;) {
        const found = lines.find((line) => line['message'] === message);
        if (found !== undefined) return found;
        if (child.exitCode !== null) throw new Error(`ended before "${message}": ${errors}`);
        await Promise.race([once(reader, 'line'), ended]);
      }
    },
  };
}

test('an idle service says where it listens, and a SIGTERM ends it with 0 at once', async () => {
  const { child, next, ended } = start();
  const { url, service: name } = await next('service started');
  expect(name).toBe('sample');
  expect((await fetch(`${String(url)}/livez`)).status).toBe(200);
  const before = systemClock.monotonicMs();
  child.kill('SIGTERM');
  expect(await ended).toEqual({ code: 0, errors: '' });
  expect(systemClock.monotonicMs() - before).toBeLessThan(8_000);
  expect(await next('service stopped')).toMatchObject({ reason: 'SIGTERM' });
});

test('a service whose log nobody reads any more goes on, and stops as ever', async () => {
  const { child, next, ended } = start();
  const { url } = await next('service started');
  child.stdout.destroy();
  expect((await fetch(`${String(url)}/livez`)).status).toBe(200);
  child.kill('SIGTERM'); // what it logs now meets a closed pipe
  expect((await ended).code).toBe(0);
});

test('a second signal does not wait for a stop that hangs', async () => {
  const { child, next, ended } = start(['hang'], { WARREN_WORKER_DRAIN_MS: '60000' });
  await next('service started');
  child.kill('SIGTERM');
  await next('service stopping');
  child.kill('SIGTERM');
  expect((await ended).code).toBe(143);
});

test('a rejection that nobody handles is logged, stops the service and exits with 70', async () => {
  const { next, ended } = start(['reject']);
  expect(await next('unhandled failure')).toMatchObject({ level: 'error', err: { message: 'nobody waits for this' } });
  expect((await ended).code).toBe(70);
});

test('bad configuration exits with 78, each fault on a line of stderr, without secrets', async () => {
  const { ended } = start([], { WARREN_PREFIX: 'A B', AMQP_URL: 'http://user:geheim@example.com' });
  const { code, errors } = await ended;
  expect(code).toBe(78);
  expect(errors.split('\n').filter((line) => line.startsWith('  '))).toHaveLength(2);
  expect(errors).not.toContain('geheim');
});

test('a port that is taken exits with 78 and says what to do', async () => {
  const metrics = { contentType: 'text/plain', render: async (): Promise<string> => await Promise.resolve('') };
  const holder = new HealthServer(
    { clock: systemClock, log: silentLogger, checks: [], metrics },
    { host: '127.0.0.1', port: 0 },
  );
  await holder.start();
  const { next, ended } = start([], { WARREN_HTTP_WORKER_PORT: new URL(holder.url ?? '').port });
  expect(await next('service failed to start')).toMatchObject({
    err: { code: 'EADDRINUSE' },
    hint: expect.stringContaining('port'),
  });
  expect((await ended).code).toBe(78);
  await holder.stop(0);
});
