/** The client that accepts tasks in Postgres, without a Warren service between. */
import { enqueueIn, enqueueManyIn } from './enqueue-in.ts';
import type { PgQueryable, SchemaOptions } from './enqueue-in.ts';
import type { NewTask } from './http-client.ts';
import type { SubmissionOptions } from './options.ts';
import type { Enqueued, TypeOrName } from './task-type.ts';
import type { ClientDeps } from './time.ts';
import type { TraceOptions } from './trace.ts';

/** How Postgres is reached. */
export interface PoolOptions extends SchemaOptions {
  /** A pool of `pg`, of the caller, who ends it. */
  readonly pool: PgQueryable;
}

/** Speaks to Postgres. */
export class PoolClient {
  readonly #deps: ClientDeps;
  readonly #options: PoolOptions;

  constructor(deps: ClientDeps, options: PoolOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** Accepts a task in a transaction of its own. Throws `InputRefusedError`, `ProblemError`, and what the pool throws. */
  async enqueue<Input extends object, Result = unknown>(
    type: TypeOrName<Input, Result>,
    input: Input,
    options: SubmissionOptions & TraceOptions = {},
  ): Promise<Enqueued<Result>> {
    return await this.enqueueIn(this.#options.pool, type, input, options);
  }

  /** Accepts many in one transaction: all or none. `spreadMs`: their starts are spread evenly over so many milliseconds. */
  async enqueueMany(
    tasks: readonly (Omit<NewTask, 'options'> & { readonly options?: SubmissionOptions })[],
    options: TraceOptions & { readonly spreadMs?: number } = {},
  ): Promise<readonly Enqueued[]> {
    const { pool } = this.#options;
    return await enqueueManyIn(pool, tasks, { ...options, ...this.#schema(), random: this.#deps.random });
  }

  /** Accepts a task in the transaction that `pg` is in: see `enqueueIn`. */
  async enqueueIn<Input extends object, Result = unknown>(
    pg: PgQueryable,
    type: TypeOrName<Input, Result>,
    input: Input,
    options: SubmissionOptions & TraceOptions = {},
  ): Promise<Enqueued<Result>> {
    return await enqueueIn(pg, type, input, { ...options, ...this.#schema() });
  }

  /** The pool is the caller's. */
  async close(): Promise<void> {
    await Promise.resolve();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #schema(): SchemaOptions {
    return this.#options.schema === undefined ? {} : { schema: this.#options.schema };
  }
}
