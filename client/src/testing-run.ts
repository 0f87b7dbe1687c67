/** Runs a task type inline, as a worker would: schema, handler, result as JSON; with a context that keeps what the handler said. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { renderInput } from './input.ts';
import type { TaskTypeLike } from './task-type.ts';
import { givenResults } from './testing-results.ts';
import { checkBySchema } from './testing-schema.ts';

/** How an attempt is run. */
export interface RunOptions {
  /** Number of the attempt, from 1. Default 1. */
  readonly attempt?: number;
  readonly taskId?: string;
  /** Where the attempt stands in a trace, as `ctx.traceparent` says it. */
  readonly traceparent?: string;
  /** Aborts the handler's signal, as a timeout or a cancel does. */
  readonly signal?: AbortSignal;
  /** Circuit breakers that are open: calls behind them defer the task. */
  readonly openBreakers?: readonly string[];
  /** Side effects that earlier attempts have done, by key, with their results: `ctx.once` gives these and does not do them again. */
  readonly done?: Readonly<Record<string, unknown>>;
  /** Steps that earlier attempts have added: `ctx.addStep` finds these. */
  readonly added?: readonly AddedStep[];
  /**
   * What other steps of the flow gave, by their names: `ctx.stepResults` gives these. Of a single step a list of one; null, or undefined, for a member
   * that gave nothing.
   */
  readonly results?: Readonly<Record<string, readonly unknown[]>>;
}

/** A step, or a group of them, that a handler added to its flow. */
export interface AddedStep {
  readonly name: string;
  readonly type: string;
  /** As the handlers would read them: written as JSON, and read back. Of a single step one; none where it gets what the adding step gave. */
  readonly inputs: readonly unknown[];
  readonly isGroup: boolean;
  /** What else was said: queue, priority, maxAttempts, delayMs, onFailure, after. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** A file that a handler saved. */
export interface SavedFile {
  readonly name: string;
  readonly contentType: string;
  readonly bytes: Uint8Array;
}

/** A line that a handler logged. */
export interface LogLine {
  readonly level: 'error' | 'warn' | 'info' | 'debug';
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** What came of the attempt. */
export type TaskRun<Result = unknown> = (
  | { readonly outcome: 'succeeded'; readonly result: Result }
  | { readonly outcome: 'failed'; readonly error: unknown; readonly retryable: boolean; readonly retryAfterMs?: number }
  | { readonly outcome: 'deferred'; readonly delayMs: number }
) & {
  readonly progress: readonly ProgressWord[];
  readonly log: readonly LogLine[];
  /** Names of the breakers behind which something was called. */
  readonly breakers: readonly string[];
  /** What `ctx.once` has kept, by key, that of earlier attempts included. */
  readonly done: Readonly<Record<string, unknown>>;
  /** Steps that were added, in order, those of earlier attempts included. */
  readonly added: readonly AddedStep[];
  /** Files, by the id in the reference that the handler got. */
  readonly files: Readonly<Record<string, SavedFile>>;
};

/** What a handler said of how far it is. */
export interface ProgressWord {
  readonly fraction: number;
  readonly step: string | undefined;
  readonly message: string | undefined;
}

/** A deferral is recognised by its name, as in a worker. */
class Deferred extends Error {
  override readonly name = 'Deferred';
  readonly delayMs: number;

  constructor(delayMs: number) {
    super('deferred');
    this.delayMs = Math.round(Math.min(Math.max(delayMs, SHORTEST_DEFERRAL_MS), LONGEST_DEFERRAL_MS));
  }
}

const SHORTEST_DEFERRAL_MS = 100;
const LONGEST_DEFERRAL_MS = 2_592_000_000;
const BREAKER_DEFERRAL_MS = 1_000;

/**
 * Runs one attempt of a task type. The input goes through JSON and the schema, the result through JSON. What the handler throws is
 * an outcome; `retryable` says whether a worker might try again, by the error alone, not by the policy of the type. Throws
 * `InputRefusedError` for an input that cannot be sent. The temporary directory is removed at the end.
 */
export async function runTask<Input extends object, Result>(
  type: TaskTypeLike<Input, Result>,
  input: Input,
  options: RunOptions = {},
): Promise<TaskRun<Awaited<Result>>> {
  const context = new FakeContext(options);
  const said = {
    progress: context.said,
    log: context.lines,
    breakers: context.used,
    done: context.done,
    files: context.files,
    added: context.added,
  };
  const checked = await checkBySchema(type, JSON.parse(renderInput(input)));
  if (checked.kind === 'refused') {
    return { outcome: 'failed', error: new TypeError(`${checked.field} ${checked.reason}`), retryable: false, ...said };
  }
  try {
    const returned: unknown = await type.run(checked.value as never, context as never);
    // What was settled inside the handler's transaction is the result, whatever is returned after it.
    const result = context.settled === undefined ? returned : context.settled.result;
    const written = result === undefined ? undefined : JSON.stringify(result);
    return { outcome: 'succeeded', result: readBack<Awaited<Result>>(written), ...said };
  } catch (thrown) {
    return { ...outcomeOf(thrown), ...said };
  } finally {
    await context.end();
  }
}

function readBack<Result>(written: string | undefined): Result {
  return (written === undefined ? undefined : JSON.parse(written)) as Result;
}

type Thrown =
  | { readonly outcome: 'failed'; readonly error: unknown; readonly retryable: boolean; readonly retryAfterMs?: number }
  | { readonly outcome: 'deferred'; readonly delayMs: number };

function outcomeOf(thrown: unknown): Thrown {
  const { name, delayMs } = (typeof thrown === 'object' && thrown !== null ? thrown : {}) as Readonly<
    Record<string, unknown>
  >;
  if (name === 'Deferred' && typeof delayMs === 'number') return { outcome: 'deferred', delayMs };
  if (name === 'NonRetryable') return { outcome: 'failed', error: thrown, retryable: false };
  const retryAfter = name === 'RetryAfter' && typeof delayMs === 'number' ? { retryAfterMs: delayMs } : {};
  return { outcome: 'failed', error: thrown, retryable: true, ...retryAfter };
}

/** What a handler gets in a test: the members of `TaskContext`. Each function may be taken off it. */
class FakeContext {
  readonly taskId: string;
  readonly attempt: number;
  readonly fencingToken: number;
  readonly traceparent: string | undefined;
  readonly signal: AbortSignal;
  readonly said: ProgressWord[] = [];
  readonly lines: LogLine[] = [];
  readonly used: string[] = [];
  readonly done: Record<string, unknown>;
  readonly files: Record<string, SavedFile> = {};
  readonly added: AddedStep[];
  settled: { readonly result: unknown } | undefined;
  readonly #running = new Map<string, Promise<unknown>>();
  readonly log: Logger;
  readonly #openBreakers: readonly string[];
  readonly #results: Readonly<Record<string, readonly unknown[]>>;
  #dir: Promise<string> | undefined;

  constructor({
    attempt = 1,
    taskId = '00000000-0000-7000-8000-000000000001',
    traceparent,
    signal,
    openBreakers = [],
    done = {},
    added = [],
    results = {},
  }: RunOptions) {
    this.#results = results;
    this.added = [...added];
    this.done = { ...done };
    this.taskId = taskId;
    this.attempt = attempt;
    this.fencingToken = attempt;
    this.traceparent = traceparent;
    this.signal = signal ?? new AbortController().signal;
    this.log = loggerInto(this.lines);
    this.#openBreakers = openBreakers;
  }

  readonly progress = (fraction: number, step?: string, message?: string): void => {
    if (typeof fraction !== 'number' || Number.isNaN(fraction)) return;
    this.said.push({ fraction: Math.min(Math.max(fraction, 0), 1), step, message });
  };

  /** A result is given as JSON keeps it, from the first call on; concurrent calls share one run. */
  readonly once = async (key: string, fn: () => unknown): Promise<unknown> => {
    if (typeof key !== 'string' || key === '') throw new TypeError('ctx.once takes a key of 1 to 200 characters');
    if (Object.hasOwn(this.done, key)) return this.done[key];
    const running = this.#running.get(key) ?? this.#do(key, fn);
    this.#running.set(key, running);
    try {
      return await running;
    } finally {
      this.#running.delete(key);
    }
  };

  async #do(key: string, fn: () => unknown): Promise<unknown> {
    const value = await fn();
    this.done[key] = value === undefined ? undefined : (JSON.parse(JSON.stringify(value)) as unknown);
    return this.done[key];
  }

  /** A step is added once; the same again is found, and other content under its name is refused. */
  readonly addStep = async (
    name: string,
    { type, input, inputs, ...options }: NewStep,
  ): Promise<{ taskIds: readonly string[]; duplicate: boolean }> => {
    await Promise.resolve();
    if (input !== undefined && inputs !== undefined)
      throw new TypeError('inputs must not be given together with input');
    const given = inputs ?? (input === undefined ? [] : [input]);
    const field = (index: number): string => (inputs === undefined ? 'input' : `inputs[${index}]`);
    const step: AddedStep = {
      name,
      type,
      inputs: given.map((each, index) => JSON.parse(renderInput(each, field(index))) as unknown),
      isGroup: inputs !== undefined,
      options: JSON.parse(JSON.stringify(options)) as AddedStep['options'],
    };
    const before = this.added.find((each) => each.name === name);
    if (before !== undefined && !isDeepStrictEqual(before, step)) {
      throw new TypeError(`step ${name} was added before with other content`);
    }
    if (before === undefined) this.added.push(step);
    const taskIds = (step.isGroup ? given : [input]).map((_each, index) => `${name}-${index}`);
    return { taskIds, duplicate: before !== undefined };
  };

  readonly stepResults = (name: string, options: { readonly path?: string } = {}): AsyncIterable<unknown> =>
    givenResults(this.#results, name, options.path);

  /** The transaction is the handler's: here it is not looked at. */
  readonly settleWith = async (_client: unknown, result?: unknown): Promise<void> => {
    if (this.settled !== undefined) throw new TypeError('the attempt was settled before');
    this.settled = { result };
    await Promise.resolve();
  };

  /** A path, bytes, or a stream of bytes. */
  readonly saveFile = async (
    source: string | Uint8Array | AsyncIterable<Uint8Array>,
    { name, contentType = 'application/octet-stream' }: { readonly name: string; readonly contentType?: string },
  ): Promise<{ $file: string; name: string; contentType: string; bytes: number }> => {
    const bytes = await bytesOf(source);
    const id = `00000000-0000-7000-8000-${String(Object.keys(this.files).length + 1).padStart(12, '0')}`;
    this.files[id] = { name, contentType, bytes };
    return { $file: id, name, contentType, bytes: bytes.length };
  };

  readonly breaker = async <T>(name: string, fn: (signal: AbortSignal) => Promise<T>): Promise<T> => {
    this.used.push(name);
    if (this.#openBreakers.includes(name)) throw new Deferred(BREAKER_DEFERRAL_MS);
    return await fn(this.signal);
  };

  readonly tempDir = (): Promise<string> => (this.#dir ??= mkdtemp(join(tmpdir(), 'warren-test-')));

  readonly defer = (delayMs: number): never => {
    throw new Deferred(delayMs);
  };

  async end(): Promise<void> {
    if (this.#dir !== undefined) await rm(await this.#dir, { recursive: true, force: true });
  }
}

interface NewStep extends Readonly<Record<string, unknown>> {
  readonly type: string;
  readonly input?: object;
  readonly inputs?: readonly object[];
}

async function bytesOf(source: string | Uint8Array | AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  if (typeof source === 'string') return await readFile(source);
  if (ArrayBuffer.isView(source)) return source;
  const chunks: Uint8Array[] = [];
  for await (const chunk of source) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

interface Logger {
  readonly error: LogFn;
  readonly warn: LogFn;
  readonly info: LogFn;
  readonly debug: LogFn;
  readonly isDebug: boolean;
  child(fields: Readonly<Record<string, unknown>>): Logger;
}
type LogFn = (message: string, fields?: Readonly<Record<string, unknown>>) => void;

function loggerInto(lines: LogLine[], bound: Readonly<Record<string, unknown>> = {}): Logger {
  const at =
    (level: LogLine['level']): LogFn =>
    (message, fields = {}) => {
      lines.push({ level, message, fields: { ...bound, ...fields } });
    };
  return {
    error: at('error'),
    warn: at('warn'),
    info: at('info'),
    debug: at('debug'),
    isDebug: true,
    child: (fields) => loggerInto(lines, { ...bound, ...fields }),
  };
}
