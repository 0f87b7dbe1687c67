/**
 * Sends spans to where the environment of OpenTelemetry says (`OTEL_…`). The only file that knows its SDK, which is loaded where
 * something asks for it and need not be installed otherwise. Nothing that a service does waits for an exporter: what it does not take
 * in time is dropped, and said once.
 */
import { diag, DiagLogLevel } from '@opentelemetry/api';
import type * as OtlpProto from '@opentelemetry/exporter-trace-otlp-proto';
import type * as Resources from '@opentelemetry/resources';
import type * as Sdk from '@opentelemetry/sdk-trace-node';
import { toError } from '../errors/to-error.ts';
import { WarrenError } from '../errors/warren-error.ts';
import type { Logger } from './log.ts';
import { isWorthTelling } from './repeats.ts';

/** Who sends spans. */
export interface TraceExportOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** `service.name` where `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say none. */
  readonly service: string;
  readonly version: string;
  /** Imports a package. */
  readonly load?: (name: string) => Promise<unknown>;
}

/** An SDK that runs. */
export interface TraceExport {
  /** Sends what is left, for so many milliseconds at most. Never rejects. */
  stop(withinMs: number): Promise<void>;
}

/** What `OTEL_TRACES_EXPORTER` may say here. */
type ExporterName = 'otlp' | 'console' | 'none';

const OTLP_PACKAGES = {
  'http/protobuf': '@opentelemetry/exporter-trace-otlp-proto',
  'http/json': '@opentelemetry/exporter-trace-otlp-http',
} as const;
const SDK_PACKAGE = '@opentelemetry/sdk-trace-node';
const RESOURCES_PACKAGE = '@opentelemetry/resources';

/**
 * Starts the SDK where the environment asks for traces, and nothing where it does not. Throws `config-invalid` where packages are
 * missing, with what to install, or where it asks for an exporter that there is not.
 */
export async function startTraceExport(options: TraceExportOptions, log: Logger): Promise<TraceExport | undefined> {
  const { env, service, version } = options;
  const exporter = askedExporter(env);
  if (exporter === 'none') return undefined;
  const packages = [SDK_PACKAGE, RESOURCES_PACKAGE, ...(exporter === 'otlp' ? [otlpPackageOf(env)] : [])];
  const [sdk, resources, otlp] = (await loadAll(packages, options.load)) as [
    typeof Sdk,
    typeof Resources,
    typeof OtlpProto,
  ];
  tellThrough(log);
  const spanExporter = exporter === 'otlp' ? new otlp.OTLPTraceExporter() : new sdk.ConsoleSpanExporter();
  const provider = new sdk.NodeTracerProvider({
    resource: resources
      .resourceFromAttributes({ 'service.name': service, 'service.version': version })
      .merge(resources.detectResources({ detectors: [resources.envDetector, resources.hostDetector] })),
    // Its queue is bounded (`OTEL_BSP_MAX_QUEUE_SIZE`, 2 048 spans); what is beyond is dropped.
    spanProcessors: [new sdk.BatchSpanProcessor(spanExporter)],
  });
  provider.register();
  log.info('traces are exported', { exporter, sdk: SDK_PACKAGE });
  return { stop: async (withinMs) => await stopWithin(provider, withinMs, log) };
}

/** What of the environment asks for: an endpoint is wish enough, since the SDK's own default would be an address that nobody named. */
function askedExporter(env: TraceExportOptions['env']): ExporterName {
  if (env['OTEL_SDK_DISABLED']?.trim().toLowerCase() === 'true') return 'none';
  const named = (env['OTEL_TRACES_EXPORTER'] ?? '').trim();
  if (named === 'otlp' || named === 'console' || named === 'none') return named;
  if (named !== '') throw faulty('OTEL_TRACES_EXPORTER', named, 'otlp, console or none');
  const endpoint = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] ?? env['OTEL_EXPORTER_OTLP_ENDPOINT'] ?? '';
  return endpoint.trim() === '' ? 'none' : 'otlp';
}

function otlpPackageOf(env: TraceExportOptions['env']): string {
  const variable =
    env['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'] === undefined
      ? 'OTEL_EXPORTER_OTLP_PROTOCOL'
      : 'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL';
  const protocol = env[variable]?.trim() ?? '';
  if (protocol === '') return OTLP_PACKAGES['http/protobuf'];
  const found = Object.entries(OTLP_PACKAGES).find(([name]) => name === protocol);
  if (found === undefined) throw faulty(variable, protocol, Object.keys(OTLP_PACKAGES).join(' or '));
  return found[1];
}

async function loadAll(
  names: readonly string[],
  load: (name: string) => Promise<unknown> = async (name) => (await import(name)) as unknown,
): Promise<unknown[]> {
  try {
    return await Promise.all(names.map(async (name) => await load(name)));
  } catch (thrown) {
    const fault = `OTEL_… asks for traces, for which ${names.length} packages must be installed: npm install ${names.join(' ')}`;
    throw new WarrenError(
      'config-invalid',
      { faults: [`${fault} (${toError(thrown).message.split('\n', 1)[0]})`] },
      thrown,
    );
  }
}

function faulty(variable: string, value: string, known: string): WarrenError {
  return new WarrenError('config-invalid', { faults: [`${variable}: must be ${known}, not ${value}`] });
}

/** What the SDK has to say goes into the log: the first of each kind and then ever fewer. */
function tellThrough(log: Logger): void {
  const told = new Map<string, number>();
  const tell = (message: string, rest: readonly unknown[]): void => {
    const what = firstLineOf(message);
    const times = (told.get(what) ?? 0) + 1;
    if (told.size < MOST_KINDS || told.has(what)) told.set(what, times);
    if (!isWorthTelling(times)) return;
    log.warn('traces cannot be exported', {
      reason: what,
      times,
      ...(rest.length === 0 ? {} : { more: rest.slice(0, 3) }),
    });
  };
  const quiet = (): void => undefined;
  const speaker = {
    error: (message: string, ...rest: unknown[]) => tell(message, rest),
    warn: (message: string, ...rest: unknown[]) => tell(message, rest),
    info: quiet,
    debug: quiet,
    verbose: quiet,
  };
  diag.setLogger(speaker, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

/** Kinds of sayings that are counted apart. */
const MOST_KINDS = 50;

/** Errors come as texts of JSON that hold their stack: the message is enough. */
function firstLineOf(text: string): string {
  try {
    const { message } = JSON.parse(text) as { readonly message?: unknown };
    if (typeof message === 'string') return message.slice(0, 300);
  } catch {
    // a plain text
  }
  return text.split('\n', 1)[0]?.slice(0, 300) ?? '';
}

async function stopWithin(provider: Sdk.NodeTracerProvider, withinMs: number, log: Logger): Promise<void> {
  const late = new AbortController();
  const timer = AbortSignal.any([late.signal, AbortSignal.timeout(withinMs)]);
  const isLate = new Promise<'late'>((resolve) =>
    timer.addEventListener('abort', () => resolve('late'), { once: true }),
  );
  try {
    if ((await Promise.race([provider.shutdown(), isLate])) === 'late') {
      log.warn('traces left behind', {
        withinMs,
        hint: 'the endpoint of OTEL_EXPORTER_OTLP_… does not answer in time',
      });
    }
  } catch (thrown) {
    log.warn('traces not flushed', { err: toError(thrown) });
  } finally {
    late.abort();
  }
}
