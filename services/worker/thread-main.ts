/** Runs inside a thread: finds the type in its module and calls its handler, with a context that speaks to the worker. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { FileReference } from '../../shared/files/file-reference.ts';
import { redact } from '../../shared/observability/redact.ts';
import type { LogFields, Logger } from '../../shared/observability/log.ts';
import { runInTrace } from '../../shared/observability/tracing.ts';
import type { TaskType } from '../../shared/tasks/define-task.ts';
import { isTaskType } from '../../shared/tasks/define-task.ts';
import { describeError } from '../../shared/tasks/outcome.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { callHandler } from './call-handler.ts';
import { AttemptContext } from './context.ts';
import type { ProgressWord } from './context.ts';
import { isDependencyFailure } from './dependency-failure.ts';
import type { FileToSave } from './file-saver.ts';
import type { AddedSteps } from '../../shared/tasks/add-step.ts';
import type { OnceAnswer, OnceStep } from './once-store.ts';
import type { AskedStep } from './step-adder.ts';
import type { AskedResults, ResultsPage } from './step-reader.ts';
import type { FromThread, ThreadCall, ToThread } from './thread-messages.ts';

const PROGRESS_EVERY_MS = 100;

/** What piscina calls. */
export async function runInThread(call: ThreadCall): Promise<Outcome> {
  let type: TaskType;
  try {
    type = await findType(call.module, call.taskType);
  } catch (thrown) {
    // told as a value: what is thrown across threads loses its code
    return { kind: 'failed', reason: 'error', error: describeError(thrown), retryable: true };
  }
  const line = new WorkerLine(call);
  const ctx = new AttemptContext(
    {
      log: line.logger({}),
      breakers: { run: (name, fn) => line.breaker(name, fn) },
      tempDirs: { make: () => line.tempDir(), remove: () => Promise.resolve() }, // the worker removes it, also after a kill
      saveFile: (file) => line.saveFile(file),
      onProgress: (_taskId, _attempt, word) => line.progress(word),
      once: { ask: async (_proof, step) => await line.once(step) },
      steps: { add: async (_proof, asked) => await line.addStep(asked) },
      stepReader: { read: async (_proof, asked) => await line.stepResults(asked) },
      schema: call.schema,
      onSettleWith: () => line.say({ kind: 'settlesWith' }),
      lineClock: undefined, // the worker keeps what it is told, also of a thread that it kills
    },
    {
      type,
      taskId: call.taskId,
      attempt: call.attempt,
      claimId: call.claimId,
      resultMaxBytes: call.resultMaxBytes,
      trace: call.trace,
    },
  );
  line.onAbort = (reason) => ctx.abort(reason);
  try {
    const { input } = call;
    const bytes = Buffer.from(input.buffer, input.byteOffset, input.length);
    // Active where the module of the type has set OpenTelemetry up, which a thread has to itself.
    return await runInTrace(call.trace, () => callHandler(type, bytes, ctx, call.resultMaxBytes));
  } finally {
    void ctx.end();
    line.close();
  }
}

async function findType(module: string, taskType: string): Promise<TaskType> {
  const exports = (await import(module)) as Record<string, unknown>;
  const type = Object.values(exports).find((value) => isTaskType(value) && value.name === taskType);
  if (!isTaskType(type))
    throw new WarrenError('task-module-invalid', { module, reason: `no longer exports ${taskType}` });
  return type;
}

/** The thread's end of the port: questions to the worker and their answers. */
class WorkerLine {
  onAbort: (reason: Error) => void = () => undefined;
  readonly #port: ThreadCall['port'];
  readonly #answers = new Map<number, (answer: ToThread) => void>();
  readonly #calls = new Map<number, AbortController>();
  readonly #isDebug: boolean;
  #lastId = 0;
  #progress: FromThread | undefined;
  #progressSaidAtMs = -Infinity;
  #cancelProgress: (() => void) | undefined;

  constructor(call: ThreadCall) {
    this.#port = call.port;
    this.#isDebug = call.isDebug;
    this.#port.on('message', (message: ToThread) => this.#hear(message));
  }

  say(message: FromThread): void {
    this.#port.postMessage(message);
  }

  /** Said at most ten times a second, the last word always: a loop that never pauses would fill the worker's memory. */
  progress(word: ProgressWord): void {
    this.#progress = { kind: 'progress', ...word };
    const restMs = this.#progressSaidAtMs + PROGRESS_EVERY_MS - systemClock.monotonicMs();
    if (restMs <= 0) this.#sayProgress();
    else this.#cancelProgress ??= systemClock.after(restMs, () => this.#sayProgress());
  }

  close(): void {
    this.#sayProgress();
    this.#port.close();
  }

  /** Lines carry `fields`; the worker adds task and attempt. */
  logger(fields: LogFields): Logger {
    const write = (level: 'error' | 'warn' | 'info' | 'debug', message: string, more: LogFields | undefined): void => {
      this.say({ kind: 'log', level, message, fields: redact({ ...fields, ...more }) as object });
    };
    return {
      error: (message, more) => write('error', message, more),
      warn: (message, more) => write('warn', message, more),
      info: (message, more) => write('info', message, more),
      debug: (message, more) => {
        if (this.#isDebug) write('debug', message, more);
      },
      child: (more) => this.logger({ ...fields, ...more }),
      isDebug: this.#isDebug,
    };
  }

  async tempDir(): Promise<string> {
    const answer = await this.#ask((id) => ({ kind: 'tempDirAsked', id }));
    if (answer.kind === 'tempDir' && answer.path !== undefined) return answer.path;
    throw new WarrenError('internal', { reason: answer.kind === 'tempDir' ? answer.reason : answer.kind });
  }

  async once(step: OnceStep): Promise<OnceAnswer> {
    const answer = await this.#ask((id) => ({ kind: 'onceAsked', id, step }));
    if (answer.kind === 'onceAnswered') return answer.answer;
    throw refusedAs(answer);
  }

  async addStep(asked: AskedStep): Promise<AddedSteps> {
    const answer = await this.#ask((id) => ({ kind: 'stepAsked', id, asked }));
    if (answer.kind === 'stepAdded') return answer.added;
    throw refusedAs(answer);
  }

  async stepResults(asked: AskedResults): Promise<ResultsPage> {
    const answer = await this.#ask((id) => ({ kind: 'resultsAsked', id, asked }));
    if (answer.kind === 'resultsRead') return answer.page;
    throw refusedAs(answer);
  }

  /** The worker reads from a path; bytes and streams are written to a file of the attempt first. */
  async saveFile({ source, description, signal }: FileToSave): Promise<FileReference> {
    const path = typeof source === 'string' ? source : join(await this.tempDir(), `saved-${(this.#lastId += 1)}`);
    if (typeof source !== 'string') await writeFile(path, source, { signal, mode: 0o600 });
    try {
      const answer = await this.#ask((id) => ({ kind: 'saveAsked', id, path, description: { ...description } }));
      if (answer.kind === 'saved') return answer.reference;
      throw failureOf(answer);
    } finally {
      if (typeof source !== 'string') await rm(path, { force: true });
    }
  }

  async breaker<T>(name: string, fn: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const answer = await this.#ask((id) => ({ kind: 'breakerAsked', id, name }));
    if (answer.kind === 'breakerOpen') throw refusalOf(name, answer.delayMs);
    if (answer.kind !== 'breakerLetThrough') throw new WarrenError('internal', { reason: answer.kind });
    const { id } = answer;
    const controller = new AbortController();
    this.#calls.set(id, controller);
    try {
      const value = await fn(controller.signal);
      this.say({ kind: 'breakerCallEnded', id, failed: false });
      return value;
    } catch (thrown) {
      const failed = isDependencyFailure(thrown);
      if (!failed) this.say({ kind: 'breakerCallEnded', id, failed });
      const meaning = failed ? await this.#say(id, { kind: 'breakerCallEnded', id, failed }) : undefined;
      if (meaning?.kind === 'breakerOpen') throw refusalOf(name, meaning.delayMs, thrown);
      throw thrown;
    } finally {
      this.#calls.delete(id);
    }
  }

  #sayProgress(): void {
    this.#cancelProgress?.();
    this.#cancelProgress = undefined;
    if (this.#progress === undefined) return;
    this.say(this.#progress);
    this.#progress = undefined;
    this.#progressSaidAtMs = systemClock.monotonicMs();
  }

  #ask(question: (id: number) => FromThread): Promise<ToThread> {
    const id = (this.#lastId += 1);
    return this.#say(id, question(id));
  }

  /** Says what is answered under `id`. */
  #say(id: number, question: FromThread): Promise<ToThread> {
    return new Promise((resolve) => {
      this.#answers.set(id, resolve);
      this.say(question);
    });
  }

  #hear(message: ToThread): void {
    if (message.kind === 'abort') {
      const reason = new WarrenError(message.code, { ...message.facts });
      this.onAbort(reason);
      for (const call of this.#calls.values()) call.abort(reason);
      return;
    }
    if (message.kind === 'breakerCallLate') {
      this.#calls.get(message.id)?.abort(new WarrenError('attempt-timeout', { reason: 'call timeout of its breaker' }));
      return;
    }
    this.#answers.get(message.id)?.(message);
    this.#answers.delete(message.id);
  }
}

function refusedAs(answer: ToThread): WarrenError {
  return answer.kind === 'askFailed'
    ? new WarrenError(answer.code, { ...answer.facts })
    : new WarrenError('internal', { reason: answer.kind });
}

function failureOf(answer: ToThread): Error {
  if (answer.kind !== 'saveFailed') return new WarrenError('internal', { reason: answer.kind });
  const { code, facts, message, errorCode } = answer.failure;
  if (code !== undefined) return new WarrenError(code, { ...facts });
  return Object.assign(new Error(message), errorCode === undefined ? {} : { code: errorCode });
}

function refusalOf(breaker: string, delayMs: number, cause?: unknown): WarrenError {
  return new WarrenError('breaker-open', { breaker, delayMs }, cause);
}
