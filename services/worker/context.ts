/** What a handler gets for one attempt. Made for each, so whatever costs is made at its first use. */
import type { TaskContext, TaskType } from '../../shared/tasks/define-task.ts';
import { Deferred } from '../../shared/tasks/handler-errors.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import { storableText } from '../../shared/tasks/outcome.ts';
import type { Logger } from '../../shared/observability/log.ts';

/** What contexts stand on; in a thread these speak to the main thread. */
export interface ContextDeps {
  readonly log: Logger;
  readonly breakers: {
    run<T>(name: string, fn: (signal: AbortSignal) => Promise<T>, outer?: AbortSignal): Promise<T>;
  };
  readonly tempDirs: { make(): Promise<string>; remove(path: string): Promise<void> };
  /** Called at most once per `progress` call; `fraction` is 0 to 1. */
  readonly onProgress: (taskId: TaskId, attempt: number, fraction: number, step: string | undefined) => void;
}

const LONGEST_STEP = 200;

/** The context of one attempt. Its functions may be taken off it (`{ progress }`): each is bound when it is read. */
export class AttemptContext implements TaskContext {
  readonly taskId: TaskId;
  readonly attempt: number;
  readonly #deps: ContextDeps;
  readonly #taskType: string;
  #controller: AbortController | undefined;
  #abortedWith: Error | undefined;
  #log: Logger | undefined;
  #tempDir: Promise<string> | undefined;
  #hasEnded = false;

  constructor(deps: ContextDeps, type: TaskType, taskId: TaskId, attempt: number) {
    this.#deps = deps;
    this.#taskType = type.name;
    this.taskId = taskId;
    this.attempt = attempt;
  }

  get fencingToken(): number {
    return this.attempt;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#abortedWith !== undefined) this.#controller.abort(this.#abortedWith);
    }
    return this.#controller.signal;
  }

  get log(): Logger {
    this.#log ??= this.#deps.log.child({ taskId: this.taskId, taskType: this.#taskType, attempt: this.attempt });
    return this.#log;
  }

  get progress(): TaskContext['progress'] {
    return (fraction, step) => {
      if (this.#hasEnded || typeof fraction !== 'number' || Number.isNaN(fraction)) return;
      const shown = step === undefined ? undefined : storableText(step, LONGEST_STEP);
      this.#deps.onProgress(this.taskId, this.attempt, Math.min(Math.max(fraction, 0), 1), shown);
    };
  }

  get breaker(): TaskContext['breaker'] {
    return (name, fn) => this.#deps.breakers.run(name, fn, this.signal);
  }

  get tempDir(): TaskContext['tempDir'] {
    return () => (this.#tempDir ??= this.#deps.tempDirs.make());
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
  }

  /** The attempt is over: progress is no longer heard, the directory goes. A promise only where there is something to wait for. */
  end(): Promise<void> | undefined {
    this.#hasEnded = true;
    const made = this.#tempDir;
    if (made === undefined) return undefined;
    return made.then(
      (path) => this.#deps.tempDirs.remove(path),
      () => undefined, // it could not be made, which the handler was told
    );
  }
}
