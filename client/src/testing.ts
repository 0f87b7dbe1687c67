/** For tests of services and of task types: runs a type inline, and tells what was enqueued. Needs no server. */
import { InputRefusedError, ProblemError } from './errors.ts';
import { renderInput } from './input.ts';
import { membersOf } from './options.ts';
import type { EnqueueOptions, SubmissionMembers } from './options.ts';
import { resultOf } from './task.ts';
import type { Task } from './task.ts';
import { nameOf } from './task-type.ts';
import type { Enqueued, TaskRef, TaskTypeLike, TypeOrName } from './task-type.ts';
import type { EnqueuedOrRefused, EnqueueManyOptions, NewTask } from './http-client.ts';
import { checkBySchema } from './testing-schema.ts';

export { runTask } from './testing-run.ts';
export type { AddedStep, LogLine, ProgressWord, RunOptions, SavedFile, TaskRun } from './testing-run.ts';

/** A task that was enqueued in a test. */
export interface EnqueuedTask<Input = unknown> {
  readonly id: string;
  readonly type: string;
  /** As the handler would read it: written as JSON, and read back. */
  readonly input: Input;
  readonly options: SubmissionMembers & { readonly idempotencyKey?: string };
}

/** Stands in for any client in a test of whatever enqueues. Keeps what was enqueued. */
export class TestClient {
  readonly #tasks: EnqueuedTask[] = [];
  readonly #byKey = new Map<string, EnqueuedTask>();
  readonly #ended = new Map<string, Partial<Task>>();

  /** What was enqueued, in order; of one type where one is given. */
  enqueued<Input = unknown>(type?: TypeOrName<Input>): readonly EnqueuedTask<Input>[] {
    const tasks = type === undefined ? this.#tasks : this.#tasks.filter((task) => task.type === nameOf(type));
    return tasks as readonly EnqueuedTask<Input>[];
  }

  /** Forgets all that was enqueued. */
  clear(): void {
    this.#tasks.length = 0;
    this.#byKey.clear();
    this.#ended.clear();
  }

  /** Lets `result` of a task give this. */
  succeed<Result>(id: TaskRef<Result>, result: Result): void {
    this.#ended.set(id, { state: 'succeeded', result });
  }

  /** Lets `result` of a task throw as for one that died of an error. */
  fail(id: string, message: string): void {
    const at = new Date(0).toISOString();
    const attempt = {
      attempt: 1,
      worker: id,
      startedAt: at,
      finishedAt: at,
      outcome: 'failed' as const,
      error: { message },
    };
    this.#ended.set(id, { state: 'dead', attempts: [attempt] });
  }

  /** As `enqueue` of the real clients: refuses the same inputs, and what the schema of the type refuses. */
  async enqueue<Input extends object, Result = unknown>(
    type: TypeOrName<Input, Result>,
    input: Input,
    options: EnqueueOptions = {},
  ): Promise<Enqueued<Result>> {
    options.signal?.throwIfAborted();
    const read = JSON.parse(renderInput(input)) as unknown;
    const members = membersOf(options);
    if (typeof type !== 'string') await refuseBySchema(type, read);
    const { idempotencyKey } = options;
    const key = holdOf(nameOf(type), members, idempotencyKey);
    const before = key === undefined ? undefined : this.#byKey.get(key);
    if (before !== undefined) return this.#answerWith(before, members, read);
    const task: EnqueuedTask = {
      id: idOf(this.#tasks.length),
      type: nameOf(type),
      input: read,
      options: { ...members, ...(idempotencyKey === undefined ? {} : { idempotencyKey }) },
    };
    this.#tasks.push(task);
    if (key !== undefined) this.#byKey.set(key, task);
    return { id: task.id, duplicate: false };
  }

  /** As of the client over HTTP. */
  async enqueueMany(
    tasks: readonly NewTask[],
    options: EnqueueManyOptions = {},
  ): Promise<readonly EnqueuedOrRefused[]> {
    options.signal?.throwIfAborted();
    const results: EnqueuedOrRefused[] = [];
    for (const { type, input, options: asked = {} } of tasks) {
      try {
        results.push({ kind: 'enqueued', ...(await this.enqueue(type as TypeOrName<object>, input, asked)) });
      } catch (thrown) {
        if (!isProblem(thrown)) throw thrown;
        results.push({ kind: 'refused', error: thrown });
      }
    }
    return results;
  }

  /** As `enqueueIn`; the transaction is not looked at. */
  async enqueueIn<Input extends object, Result = unknown>(
    _pg: unknown,
    type: TypeOrName<Input, Result>,
    input: Input,
    options: EnqueueOptions = {},
  ): Promise<Enqueued<Result>> {
    return await this.enqueue(type, input, options);
  }

  /** What `succeed` or `fail` said. Throws for a task of which neither did: nothing runs here by itself. */
  async result<Result = unknown>(id: TaskRef<Result> | string): Promise<Result> {
    await Promise.resolve();
    const ended = this.#ended.get(id);
    if (ended === undefined) throw new TypeError(`say what becomes of task ${id} first: client.succeed(id, result)`);
    return resultOf({ id, attempts: [], ...ended } as unknown as Task<Result>);
  }

  async close(): Promise<void> {
    await Promise.resolve();
  }

  #answerWith(before: EnqueuedTask, { unique, debounce }: SubmissionMembers, input: unknown): Enqueued<never> {
    if (unique?.onConflict === 'reject') {
      const reason = `is held by task ${before.id}`;
      throw new ProblemError({
        type: 'unique-conflict',
        title: 'Another task of this type holds the unique key.',
        status: 409,
        field: 'unique.key',
        reason,
      });
    }
    if (unique?.onConflict === 'replace' || debounce !== undefined) {
      const at = this.#tasks.findIndex(({ id }) => id === before.id);
      this.#tasks[at] = { ...before, input };
    }
    return { id: before.id, duplicate: true };
  }
}

/** Makes a client for a test. */
export function createTestClient(): TestClient {
  return new TestClient();
}

async function refuseBySchema(type: TaskTypeLike, input: unknown): Promise<void> {
  const checked = await checkBySchema(type, input);
  if (checked.kind === 'ok') return;
  const { field, reason } = checked;
  throw new ProblemError({
    type: 'input-invalid',
    title: 'The input does not fit the input schema of its task type.',
    status: 422,
    field,
    reason,
  });
}

function isProblem(thrown: unknown): thrown is ProblemError {
  return (thrown as { readonly name?: unknown }).name === 'ProblemError';
}

/** Under what a second call is the same task: no task ends by itself here, so keys are held for ever. */
function holdOf(
  type: string,
  { unique, throttle, debounce }: SubmissionMembers,
  idempotencyKey: string | undefined,
): string | undefined {
  if (unique !== undefined && throttle !== undefined) {
    throw new InputRefusedError('throttle', 'must not be given together with unique', 'field-invalid');
  }
  if (idempotencyKey !== undefined) return JSON.stringify(['idempotency', idempotencyKey]);
  const key = (unique ?? throttle ?? debounce)?.key;
  return key === undefined ? undefined : JSON.stringify(['unique', type, key]);
}

/** Ids that are the same in every run of a test. */
function idOf(index: number): string {
  return `00000000-0000-7000-8000-${String(index + 1).padStart(12, '0')}`;
}
