/**
 * Threads for types with `isolation: 'thread'`, by piscina. One call a thread: what blocks, leaks or exits takes only its own
 * thread with it. Nothing is loaded or started before the first call.
 */
import { availableParallelism } from 'node:os';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { codeOf, toError } from '../../shared/errors/to-error.ts';
import { Bug, WarrenError, isWarrenError } from '../../shared/errors/warren-error.ts';
import type { FileDescription } from '../../shared/files/file-reference.ts';
import { NonRetryable } from '../../shared/tasks/handler-errors.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import type { AttemptContext } from './context.ts';
import type { AttemptProof } from './ask-until-answered.ts';
import type { OnceStore } from './once-store.ts';
import type { AttemptToRun, ThreadCallOptions, ThreadRun, Threads } from './run-handler.ts';
import type { StepAdder } from './step-adder.ts';
import type { StepReader } from './step-reader.ts';
import type { FromThread, ThreadCall, ToThread } from './thread-messages.ts';

/** What the pool needs. */
export interface ThreadPoolDeps {
  /** URL of the module that exports a type; see Registry. */
  readonly moduleOf: (taskType: string) => string | undefined;
  /** Where side effects are kept. */
  readonly once: OnceStore;
  /** Adds steps to flows. */
  readonly steps: StepAdder;
  /** Reads results of flows. */
  readonly stepReader: StepReader;
  /** Schema of Warren's tables. */
  readonly schema: string;
}

/** How threads run. */
export interface ThreadPoolOptions {
  /** Threads at once; further calls wait, and their timeout starts when they start. Default: the cores of the machine. */
  readonly maxThreads: number;
  /** Heap of a thread, in megabytes; beyond it the thread dies and its attempt fails. Default 512. */
  readonly maxHeapMegabytes: number;
  /** A thread without work ends after so long, in milliseconds. Default 30 000. */
  readonly idleTimeoutMs: number;
  /** Arguments of node for threads. Default: none, which gives them those of the process. */
  readonly execArgv: readonly string[];
}

/** The defaults. */
export const DEFAULT_THREADS: ThreadPoolOptions = {
  maxThreads: availableParallelism(),
  maxHeapMegabytes: 512,
  idleTimeoutMs: 30_000,
  execArgv: [],
};

interface Waiting {
  readonly begin: () => void;
}

/** The file that runs in each thread, beside this one, whether compiled or not. */
const THREAD_MAIN = new URL(`./thread-main.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, import.meta.url).href;

/** The threads of one worker. */
export class ThreadPool implements Threads {
  readonly #deps: ThreadPoolDeps;
  readonly #options: ThreadPoolOptions;
  readonly #waiting = new Set<Waiting>();
  #pool: Promise<Piscina> | undefined;
  #busy = 0;

  constructor(deps: ThreadPoolDeps, options: ThreadPoolOptions = DEFAULT_THREADS) {
    this.#deps = deps;
    this.#options = options;
  }

  /** Calls a handler in a thread, when one is free. */
  run(attempt: AttemptToRun, ctx: AttemptContext, call: ThreadCallOptions): ThreadRun {
    const killing = new AbortController();
    const channel = new MessageChannel();
    const speaker = new ThreadSpeaker(channel.port1, ctx, this.#deps, proofOf(attempt));
    return {
      outcome: this.#run(attempt, ctx, call, channel.port2, killing.signal).finally(() => speaker.close()),
      abort: (reason) => speaker.abort(reason),
      kill: () => killing.abort(),
    };
  }

  /** Ends all threads. Calls under way reject. */
  async stop(_deadlineMs: number): Promise<void> {
    const pool = await this.#pool;
    this.#pool = undefined;
    await pool?.destroy();
  }

  async #run(
    attempt: AttemptToRun,
    ctx: AttemptContext,
    call: ThreadCallOptions,
    port: MessagePort,
    killed: AbortSignal,
  ): Promise<Outcome> {
    const { type, taskId } = attempt;
    const module = this.#deps.moduleOf(type.name);
    if (module === undefined) throw new Bug(`no module is known for ${type.name}`);
    // piscina's own queue stalls when its last thread dies while calls wait, so none ever wait there
    await this.#whenFree(killed);
    try {
      const pool = await (this.#pool ??= this.#open());
      killed.throwIfAborted();
      call.onStart();
      const request: ThreadCall = {
        module,
        taskType: type.name,
        taskId,
        attempt: attempt.attempt,
        claimId: attempt.claimId,
        trace: attempt.trace,
        schema: this.#deps.schema,
        input: new Uint8Array(attempt.input), // a copy: of a view, the whole buffer below it would be sent
        resultMaxBytes: call.resultMaxBytes,
        isDebug: ctx.log.isDebug,
        port,
      };
      return restore((await pool.run(request, { transferList: [port], signal: killed })) as Outcome);
    } catch (thrown) {
      throw asLost(thrown, this.#options.maxHeapMegabytes) ?? thrown;
    } finally {
      this.#busy -= 1;
      const [next] = this.#waiting;
      if (this.#busy < this.#options.maxThreads) next?.begin();
    }
  }

  /** Takes a thread's place, at once or when one is given back. One killed while it waits takes a place more, and leaves. */
  async #whenFree(killed: AbortSignal): Promise<void> {
    if (this.#busy < this.#options.maxThreads) {
      this.#busy += 1;
      return;
    }
    await new Promise<void>((resolve) => {
      const waiting: Waiting = {
        begin: () => {
          this.#waiting.delete(waiting);
          killed.removeEventListener('abort', waiting.begin);
          this.#busy += 1;
          resolve();
        },
      };
      this.#waiting.add(waiting);
      killed.addEventListener('abort', waiting.begin);
    });
  }

  async #open(): Promise<Piscina> {
    const { Piscina } = await import('piscina');
    const { maxThreads, maxHeapMegabytes, idleTimeoutMs, execArgv } = this.#options;
    const pool = new Piscina({
      filename: THREAD_MAIN,
      name: 'runInThread',
      minThreads: 0,
      maxThreads,
      idleTimeout: idleTimeoutMs,
      concurrentTasksPerWorker: 1,
      atomics: 'disabled', // with them an idle thread cannot flush what it still has to say
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMegabytes },
      ...(execArgv.length === 0 ? {} : { execArgv: [...execArgv] }),
      recordTiming: false,
    });
    pool.on('error', () => undefined); // a thread died between calls; the next call starts another
    return pool;
  }
}

/** The worker's end of the port of one call: does for the handler what only this thread can. */
class ThreadSpeaker {
  readonly #port: MessagePort;
  readonly #ctx: AttemptContext;
  readonly #deps: Pick<ThreadPoolDeps, 'once' | 'steps' | 'stepReader'>;
  readonly #proof: AttemptProof;
  readonly #calls = new Map<number, (how: 'well' | 'failed' | 'left') => void>();
  /** What the failure of a call behind a breaker means for it. */
  readonly #meanings = new Map<number, Promise<ToThread>>();

  constructor(
    port: MessagePort,
    ctx: AttemptContext,
    deps: Pick<ThreadPoolDeps, 'once' | 'steps' | 'stepReader'>,
    proof: AttemptProof,
  ) {
    this.#port = port;
    this.#ctx = ctx;
    this.#deps = deps;
    this.#proof = proof;
    port.on('message', (message: FromThread) => this.#hear(message));
    port.unref();
  }

  abort(reason: Error): void {
    if (!isWarrenError(reason)) throw new Bug('a thread is aborted with a code');
    const { code, facts } = reason;
    if (code === 'attempt-timeout' || code === 'attempt-interrupted') this.#say({ kind: 'abort', code, facts });
  }

  /** Hears what was said before the end, then ends what the handler left open. */
  close(): void {
    for (let left = receiveMessageOnPort(this.#port); left !== undefined; left = receiveMessageOnPort(this.#port)) {
      this.#hear(left.message as FromThread);
    }
    this.#port.close();
    for (const end of this.#calls.values()) end('left');
  }

  #hear(message: FromThread): void {
    switch (message.kind) {
      case 'progress':
        this.#ctx.progress(message.fraction, message.step, message.message);
        return;
      case 'log':
        this.#ctx.log[message.level](message.message, message.fields as Record<string, unknown> | undefined);
        return;
      case 'tempDirAsked':
        void this.#tempDir(message.id);
        return;
      case 'onceAsked':
        void this.#ask(message.id, async (id) => {
          const answer = await this.#deps.once.ask(this.#proof, message.step, this.#ctx.signal);
          return { kind: 'onceAnswered', id, answer };
        });
        return;
      case 'stepAsked':
        void this.#ask(message.id, async (id) => {
          const added = await this.#deps.steps.add(this.#proof, message.asked, this.#ctx.signal);
          return { kind: 'stepAdded', id, added };
        });
        return;
      case 'resultsAsked':
        void this.#ask(message.id, async (id) => {
          const page = await this.#deps.stepReader.read(this.#proof, message.asked, this.#ctx.signal);
          return { kind: 'resultsRead', id, page };
        });
        return;
      case 'settlesWith':
        this.#ctx.markSettling();
        return;
      case 'saveAsked':
        void this.#save(message.id, message.path, message.description);
        return;
      case 'breakerAsked':
        this.#meanings.set(message.id, this.#breaker(message.id, message.name));
        return;
      case 'breakerCallEnded':
        void this.#endCall(message.id, message.failed);
    }
  }

  async #endCall(id: number, failed: boolean): Promise<void> {
    const meaning = this.#meanings.get(id);
    this.#meanings.delete(id);
    this.#calls.get(id)?.(failed ? 'failed' : 'well');
    if (failed && meaning !== undefined) this.#say(await meaning);
  }

  /** Never rejects. */
  async #ask(id: number, ask: (id: number) => Promise<ToThread>): Promise<void> {
    try {
      this.#say(await ask(id));
    } catch (thrown) {
      const { code, facts } = isWarrenError(thrown)
        ? thrown
        : new WarrenError('internal', { reason: toError(thrown).message });
      this.#say({ kind: 'askFailed', id, code, facts });
    }
  }

  async #tempDir(id: number): Promise<void> {
    try {
      this.#say({ kind: 'tempDir', id, path: await this.#ctx.tempDir(), reason: '' });
    } catch (thrown) {
      this.#say({ kind: 'tempDir', id, path: undefined, reason: toError(thrown).message });
    }
  }

  async #save(id: number, path: string, description: FileDescription): Promise<void> {
    try {
      this.#say({ kind: 'saved', id, reference: await this.#ctx.saveFile(path, description) });
    } catch (thrown) {
      const { message } = toError(thrown);
      const failure = isWarrenError(thrown)
        ? { code: thrown.code, facts: thrown.facts, message, errorCode: undefined }
        : { code: undefined, facts: {}, message, errorCode: codeOf(thrown) };
      this.#say({ kind: 'saveFailed', id, failure });
    }
  }

  /** The breaker is the process's, the call the thread's: what the breaker calls here waits for the call there. Never rejects. */
  async #breaker(id: number, name: string): Promise<ToThread> {
    let isLetThrough = false;
    try {
      await this.#ctx.breaker(name, async (signal) => {
        signal.addEventListener('abort', () => this.#say({ kind: 'breakerCallLate', id }));
        isLetThrough = true;
        this.#say({ kind: 'breakerLetThrough', id });
        const how = await new Promise<'well' | 'failed' | 'left'>((resolve) => this.#calls.set(id, resolve));
        if (how === 'failed') throw new WarrenError('internal', { breaker: name });
        // The attempt is over and its call was not: nobody knows how it ends, which is neither a failure nor a late success.
        if (how === 'left') throw new NonRetryable('the attempt ended before its call');
      });
    } catch (thrown) {
      if (isWarrenError(thrown, 'breaker-open')) {
        const refusal = { kind: 'breakerOpen', id, delayMs: Number(thrown.facts['delayMs']) } as const;
        if (isLetThrough) return refusal;
        this.#say(refusal);
        this.#meanings.delete(id); // nobody will ask
      }
    } finally {
      this.#calls.delete(id);
    }
    return { kind: 'breakerCallFailed', id }; // the thread knows how
  }

  #say(message: ToThread): void {
    this.#port.postMessage(message); // into a closed port: silently dropped
  }
}

/** A copy without the input and the type. */
function proofOf({ taskId, attempt, claimId, type, flowId, businessKey, trace }: AttemptToRun): AttemptProof {
  return { taskId, attempt, claimId, type: type.name, flowId, businessKey, trace };
}

/** What ended the thread, in the words of whoever reads the history; `undefined` where the handler's own error did. */
function asLost(thrown: unknown, maxHeapMegabytes: number): WarrenError | undefined {
  if (codeOf(thrown) === 'ERR_WORKER_OUT_OF_MEMORY') {
    return new WarrenError('thread-lost', { reason: 'out of memory', maxHeapMegabytes }, thrown);
  }
  // Source: piscina 5, ThreadPool.onWorkerExit.
  const [, code] = /^worker exited with code: (\d+)$/.exec(toError(thrown).message) ?? [];
  return code === undefined ? undefined : new WarrenError('thread-lost', { reason: `exited with ${code}` }, thrown);
}

/** Buffers arrive as plain Uint8Arrays. */
function restore(outcome: Outcome): Outcome {
  if (outcome.kind !== 'succeeded' || outcome.result === undefined) return outcome;
  const { buffer, byteOffset, length } = outcome.result;
  return { kind: 'succeeded', result: Buffer.from(buffer, byteOffset, length) };
}
