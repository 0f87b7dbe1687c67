import { expect, test } from '@jest/globals';
import { silentLogger } from '../../../../shared/observability/silent-log.ts';
import { startTraceExport } from '../../../../shared/observability/trace-export.ts';
import type { TraceExport } from '../../../../shared/observability/trace-export.ts';

/** Starts where no package is installed; notes what is asked for. */
async function start(env: Record<string, string>): Promise<{ started: TraceExport | undefined; asked: string[] }> {
  const asked: string[] = [];
  const load = async (name: string): Promise<unknown> => {
    asked.push(name);
    throw await Promise.resolve(new Error(`Cannot find package '${name}'\nin a stack`));
  };
  const started = await startTraceExport({ env, service: 'test', version: '1', load }, silentLogger);
  return { started, asked };
}

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };

test.each<[string, Record<string, string>]>([
  ['nothing is said', {}],
  ['the endpoint is empty', { OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }],
  ['the exporter is none', { ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none' }],
  ['OpenTelemetry is switched off', { ...ENDPOINT, OTEL_TRACES_EXPORTER: 'otlp', OTEL_SDK_DISABLED: 'TRUE' }],
  ['only metrics are to go somewhere', { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: 'http://127.0.0.1:4318' }],
])('nothing is loaded where %s', async (_what, env) => {
  expect(await start(env)).toEqual({ started: undefined, asked: [] });
});

const SDK = '@opentelemetry/sdk-trace-node @opentelemetry/resources';
test.each<[Record<string, string>, string]>([
  [ENDPOINT, `${SDK} @opentelemetry/exporter-trace-otlp-proto`],
  [
    { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://127.0.0.1:1', OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' },
    `${SDK} @opentelemetry/exporter-trace-otlp-http`,
  ],
  [{ OTEL_TRACES_EXPORTER: 'otlp' }, `${SDK} @opentelemetry/exporter-trace-otlp-proto`],
  [{ OTEL_TRACES_EXPORTER: 'console' }, SDK],
])('%j says what to install where it is missing', async (env, packages) => {
  await expect(start(env)).rejects.toMatchObject({
    code: 'config-invalid',
    facts: {
      faults: [
        expect.stringMatching(
          new RegExp(`npm install ${packages} \\(Cannot find package '@opentelemetry/sdk-trace-node'\\)$`),
        ),
      ],
    },
  });
});

test.each<[Record<string, string>, string]>([
  [{ OTEL_TRACES_EXPORTER: 'jaeger' }, 'OTEL_TRACES_EXPORTER: must be otlp, console or none, not jaeger'],
  [
    { ...ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' },
    'OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf or http/json, not grpc',
  ],
  [
    { ...ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'grpc', OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' },
    'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: must be http/protobuf or http/json, not grpc',
  ],
])('%j is refused, and it says what there is', async (env, fault) => {
  await expect(start(env)).rejects.toMatchObject({ code: 'config-invalid', facts: { faults: [fault] } });
});
