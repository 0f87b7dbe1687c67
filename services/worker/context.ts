/** What a handler gets for one attempt. Made for each, so whatever costs is made at its first use. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { FileReference } from '../../shared/files/file-reference.ts';
import type { TaskContext, TaskType } from '../../shared/tasks/define-task.ts';
import { Deferred } from '../../shared/tasks/handler-errors.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import { storableText } from '../../shared/tasks/outcome.ts';
import type { StepResultsOptions } from '../../shared/tasks/step-results.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { traceparentOf, tracestateOf } from '../../shared/observability/trace-context.ts';
import type { TraceText } from '../../shared/observability/trace-context.ts';
import { attemptFacts } from './attempt-facts.ts';
import type { FileToSave } from './file-saver.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { LogLines } from './log-lines.ts';
import type { KeptLines } from './log-lines.ts';
import type { OnceStore } from './once-store.ts';
import { OnceRuns } from './once.ts';
import { renderJson, unstorable } from './result-json.ts';
import { settleWith } from './settle-with.ts';
import type { StepAdder } from './step-adder.ts';
import { iterateResults } from './step-reader.ts';
import type { AskedResults, ResultsPage, StepReader } from './step-reader.ts';

/** What a handler says of how far it is. */
export interface ProgressWord {
  /** 0 to 1. */
  readonly fraction: number;
  readonly step: string | undefined;
  readonly message: string | undefined;
}

/** What contexts stand on; in a thread these speak to the main thread. */
export interface ContextDeps {
  readonly log: Logger;
  readonly breakers: {
    run<T>(name: string, fn: (signal: AbortSignal) => Promise<T>, outer?: AbortSignal): Promise<T>;
  };
  readonly tempDirs: { make(): Promise<string>; remove(path: string): Promise<void> };
  readonly saveFile: (file: FileToSave) => Promise<FileReference>;
  /** Called at most once per `progress` call. */
  readonly onProgress: (taskId: TaskId, attempt: number, word: ProgressWord) => void;
  /** Where side effects are kept. */
  readonly once: OnceStore;
  /** Adds steps to flows. */
  readonly steps: StepAdder;
  /** Reads results of flows. */
  readonly stepReader: StepReader;
  /** Schema of Warren's tables. */
  readonly schema: string;
  /** Called before a handler settles in a transaction of its own. */
  readonly onSettleWith?: () => void;
  /** By which kept lines get their instant; without one none are kept here. */
  readonly lineClock: Pick<Clock, 'now'> | undefined;
}

/** The attempt of a context: with its claim, which whatever it writes must show. */
export interface AttemptIdentity {
  readonly type: TaskType;
  readonly taskId: TaskId;
  readonly attempt: number;
  readonly claimId: string;
  /** Largest result, in bytes of JSON. */
  readonly resultMaxBytes: number;
  readonly flowId?: string | undefined;
  readonly businessKey?: string | undefined;
  /** Where it stands in a trace. */
  readonly trace?: TraceText | undefined;
}

const LONGEST_STEP = 200;
const LONGEST_MESSAGE = 1_000;
/** Files of one attempt. */
const MOST_FILES = 1_000;
const RESULT = { name: 'result.json', contentType: 'application/json' };

/** The context of one attempt. Its functions may be taken off it (`{ progress }`): each is bound when it is read. */
export class AttemptContext implements TaskContext {
  readonly taskId: TaskId;
  readonly attempt: number;
  readonly #deps: ContextDeps;
  readonly #identity: AttemptIdentity;
  #controller: AbortController | undefined;
  #abortedWith: Error | undefined;
  #log: Logger | undefined;
  #tempDir: Promise<string> | undefined;
  #lines: LogLines | undefined;
  #once: OnceRuns | undefined;
  #hasEnded = false;
  #isClosed = false;
  #mayBeSettled = false;
  /** Ends uploads with the attempt. */
  #saving: AbortController | undefined;
  #files = 0;

  constructor(deps: ContextDeps, identity: AttemptIdentity) {
    this.#deps = deps;
    this.#identity = identity;
    this.taskId = identity.taskId;
    this.attempt = identity.attempt;
  }

  get fencingToken(): number {
    return this.attempt;
  }

  get traceparent(): string | undefined {
    const { trace } = this.#identity;
    return trace === undefined ? undefined : traceparentOf(trace);
  }

  get tracestate(): string | undefined {
    const { trace } = this.#identity;
    return trace === undefined ? undefined : tracestateOf(trace);
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#abortedWith !== undefined) this.#controller.abort(this.#abortedWith);
    }
    return this.#controller.signal;
  }

  get log(): Logger {
    if (this.#log === undefined) {
      const log = this.#deps.log.child(attemptFacts(this.#identity.type.name, this.#identity));
      if (this.#deps.lineClock !== undefined) this.#lines = new LogLines(this.#deps.lineClock);
      this.#log = this.#lines?.listen(log) ?? log;
    }
    return this.#log;
  }

  get once(): TaskContext['once'] {
    this.#once ??= new OnceRuns({
      store: this.#deps.once,
      proof: this.#identity,
      signal: this.signal,
      log: this.log,
      maxBytes: this.#identity.resultMaxBytes,
    });
    return this.#once.once;
  }

  get addStep(): TaskContext['addStep'] {
    return async (name, options) => {
      const rendered = renderJson(options, Infinity);
      if ('fault' in rendered) throw new WarrenError('field-invalid', { field: 'options', reason: rendered.fault });
      // Its transaction may hold the task's row, which the handler would wait for and never get.
      if (this.#mayBeSettled) {
        throw new WarrenError('step-refused', {
          field: 'task',
          reason: 'is settled by settleWith; add steps before that',
        });
      }
      return await this.#deps.steps.add(
        this.#identity,
        { name: String(name), options: rendered.bytes?.toString('utf8') ?? 'null' },
        this.signal,
      );
    };
  }

  get stepResults(): TaskContext['stepResults'] {
    return <Result>(name: string, options?: StepResultsOptions) => {
      const { signal } = this;
      const read = async (asked: AskedResults): Promise<ResultsPage> =>
        await this.#deps.stepReader.read(this.#identity, asked, signal);
      return iterateResults<Result>(read, signal, name, options);
    };
  }

  get settleWith(): TaskContext['settleWith'] {
    return async (client, result) => {
      const { resultMaxBytes } = this.#identity;
      if (typeof (client as Partial<typeof client> | undefined)?.query !== 'function') {
        throw new WarrenError('settle-refused', { reason: 'pass a client of pg with an open transaction' });
      }
      if (this.#isClosed) throw new WarrenError('settle-refused', { reason: 'the attempt is over' });
      const rendered = renderJson(result, resultMaxBytes);
      if ('fault' in rendered) throw unstorable(rendered, resultMaxBytes);
      this.markSettling(); // before anything is sent: from here on only the row knows
      await settleWith(client, this.#identity, rendered.bytes, this.#deps.schema);
    };
  }

  /** True once the handler called `settleWith`: the row may say already how the attempt ended. */
  get mayBeSettled(): boolean {
    return this.#mayBeSettled;
  }

  /** The handler calls `settleWith`, here or in its thread. */
  markSettling(): void {
    this.#mayBeSettled = true;
    this.#deps.onSettleWith?.();
  }

  get progress(): TaskContext['progress'] {
    return (fraction, step, message) => {
      if (this.#hasEnded || typeof fraction !== 'number' || Number.isNaN(fraction)) return;
      this.#deps.onProgress(this.taskId, this.attempt, {
        fraction: Math.min(Math.max(fraction, 0), 1),
        step: step === undefined ? undefined : storableText(step, LONGEST_STEP),
        message: message === undefined ? undefined : storableText(message, LONGEST_MESSAGE),
      });
    };
  }

  get breaker(): TaskContext['breaker'] {
    return (name, fn) => this.#deps.breakers.run(name, fn, this.signal);
  }

  get tempDir(): TaskContext['tempDir'] {
    return () => (this.#tempDir ??= this.#deps.tempDirs.make());
  }

  get saveFile(): TaskContext['saveFile'] {
    return async (source, description) => {
      if (this.#files >= MOST_FILES) {
        throw new WarrenError('field-invalid', {
          field: 'source',
          reason: `an attempt saves ${MOST_FILES} files at most`,
        });
      }
      this.#files += 1;
      return await this.#save({ kind: 'saved', source, description });
    };
  }

  /** Stores a result that is too large for the row. Throws as `saveFile`. */
  async saveResult(bytes: Buffer): Promise<void> {
    await this.#save({ kind: 'result', source: bytes, description: RESULT });
  }

  get defer(): TaskContext['defer'] {
    return (delayMs) => {
      throw new Deferred(delayMs);
    };
  }

  /** Aborts the signal, also one that is first looked at later. */
  abort(reason: Error): void {
    this.#abortedWith ??= reason;
    this.#controller?.abort(reason);
    this.#saving?.abort(this.#abortedWith);
  }

  /** The attempt is settled without whatever its handler still does. Gives the lines that it logged, `undefined` for none. */
  close(): KeptLines | undefined {
    this.#isClosed = true;
    return this.#lines?.close();
  }

  /** The attempt is over: progress is no longer heard, the directory goes. A promise only where there is something to wait for. */
  end(): Promise<void> | undefined {
    this.#hasEnded = true;
    if (this.#saving !== undefined) this.#saving.abort(new WarrenError('file-unsaved'));
    const made = this.#tempDir;
    if (made === undefined) return undefined;
    return made.then(
      (path) => this.#deps.tempDirs.remove(path),
      () => undefined, // it could not be made, which the handler was told
    );
  }

  async #save(file: Pick<FileToSave, 'kind' | 'source' | 'description'>): Promise<FileReference> {
    if (this.#hasEnded) throw new WarrenError('file-unsaved');
    this.#saving ??= new AbortController();
    if (this.#abortedWith !== undefined) this.#saving.abort(this.#abortedWith);
    const { taskId, attempt } = this;
    return await this.#deps.saveFile({ ...file, taskId, attempt, signal: this.#saving.signal });
  }
}
