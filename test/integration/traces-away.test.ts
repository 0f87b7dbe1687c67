/** What takes traces may be away, hang, or refuse: tasks do not notice, and services stop in time. */
import { expect, test } from '@jest/globals';
import { openFleet } from '../support/fleet.ts';
import { openOtlpEndpoint } from '../support/otlp-endpoint.ts';

test.each(['hangs', 'breaks', 'is away'] as const)(
  'an endpoint that %s holds nothing up, and is told of a few times',
  async (mood) => {
    await using endpoint = await openOtlpEndpoint(mood === 'is away' ? 'well' : mood);
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: mood === 'is away' ? 'http://127.0.0.1:1' : endpoint.url,
      OTEL_BSP_SCHEDULE_DELAY: '50',
      OTEL_BSP_MAX_QUEUE_SIZE: '64',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '16',
      OTEL_BSP_EXPORT_TIMEOUT: '200',
    };
    await using fleet = await openFleet({ env });
    await fleet.submit(...Array.from({ length: 1_000 }, () => ({})));
    expect(await fleet.ended()).toMatchObject({ accepted: 1_000, succeeded: 1_000 });
    const told = await fleet.worker(0).next('traces cannot be exported');
    expect(told).toMatchObject({ level: 'warn', reason: expect.any(String) });
    for (const service of [fleet.worker(0), fleet.producer()]) {
      const { code, afterMs } = await service.terminate();
      expect(code).toBe(0);
      expect(afterMs).toBeLessThan(8_000);
      const lines = service.lines.filter(({ message }) => /^traces (cannot|left|not)/.test(message));
      expect(lines.length).toBeLessThan(30);
    }
  },
);

test('spans are sent as JSON where that is asked for', async () => {
  await using endpoint = await openOtlpEndpoint();
  const env = {
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${endpoint.url}/v1/traces`,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
  };
  {
    await using fleet = await openFleet({
      env: { ...env, OTEL_SERVICE_NAME: 'mine', OTEL_TRACES_SAMPLER: 'always_on' },
    });
    await fleet.submit({});
    await fleet.ended();
  }
  expect(endpoint.contentTypes).toEqual(new Set(['application/json']));
  const names = endpoint.spans.map(({ name }) => name).toSorted((a, b) => (a < b ? -1 : 1));
  expect(names).toEqual(['process default', 'publish default', 'receive default', 'settle default']);
  expect(new Set(endpoint.spans.map(({ service, traceId }) => `${service} ${traceId}`)).size).toBe(1);
});

test('an exporter that there is not keeps a service from starting, and says which there are', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0 });
  fleet.expectErrors('service failed to start');
  const process = fleet.start('worker', { OTEL_TRACES_EXPORTER: 'zipkin' });
  expect(await process.exited).toBe(78);
  expect(process.logged('service failed to start')).toMatchObject([
    {
      err: {
        code: 'config-invalid',
        facts: { faults: ['OTEL_TRACES_EXPORTER: must be otlp, console or none, not zipkin'] },
      },
    },
  ]);
});
