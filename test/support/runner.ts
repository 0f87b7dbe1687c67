/** Runs attempts in a test as a worker does, without broker and database. */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { TaskType } from '../../shared/tasks/define-task.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import type { LogFields, Logger } from '../../shared/observability/log.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { Breakers, DEFAULT_BREAKER } from '../../shared/resilience/breaker.ts';
import type { BreakerOptions } from '../../shared/resilience/breaker.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { isDependencyFailure } from '../../services/worker/dependency-failure.ts';
import type { KeptLines } from '../../services/worker/log-lines.ts';
import type { OnceStore } from '../../services/worker/once-store.ts';
import { DEFAULT_RUN, RunHandler } from '../../services/worker/run-handler.ts';
import type { RunHandlerOptions } from '../../services/worker/run-handler.ts';
import type { StepAdder } from '../../services/worker/step-adder.ts';
import type { StepReader } from '../../services/worker/step-reader.ts';
import { TempDirs } from '../../services/worker/temp-dirs.ts';
import { DEFAULT_THREADS, ThreadPool } from '../../services/worker/thread-pool.ts';
import type { ThreadPoolOptions } from '../../services/worker/thread-pool.ts';

/** One line that was logged. */
export interface LoggedLine {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
}

/** A runner with all that a test looks at. Disposing it stops everything. */
export interface TestRunner extends AsyncDisposable {
  readonly runner: RunHandler;
  readonly metrics: Metrics;
  readonly breakers: Breakers;
  readonly progress: { readonly taskId: TaskId; readonly fraction: number; readonly step: string | undefined }[];
  readonly lines: LoggedLine[];
  /** What attempts logged, of those whose lines are kept. */
  readonly kept: KeptLines[];
  readonly tooManyAbandoned: number[];
  /** Names of breakers, one for each call that succeeded after its timeout. */
  readonly lateCalls: string[];
  /** Directory below which attempts get theirs. */
  readonly tempRoot: string;
  /** Runs attempt 1 of a new task, or of `taskId`. */
  run(type: TaskType, input: unknown, taskId?: TaskId): Promise<Outcome>;
}

/** What a test may set. */
export interface TestRunnerOptions {
  readonly run?: Partial<RunHandlerOptions>;
  readonly threads?: Partial<ThreadPoolOptions>;
  readonly breaker?: Partial<BreakerOptions>;
  /** Module of the types that run in threads. */
  readonly module?: string;
}

/** Where nothing is kept: side effects of handlers want a database. */
const noStore: OnceStore = {
  ask: async () => await Promise.reject(new WarrenError('database-unavailable', { reason: 'this test has none' })),
};

/** The same for steps that are added to flows. */
const noFlows: StepAdder = {
  add: async () => await Promise.reject(new WarrenError('database-unavailable', { reason: 'this test has none' })),
};

/** And for results of flows. */
const noResults: StepReader = {
  read: async () => await Promise.reject(new WarrenError('database-unavailable', { reason: 'this test has none' })),
};

/** Makes one. */
export async function openRunner(options: TestRunnerOptions = {}): Promise<TestRunner> {
  const tempRoot = await mkdtemp(join(tmpdir(), 'warren-test-runner-'));
  const lines: LoggedLine[] = [];
  const log = listLogger(lines);
  const progress: TestRunner['progress'] = [];
  const tooManyAbandoned: number[] = [];
  const lateCalls: string[] = [];
  const kept: KeptLines[] = [];
  const metrics = createMetrics({ service: 'test', version: '', withProcess: false });
  const breakers = new Breakers(
    {
      clock: systemClock,
      random: () => 0.5,
      isFailure: isDependencyFailure,
      onLateCompletion: (name) => lateCalls.push(name),
    },
    { ...DEFAULT_BREAKER, ...options.breaker },
  );
  const tempDirs = new TempDirs({ log }, { root: tempRoot });
  const threads = new ThreadPool(
    { moduleOf: () => options.module, once: noStore, steps: noFlows, stepReader: noResults, schema: 'warren' },
    // threads load the TypeScript sources, as the tests do
    {
      ...DEFAULT_THREADS,
      execArgv: ['--no-warnings', '--import', new URL('ts-register.mjs', import.meta.url).href],
      ...options.threads,
    },
  );
  const runner = new RunHandler(
    {
      clock: systemClock,
      log,
      metrics,
      threads,
      breakers,
      tempDirs,
      once: noStore,
      steps: noFlows,
      stepReader: noResults,
      schema: 'warren',
      readInput: () => Promise.reject(new WarrenError('file-store-missing')),
      saveFile: () => Promise.reject(new WarrenError('file-store-missing')),
      onLines: (_attempt, lines) => kept.push(lines),
      onProgress: (taskId, _attempt, word) => progress.push({ taskId, ...word }),
      onTooManyAbandoned: (count) => tooManyAbandoned.push(count),
    },
    { ...DEFAULT_RUN, ...options.run },
  );
  return {
    runner,
    metrics,
    breakers,
    progress,
    lines,
    kept,
    tooManyAbandoned,
    lateCalls,
    tempRoot,
    run: (type, input, taskId = newId()) =>
      runner.run({ type, taskId, attempt: 1, claimId: randomUUID(), input: Buffer.from(JSON.stringify(input)) }),
    async [Symbol.asyncDispose]() {
      await runner.stop(systemClock.monotonicMs());
      breakers.stop();
      await tempDirs.stop(0);
      await rm(tempRoot, { recursive: true });
    },
  };
}

/** A logger that keeps its lines. */
export function listLogger(lines: LoggedLine[], base: LogFields = {}): Logger {
  const write =
    (level: string) =>
    (message: string, fields: LogFields = {}): void =>
      void lines.push({ level, message, fields: { ...base, ...fields } });
  return {
    error: write('error'),
    warn: write('warn'),
    info: write('info'),
    debug: write('debug'),
    child: (fields) => listLogger(lines, { ...base, ...fields }),
    isDebug: true,
  };
}
