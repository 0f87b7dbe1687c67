/** The client that speaks HTTP: it submits, looks, waits and cancels. */
import { ProblemError, WaitTimeoutError } from './errors.ts';
import type { Problem } from './errors.ts';
import { HttpTransport } from './http-transport.ts';
import type { HttpOptions } from './http-transport.ts';
import { renderInput } from './input.ts';
import { membersOf, renderBody } from './options.ts';
import type { CallOptions, EnqueueOptions, SubmissionOptions } from './options.ts';
import { FlowClient } from './flow-client.ts';
import { quoteKey } from './quote-key.ts';
import { hasEnded, resultOf } from './task.ts';
import type { Task } from './task.ts';
import { nameOf } from './task-type.ts';
import type { Enqueued, TaskRef, TypeOrName } from './task-type.ts';
import { startLimit } from './time.ts';
import { traceOf } from './trace.ts';
import type { TraceOptions } from './trace.ts';
import type { ClientDeps } from './time.ts';
import { InputRefusedError } from './errors.ts';

/** One task of `enqueueMany`. An idempotency key is given for all together. */
export interface NewTask {
  readonly type: TypeOrName;
  readonly input: object;
  readonly options?: Omit<SubmissionOptions, 'idempotencyKey'>;
}

/** Options of `enqueueMany`. */
export interface EnqueueManyOptions extends CallOptions, TraceOptions {
  /** Let the tasks start spread evenly over so many milliseconds. */
  readonly spreadMs?: number;
  /** The same call under the same key within seven days makes each task once. Default: a new key each call. */
  readonly idempotencyKey?: string;
}

/** What became of one task of `enqueueMany`. */
export type EnqueuedOrRefused =
  | ({ readonly kind: 'enqueued' } & Enqueued)
  | { readonly kind: 'refused'; readonly error: ProblemError };

/** Options of `result`. */
export interface ResultOptions extends CallOptions {
  /** Milliseconds to wait for the end of the task. Default 60 000. */
  readonly timeoutMs?: number;
}

/** What a cancel came to. */
export interface Cancelled {
  readonly id: string;
  /** `running`: its worker was asked to abort it. */
  readonly state: 'cancelled' | 'running';
}

const WAIT_TIMEOUT_MS = 60_000;
const FIRST_POLL_MS = 50;
const LONGEST_POLL_MS = 1_000;
/** Seconds for which the service is asked to hold a question: less than one try may take. */
const MOST_HELD_SECONDS = 10;
/** Milliseconds from which an answer counts as held: a service that answers at once must not be asked at once again. */
const HELD_MS = 900;
/** Milliseconds for reading a large result, however little is left of the wait. */
const FILE_TIMEOUT_MS = 10_000;
/** Tasks of one request, and characters of their bodies: half of what a service takes by default. */
const MOST_IN_BATCH = 1_000;
const BATCH_CHARACTERS = 2_097_152;

/** Speaks to the Task API. */
export class HttpClient {
  readonly #deps: ClientDeps;
  readonly #transport: HttpTransport;
  /** Flows. */
  readonly flows: FlowClient;

  constructor(deps: ClientDeps, options: HttpOptions) {
    this.#deps = deps;
    this.#transport = new HttpTransport(deps, options);
    this.flows = new FlowClient(deps, this.#transport);
  }

  /**
   * Submits a task; when it resolves, the task is committed. Sent again by itself until it is answered, under a key, so that there
   * is one task. Throws `InputRefusedError` before anything is sent, `ProblemError`, `UnreachableError`.
   */
  async enqueue<Input extends object, Result = unknown>(
    type: TypeOrName<Input, Result>,
    input: Input,
    options: EnqueueOptions = {},
  ): Promise<Enqueued<Result>> {
    const body = renderBody(nameOf(type), renderInput(input), membersOf(options));
    const key = quoteKey(options.idempotencyKey ?? this.#deps.newKey());
    const headers = { 'idempotency-key': key, ...(await traceOf(options)) };
    const answer = await this.#transport.send({ method: 'POST', path: '/v1/tasks', body, headers }, options);
    return enqueuedOf(answer.value, answer.headers.get('idempotent-replayed') === 'true' && answer.tries === 1);
  }

  /**
   * Submits any number of tasks, in requests of at most a thousand, one after the other. Each is judged by itself: what was refused
   * is a value, in the order of the tasks. Throws as `enqueue` where nobody answered; what was accepted by then stays.
   */
  async enqueueMany(
    tasks: readonly NewTask[],
    options: EnqueueManyOptions = {},
  ): Promise<readonly EnqueuedOrRefused[]> {
    const { spreadMs, idempotencyKey, traceparent: _parent, tracestate: _state, ...call } = options;
    const trace = await traceOf(options);
    const bodies = tasks.map(({ type, input, options: asked = {} }, index) => {
      if ('idempotencyKey' in asked) {
        throw new InputRefusedError(
          `tasks[${index}].options.idempotencyKey`,
          'is given for all tasks together',
          'field-invalid',
        );
      }
      return renderBody(nameOf(type), renderInput(input, `tasks[${index}].input`), membersOf(asked));
    });
    const key = idempotencyKey ?? this.#deps.newKey();
    const results: EnqueuedOrRefused[] = [];
    for (const [index, batch] of batchesOf(bodies).entries()) {
      const spread = spreadMs === undefined ? '' : `,"spreadMs":${JSON.stringify(spreadMs)}`;
      const body = `{"tasks":[${batch.join(',')}]${spread}}`;
      const headers = { 'idempotency-key': quoteKey(`${key}/${index}`), ...trace };
      const answer = await this.#transport.send({ method: 'POST', path: '/v1/tasks/batch', body, headers }, call);
      for (const result of answer.value['results'] as readonly BatchResult[]) results.push(resultOfItem(result));
    }
    return results;
  }

  /** A task as it is now. Throws `ProblemError` (`task-not-found`), `UnreachableError`. */
  async task<Result = unknown>(id: TaskRef<Result> | string, options: CallOptions = {}): Promise<Task<Result>> {
    return (await this.#look<Result>(id, options)).task;
  }

  /**
   * Waits for the result. The service holds each question until the task has ended, for seconds at most; where it does not, it is
   * asked again when it says (`Retry-After`), else in growing steps up to a second. Throws `TaskDeadError`, `TaskCancelledError`, `TaskExpiredError`, and `WaitTimeoutError` where the task goes on.
   */
  async result<Result = unknown>(id: TaskRef<Result> | string, options: ResultOptions = {}): Promise<Result> {
    const { signal, timeoutMs = WAIT_TIMEOUT_MS } = options;
    const limit = startLimit(this.#deps, timeoutMs, signal);
    let pollMs = FIRST_POLL_MS;
    let state: string | undefined;
    try {
      for (;;) {
        const look = await this.#lookWithin<Result>(id, limit.leftMs(), signal);
        if (look !== undefined && hasEnded(look.task)) return await this.#resultOf(look.task, limit.leftMs(), signal);
        state = look?.task.state ?? state;
        if (look === undefined || limit.leftMs() === 0) throw new WaitTimeoutError(id, timeoutMs, state);
        const pauseMs = look.hasWaited ? 0 : (look.retryAfterMs ?? pollMs);
        await this.#deps.sleep(Math.min(pauseMs, limit.leftMs()), limit.signal);
        signal?.throwIfAborted();
        pollMs = Math.min(pollMs * 1.5, LONGEST_POLL_MS);
      }
    } finally {
      limit.end();
    }
  }

  /**
   * Cancels a task: at once where it waits, by aborting its attempt where it runs. Throws `ProblemError` (`task-finished`,
   * `task-not-found`).
   */
  async cancel(id: string, options: CallOptions & { readonly reason?: string } = {}): Promise<Cancelled> {
    const { reason, ...call } = options;
    const path = `${pathOf(id)}/cancel`;
    const body = JSON.stringify(reason === undefined ? {} : { reason });
    try {
      const answer = await this.#transport.send({ method: 'POST', path, body }, call);
      return { id, state: answer.value['state'] as Cancelled['state'] };
    } catch (thrown) {
      // The first try may have cancelled it, and its answer got lost.
      if (!isFinished(thrown)) throw thrown;
      if ((await this.task(id, call)).state !== 'cancelled') throw thrown;
      return { id, state: 'cancelled' };
    }
  }

  /** Nothing is held open. */
  async close(): Promise<void> {
    await Promise.resolve();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #look<Result>(id: string, options: CallOptions, waitSeconds = 0): Promise<Look<Result>> {
    const askedMs = this.#deps.monotonicMs();
    const headers = waitSeconds > 0 ? { prefer: `wait=${waitSeconds}` } : {};
    const answer = await this.#transport.send({ method: 'GET', path: pathOf(id), headers }, options);
    const seconds = Number(answer.headers.get('retry-after') ?? Number.NaN);
    return {
      task: answer.value as unknown as Task<Result>,
      retryAfterMs: Number.isFinite(seconds) ? seconds * 1_000 : undefined,
      hasWaited: waitSeconds > 0 && this.#deps.monotonicMs() - askedMs > HELD_MS,
    };
  }

  /** `undefined` where nobody answered while the wait lasted. */
  async #lookWithin<Result>(
    id: string,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Look<Result> | undefined> {
    const waitSeconds = Math.min(MOST_HELD_SECONDS, Math.floor(timeoutMs / 1_000));
    try {
      return await this.#look<Result>(id, { timeoutMs, ...(signal === undefined ? {} : { signal }) }, waitSeconds);
    } catch (thrown) {
      signal?.throwIfAborted();
      if ((thrown as { readonly code?: unknown }).code === 'server-unreachable') return undefined;
      throw thrown;
    }
  }

  /** A result too large for the task itself is a file. */
  async #resultOf<Result>(task: Task<Result>, timeoutMs: number, signal: AbortSignal | undefined): Promise<Result> {
    const { resultFile } = task;
    if (task.state !== 'succeeded' || resultFile === undefined) return resultOf(task);
    const call = { timeoutMs: Math.max(timeoutMs, FILE_TIMEOUT_MS), ...(signal === undefined ? {} : { signal }) };
    const { value } = await this.#transport.send({ method: 'POST', path: resultFile.link, body: '{}' }, call);
    return JSON.parse(await this.#transport.download(String(value['path']), call)) as Result;
  }
}

interface Look<Result> {
  readonly task: Task<Result>;
  readonly retryAfterMs: number | undefined;
  /** True where the service held the question back until something happened, or its patience was over. */
  readonly hasWaited: boolean;
}

interface BatchResult {
  readonly status: number;
  readonly task?: Readonly<Record<string, unknown>>;
  readonly problem?: Problem;
}

function resultOfItem({ task, problem }: BatchResult): EnqueuedOrRefused {
  if (problem !== undefined) return { kind: 'refused', error: new ProblemError(problem) };
  return { kind: 'enqueued', ...enqueuedOf(task ?? {}, false) };
}

function enqueuedOf<Result>(task: Readonly<Record<string, unknown>>, isReplayed: boolean): Enqueued<Result> {
  return { id: String(task['id']), duplicate: isReplayed || task['duplicate'] === true };
}

/** Bodies in requests that a service takes. */
function batchesOf(bodies: readonly string[]): string[][] {
  const batches: string[][] = [];
  let size = Number.POSITIVE_INFINITY;
  for (const body of bodies) {
    const last = batches.at(-1);
    if (last === undefined || last.length >= MOST_IN_BATCH || size + body.length > BATCH_CHARACTERS) {
      batches.push([body]);
      size = body.length;
    } else {
      last.push(body);
      size += body.length;
    }
  }
  return batches;
}

function isFinished(thrown: unknown): boolean {
  return (thrown as { readonly code?: unknown }).code === 'task-finished';
}

function pathOf(id: string): string {
  return `/v1/tasks/${/^\.{1,2}$/.test(id) ? '-' : encodeURIComponent(id)}`;
}
