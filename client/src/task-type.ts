/** What the client needs to know of a task type: its name, and for the compiler what it takes and gives. */

/** A task type made by `defineTask`, as far as a submitter cares. */
export interface TaskTypeLike<Input = unknown, Result = unknown> {
  readonly name: string;
  /** A Standard Schema. */
  readonly input: {
    readonly '~standard': {
      readonly types?: { readonly input: Input; readonly output: unknown } | undefined;
    };
  };
  run(input: never, ctx: never): Promise<Result> | Result;
}

/** A task type, or its name where its code is not here. */
export type TypeOrName<Input = unknown, Result = unknown> = TaskTypeLike<Input, Result> | string;

/** The name of either. */
export function nameOf(type: TypeOrName): string {
  return typeof type === 'string' ? type : type.name;
}

/** A task that was accepted, or that was there before. `Result` is what its handler returns; nothing at run time. */
export interface Enqueued<Result = unknown> {
  readonly id: TaskRef<Result>;
  /** True where the task was there before: its unique key is held, or the idempotency key came before. */
  readonly duplicate: boolean;
}

declare const resultOf: unique symbol;
/** Id of a task that remembers for the compiler what the task gives: `result(id)` is typed by it. */
export type TaskRef<Result = unknown> = string & { readonly [resultOf]?: Result };
