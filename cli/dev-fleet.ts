/** Starts every service in this process, and stops them in order. Loaded only by `warren dev`. */
import { Writable } from 'node:stream';
import { createDeadLetterHandler } from '../services/dead-letter-handler/service.ts';
import { createProducer } from '../services/producer/service.ts';
import { createWorker } from '../services/worker/service.ts';
import { loadConfig } from '../shared/config/load.ts';
import type { LoadedConfig } from '../shared/config/load.ts';
import type { Config } from '../shared/config/schema.ts';
import { inOrder } from '../shared/lifecycle/in-order.ts';
import type { NamedPart } from '../shared/lifecycle/in-order.ts';
import type { Service, ServiceContext } from '../shared/lifecycle/process-main.ts';
import { toError } from '../shared/errors/to-error.ts';
import { createLogger } from '../shared/observability/log.ts';
import { startTraceExport } from '../shared/observability/trace-export.ts';
import { silentLogger } from '../shared/observability/silent-log.ts';
import { claimPrefix, migrate } from '../shared/postgres/migrate.ts';
import { MIGRATIONS_DIR } from '../shared/tasks/backbone.ts';
import { DEFAULT_QUEUE } from '../shared/tasks/define-task.ts';
import type { CommandContext } from './context.ts';
import type { DevOptions } from './dev.ts';
import { applyChecked } from './apply-schedules.ts';
import { escapeText } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { loadModules, withDatabase } from './installation.ts';
import { renderFields } from './render.ts';
import { textAt } from './view.ts';

/** Attempts of one queue that run at once where `--queues` says nothing. */
const CONCURRENCY = 10;
/** Milliseconds beyond the drain that stopping may take. */
const STOP_MARGIN_MS = 4_000;
/** Milliseconds that are waited at the end for what takes traces. */
const TRACES_WITHIN_MS = 2_000;

/** Milliseconds to wait for all services to be ready, and between two looks. */
const READY_WITHIN_MS = 15_000;
const READY_POLL_MS = 50;

/** Runs until Ctrl-C, or until a service asks to be started anew (exit 1). Throws what keeps a service from starting. */
export async function runDevFleet(context: CommandContext, options: DevOptions): Promise<void> {
  const { io } = context;
  const { config } = await configure(context, options);
  if (options.migrate) {
    const { applied } = await withDatabase(context, config, async (database) => {
      const done = await migrate(database, { dir: MIGRATIONS_DIR, log: silentLogger });
      await claimPrefix(database, config.prefix);
      return done;
    });
    for (const name of applied) context.remark(`applied ${name}\n`);
  }
  const ending = new AbortController();
  const log = createLogger({ level: config.log.level, base: {}, stream: streamTo((text) => io.stderr.write(text)) });
  const asFor = (service: string): ServiceContext => ({
    config,
    log: log.child({ service }),
    clock: io.clock,
    random: io.random,
    requestStop: (_code, reason) => {
      context.remark(`${service} asks to be started anew: ${reason}\n`);
      context.exitWith(EXIT_CODES.failed);
      ending.abort();
    },
  });
  const traces = await startTraceExport(
    { env: io.env, service: 'warren-dev', version: config.worker.codeVersion },
    log.child({ service: 'dev' }),
  );
  const services: readonly (readonly [name: string, service: Service])[] = [
    ['worker', await createWorker(asFor('worker'))],
    ['dead-letter-handler', await createDeadLetterHandler(asFor('dead-letter-handler'))],
    ['producer', await createProducer(asFor('producer'))],
  ];
  // Workers stop first, so that what they hand back is still published by those below.
  const fleet = inOrder(
    services.map(([name, { part }]): NamedPart => ({ name, part })),
    { clock: io.clock, log },
  );
  await fleet.start();
  try {
    await untilReady(
      context,
      services.map(([, service]) => addressOf(service)),
    );
    await applySchedulesOf(context, config);
    announce(context, config, new Map(services));
    await untilAborted(AbortSignal.any([io.interrupted, ending.signal]));
    context.remark('Stopping; what runs is finished first. Ctrl-C again ends it at once.\n');
  } finally {
    await fleet.stop(io.clock.monotonicMs() + config.worker.drainMs + STOP_MARGIN_MS);
    await traces?.stop(TRACES_WITHIN_MS);
  }
}

/** The configuration with what was given on the command line, consuming every queue that a loaded type names. */
async function configure({ io, options }: CommandContext, { tasks, queues }: DevOptions): Promise<LoadedConfig> {
  const load = (more: Readonly<Record<string, string>>): LoadedConfig =>
    loadConfig({ user: 'producer', file: options.config, env: { ...io.env, ...more } });
  const given = {
    ...(tasks === undefined ? {} : { WARREN_TASKS: tasks.join(',') }),
    ...(queues === undefined ? {} : { WARREN_QUEUES: queues }),
  };
  const first = load(given);
  const level = first.sources.get('log.level') === 'default' ? { WARREN_LOG_LEVEL: 'warn' } : {};
  if (first.sources.get('worker.queues') !== 'default') return load({ ...given, ...level });
  const types = (await loadModules(io.clock, first.config.worker.tasks)).all();
  const names = new Set([DEFAULT_QUEUE, ...types.map(({ queue }) => queue)]);
  return load({ ...given, ...level, WARREN_QUEUES: [...names].map((name) => `${name}:${CONCURRENCY}`).join(',') });
}

/** Schedules that the modules define, once their types are announced. */
async function applySchedulesOf(context: CommandContext, config: Config): Promise<void> {
  const schedules = (await loadModules(context.io.clock, config.worker.tasks)).schedules();
  if (schedules.length === 0) return;
  const changes = await withDatabase(
    context,
    config,
    async (database) => await applyChecked(context, { database, config, schedules, isDryRun: false, isPruned: false }),
  );
  for (const { name, change } of changes) context.remark(`schedule ${escapeText(name)}: ${change}\n`);
}

function announce(context: CommandContext, config: Config, services: ReadonlyMap<string, Service>): void {
  const facts = {
    taskApi: addressOf(services.get('producer')),
    deadLetterApi: addressOf(services.get('dead-letter-handler')),
    workerHealth: addressOf(services.get('worker')),
    queues: config.worker.queues,
    taskTypes: services.get('worker')?.describe?.()['taskTypes'] ?? [],
  };
  context.printJson(facts);
  const types = Array.isArray(facts.taskTypes) ? facts.taskTypes.join(', ') : '';
  context.print(
    renderFields(
      [
        ['Task API', facts.taskApi],
        ['Dead Letter API', facts.deadLetterApi],
        ['worker health', facts.workerHealth],
        ['queues', config.worker.queues.map(({ name, concurrency }) => `${name}:${concurrency}`).join(', ')],
        ['task types', types],
      ],
      context.paint,
    ),
  );
  context.remark('Ready. Ctrl-C stops all.\n');
}

/** Where a service listens; services name it differently. */
function addressOf(service: Service | undefined): string | undefined {
  const facts = service?.describe?.() ?? {};
  return textAt(facts, 'address') ?? textAt(facts, 'url');
}

/**
 * Waits until every service says that it is ready: queues are declared and consumed only a moment after the start, and
 * what is submitted before that would wait for the sweeper. What stays unready is said, and does not end the fleet.
 */
async function untilReady(context: CommandContext, addresses: readonly (string | undefined)[]): Promise<void> {
  const { io } = context;
  const untilMs = io.clock.monotonicMs() + READY_WITHIN_MS;
  for (const address of addresses) {
    while (address !== undefined && !io.interrupted.aborted) {
      const { isReady, told } = await askReady(io, address);
      if (isReady) break;
      if (io.clock.monotonicMs() > untilMs) {
        context.remark(`${address} is not ready yet: ${escapeText(told.trim())}\n`);
        break;
      }
      await io.clock.sleep(READY_POLL_MS, io.interrupted);
    }
  }
}

async function askReady(
  { fetch }: CommandContext['io'],
  address: string,
): Promise<{ readonly isReady: boolean; readonly told: string }> {
  try {
    const answer = await fetch(`${address}/readyz`);
    return { isReady: answer.ok, told: await answer.text() };
  } catch (thrown) {
    return { isReady: false, told: toError(toError(thrown).cause ?? thrown).message };
  }
}

async function untilAborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

function streamTo(write: (text: string) => void): Writable {
  return new Writable({
    write: (chunk: Buffer | string, _encoding, done) => {
      write(chunk.toString());
      done();
    },
  });
}
