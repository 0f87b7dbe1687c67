import { afterEach, expect, test } from '@jest/globals';
import { HealthServer } from '../../../shared/http/health.ts';
import type { HealthDeps } from '../../../shared/http/health.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { createMetrics } from '../../../shared/observability/metrics.ts';
import { systemClock } from '../../../shared/time/clock.ts';

let server: HealthServer | undefined;
afterEach(async () => await server?.stop(0));

async function serve(deps: Partial<HealthDeps>): Promise<string> {
  const metrics = createMetrics({ service: 'test', version: '0', withProcess: false });
  server = new HealthServer(
    { clock: systemClock, log: silentLogger, checks: [], metrics, ...deps },
    { host: '127.0.0.1', port: 0 },
  );
  await server.start();
  await server.start();
  return server.url ?? '';
}

test('ready names every check, and fails with reasons when one fails, throws or never answers', async () => {
  let isBroken = false;
  const url = await serve({
    // The two seconds that a check may take are over at once.
    clock: { ...systemClock, sleep: async () => await systemClock.sleep(20) },
    checks: [
      { name: 'postgres', check: () => undefined },
      { name: 'rabbitmq', check: async () => await Promise.resolve(isBroken ? 'blocked' : undefined) },
      { name: 'consumer', check: () => (isBroken ? failing() : undefined) },
      {
        name: 'other',
        check: async () => await (isBroken ? new Promise<undefined>(() => undefined) : Promise.resolve(undefined)),
      },
    ],
  });
  const ready = await fetch(`${url}/readyz`);
  expect([ready.status, await ready.json()]).toEqual([
    200,
    {
      status: 'ok',
      checks: {
        postgres: { status: 'ok' },
        rabbitmq: { status: 'ok' },
        consumer: { status: 'ok' },
        other: { status: 'ok' },
      },
    },
  ]);
  isBroken = true;
  const unready = await fetch(`${url}/readyz`);
  expect([unready.status, await unready.json()]).toEqual([
    503,
    {
      status: 'failing',
      checks: {
        postgres: { status: 'ok' },
        rabbitmq: { status: 'failing', reason: 'blocked' },
        consumer: { status: 'failing', reason: 'no consumer' },
        other: { status: 'failing', reason: 'no answer within 2000 ms' },
      },
    },
  ]);
});

test('what a service can do without is shown as degraded, and does not make it unready', async () => {
  let isBroken = true;
  const url = await serve({
    checks: [
      { name: 'postgres', check: () => (isBroken ? 'does not answer' : undefined) },
      { name: 'front door', isAdvisory: true, check: () => 'not registered' },
    ],
  });
  const read = async (): Promise<unknown> => {
    const answer = await fetch(`${url}/readyz`);
    return [answer.status, await answer.json()];
  };
  const frontDoor = { status: 'degraded', reason: 'not registered' };
  const postgres = { status: 'failing', reason: 'does not answer' };
  expect(await read()).toEqual([503, { status: 'failing', checks: { postgres, 'front door': frontDoor } }]);
  isBroken = false;
  expect(await read()).toEqual([
    200,
    { status: 'degraded', checks: { postgres: { status: 'ok' }, 'front door': frontDoor } },
  ]);
});

test('live until the process says that it should be started anew', async () => {
  let death: string | undefined;
  const url = await serve({ findDeath: () => death });
  expect((await fetch(`${url}/livez`)).status).toBe(200);
  death = 'too many abandoned handlers';
  const answer = await fetch(`${url}/livez`);
  expect([answer.status, await answer.json()]).toEqual([503, { status: 'failing', reason: death }]);
});

test('metrics, HEAD, other methods and other paths', async () => {
  const url = await serve({});
  const metrics = await fetch(`${url}/metrics?x=1`);
  expect(metrics.headers.get('content-type')).toMatch(/^text\/plain/);
  expect(await metrics.text()).toContain('warren_build_info{service="test"');
  const head = await fetch(`${url}/livez`, { method: 'HEAD' });
  expect([head.status, await head.text()]).toEqual([200, '']);
  expect((await fetch(`${url}/livez`, { method: 'POST' })).status).toBe(405);
  expect((await fetch(`${url}/nothing`)).status).toBe(404);
});

test('stop twice and before start is harmless, and cuts connections that stay', async () => {
  const url = await serve({});
  await fetch(`${url}/livez`);
  await server?.stop(0);
  await server?.stop(0);
  await expect(fetch(`${url}/livez`)).rejects.toThrow('fetch failed');
  const never = new HealthServer(
    {
      clock: systemClock,
      log: silentLogger,
      checks: [],
      metrics: { contentType: '', render: async () => await Promise.resolve('') },
    },
    { host: '127.0.0.1', port: 0 },
  );
  await never.stop(0);
});

function failing(): never {
  throw new Error('no consumer');
}
