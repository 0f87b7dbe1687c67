/** The frame around every service: configuration, start, signals, stop, exit code. */
import { CATALOGUE } from '../errors/catalogue.ts';
import { isWarrenError } from '../errors/warren-error.ts';
import { codeOf, toError } from '../errors/to-error.ts';
import { readEnvironment } from '../config/environment.ts';
import type { Config } from '../config/schema.ts';
import { startTraceExport } from '../observability/trace-export.ts';
import type { TraceExport } from '../observability/trace-export.ts';
import { createLogger } from '../observability/log.ts';
import type { Logger } from '../observability/log.ts';
import { systemClock } from '../time/clock.ts';
import type { Clock } from '../time/clock.ts';
import { systemRandom } from '../time/random.ts';
import type { Part } from './part.ts';
import { STOP_SIGNALS, onStopSignals, thisProcess } from './signals.ts';
import type { ProcessHost } from './signals.ts';

/** Exit codes of every service and of the command line. Source: sysexits.h. */
export const EXIT = {
  /** Did what was asked; stopped because it was asked to. */
  ok: 0,
  /** Wrong use of the command line. */
  usage: 64,
  /** What the service stands on did not answer at start. */
  unavailable: 69,
  /** A bug: something was thrown that nobody handles, or a stop that did not end. */
  internal: 70,
  /** Ended by itself, to be started again. */
  temporary: 75,
  /** The configuration, the database's version or the topology must be changed first; all faults are listed. */
  config: 78,
} as const;

/** What a service is made with. */
export interface ServiceContext {
  readonly config: Config;
  readonly log: Logger;
  readonly clock: Clock;
  readonly random: () => number;
  /** Makes the process stop as at a signal, and exit with this code: a worker that wants to be started anew, 75. */
  readonly requestStop: (code: number, reason: string) => void;
}

/** A service, wired. */
export interface Service {
  readonly part: Part;
  /** Facts for the line `service started`, such as the address; asked once it has started. */
  describe?(): Readonly<Record<string, unknown>>;
}

/** How a process runs its service. */
export interface ServiceMain {
  /** `producer`, `worker`, `dead-letter-handler`. */
  readonly name: string;
  /** Reads the configuration; `file` is what `--config` names. Throws `config-invalid`. */
  readonly load: (file: string | undefined) => { readonly config: Config };
  readonly create: (context: ServiceContext) => Service | Promise<Service>;
  /** Milliseconds that stopping may take; past it the process exits with 70. Default: `worker.drainMs` and 4 000. */
  readonly stopWithinMs?: (config: Config) => number;
}

/** Milliseconds beyond the drain for what comes after it: settles, confirms, closing connections. */
const STOP_MARGIN_MS = 4_000;
/** Milliseconds that are waited at the end for what takes traces. */
const TRACES_WITHIN_MS = 2_000;
/** Milliseconds past its own deadline that a stop gets before the process is ended under it. */
const STOP_OVERRUN_MS = 2_000;

/**
 * Runs a service until it is asked to stop, then ends the process: see `EXIT`. The first SIGTERM or SIGINT drains, the
 * second ends at once with 143 or 130.
 */
export async function runService(main: ServiceMain, host: ProcessHost = thisProcess()): Promise<void> {
  const config = loadOrExit(main, host);
  if (config === undefined) return;
  const log = createLogger({ level: config.log.level, base: { service: main.name } });
  const ending = newEnding();
  const forget = onStopSignals(
    host,
    (signal) => ending.request(EXIT.ok, signal),
    (signal) => {
      log.warn('second signal, exiting at once', { signal });
      host.exit(STOP_SIGNALS[signal]);
    },
  );
  let hasCrashed = false;
  const onCrash = (thrown: unknown): void => {
    hasCrashed = true;
    log.error('unhandled failure', { err: toError(thrown), hint: 'a bug: please report it with this line' });
    ending.request(EXIT.internal, 'unhandled failure');
  };
  host.on('uncaughtException', onCrash);
  host.on('unhandledRejection', onCrash);

  const context = { config, log, clock: systemClock, random: systemRandom, requestStop: ending.request };
  const code = await liveTraced(main, context, ending.asked);
  forget();
  host.exit(hasCrashed ? EXIT.internal : code);
}

/** With an exporter of traces around it, where the environment asks for one: the first to start, and the last to stop. */
async function liveTraced(main: ServiceMain, context: ServiceContext, asked: Promise<Ending>): Promise<number> {
  const { log, config } = context;
  const options = { env: readEnvironment(), service: `warren-${main.name}`, version: config.worker.codeVersion };
  let traces: TraceExport | undefined;
  const create = async (): Promise<Service> => {
    traces = await startTraceExport(options, log);
    return await main.create(context);
  };
  const code = await live({ ...main, create }, context, asked);
  await traces?.stop(TRACES_WITHIN_MS);
  return code;
}

async function live(main: ServiceMain, context: ServiceContext, asked: Promise<Ending>): Promise<number> {
  const { log, clock, config } = context;
  let service: Service;
  try {
    service = await main.create(context);
    const started = await Promise.race([service.part.start().then(() => 'started' as const), asked]);
    if (started === 'started') log.info('service started', service.describe?.() ?? {});
  } catch (thrown) {
    log.error('service failed to start', { err: toError(thrown), hint: hintOf(thrown) });
    return exitCodeOf(thrown);
  }
  const { code, reason } = await asked;
  log.info('service stopping', { reason });
  const withinMs = main.stopWithinMs?.(config) ?? config.worker.drainMs + STOP_MARGIN_MS;
  const race = new AbortController();
  const stopped = await Promise.race([
    service.part.stop(clock.monotonicMs() + withinMs).then(() => true),
    clock.sleep(withinMs + STOP_OVERRUN_MS, race.signal).then(() => false),
  ]).catch((thrown: unknown) => {
    log.error('service failed to stop', { err: toError(thrown) });
    return false;
  });
  race.abort();
  if (stopped) log.info('service stopped', { reason });
  else log.error('service did not stop in time', { withinMs, hint: 'its leases lapse, so its tasks run elsewhere' });
  return stopped ? code : EXIT.internal;
}

/** The exit code for what ended a start or a command. */
export function exitCodeOf(thrown: unknown): number {
  if (!isWarrenError(thrown)) return ADDRESS_FAULTS.has(codeOf(thrown) ?? '') ? EXIT.config : EXIT.internal;
  if (NEEDS_CHANGE.has(thrown.code)) return EXIT.config;
  return CATALOGUE[thrown.code].retryable ? EXIT.unavailable : EXIT.internal;
}

/** The configured address cannot be listened on. */
const ADDRESS_FAULTS: ReadonlySet<string> = new Set(['EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES']);

/** Starting again without changing something first would only fail again. */
const NEEDS_CHANGE: ReadonlySet<string> = new Set([
  'config-invalid',
  'database-outdated',
  'migration-changed',
  'prefix-mismatch',
  'topology-drift',
  'broker-refused-login',
  'task-module-invalid',
]);

/** The lines that tell all faults of a configuration. */
export function renderFaults(thrown: unknown): string {
  const faults = isWarrenError(thrown, 'config-invalid') ? thrown.facts['faults'] : undefined;
  if (!Array.isArray(faults)) return `${toError(thrown).message}\n`;
  return ['The configuration has faults:', ...faults.map((fault) => `  ${String(fault)}`), ''].join('\n');
}

function loadOrExit(main: ServiceMain, host: ProcessHost): Config | undefined {
  try {
    return main.load(configFileOf(host.argv)).config;
  } catch (thrown) {
    host.stderr.write(renderFaults(thrown));
    host.exit(exitCodeOf(thrown));
    return undefined;
  }
}

function configFileOf(argv: readonly string[]): string | undefined {
  const joined = argv.find((word) => word.startsWith('--config='));
  if (joined !== undefined) return joined.slice('--config='.length);
  const index = argv.indexOf('--config');
  return index < 0 ? undefined : argv[index + 1];
}

function hintOf(thrown: unknown): string {
  if (ADDRESS_FAULTS.has(codeOf(thrown) ?? '')) return 'choose another http.host or port: see the configuration';
  const hint = isWarrenError(thrown) ? thrown.facts['hint'] : undefined;
  return typeof hint === 'string' ? hint : 'see the error; `warren doctor` looks at what the service stands on';
}

interface Ending {
  readonly code: number;
  readonly reason: string;
}

function newEnding(): {
  readonly asked: Promise<Ending>;
  readonly request: (code: number, reason: string) => void;
} {
  let resolve: ((ending: Ending) => void) | undefined;
  const asked = new Promise<Ending>((done) => {
    resolve = done;
  });
  return { asked, request: (code, reason) => resolve?.({ code, reason }) };
}
