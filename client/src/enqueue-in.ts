/**
 * Accepts tasks inside a transaction of the caller: the task and its invitation are committed with the caller's own data, or not at
 * all. The whole work is done by a function of the database, `warren.enqueue_task`, which callers in other languages call too.
 */
import { InputRefusedError, ProblemError } from './errors.ts';
import { renderInput } from './input.ts';
import { membersOf, spreadDelayMs } from './options.ts';
import type { EnqueueOptions, SubmissionOptions } from './options.ts';
import { nameOf } from './task-type.ts';
import type { Enqueued, TypeOrName } from './task-type.ts';
import type { NewTask } from './http-client.ts';
import { traceOf } from './trace.ts';
import type { TraceOptions } from './trace.ts';

/** Whatever sends a query to Postgres: a client, a pool or a checked-out client of `pg`. */
export interface PgQueryable {
  query(text: string, values: unknown[]): Promise<{ readonly rows: readonly unknown[] }>;
}

/** Where Warren's tables are. */
export interface SchemaOptions {
  /** Schema of the installation. Default `warren`. */
  readonly schema?: string;
}

/**
 * Accepts a task in the transaction that `pg` is in. It runs once the transaction has committed, and never where it was rolled
 * back. Throws `InputRefusedError` before anything is sent, and `ProblemError`, after which Postgres takes nothing more in this
 * transaction. The input's schema is checked by the worker alone.
 */
export async function enqueueIn<Input extends object, Result = unknown>(
  pg: PgQueryable,
  type: TypeOrName<Input, Result>,
  input: Input,
  options: SubmissionOptions & SchemaOptions & TraceOptions = {},
): Promise<Enqueued<Result>> {
  const { schema, ...asked } = options;
  const row = rowOf(nameOf(type), renderInput(input), asked, await traceOf(options));
  const [enqueued] = await send<Result>(pg, schema, [row]);
  if (enqueued === undefined) throw new TypeError('the function of the database answered nothing');
  return enqueued;
}

/** The same for many tasks, in one statement: all are accepted, or none. */
export async function enqueueManyIn(
  pg: PgQueryable,
  tasks: readonly (Omit<NewTask, 'options'> & { readonly options?: SubmissionOptions })[],
  options: SchemaOptions & TraceOptions & { readonly spreadMs?: number; readonly random: () => number },
): Promise<readonly Enqueued[]> {
  const { schema, spreadMs, random } = options;
  const trace = await traceOf(options);
  const rows = tasks.map(({ type, input, options: asked = {} }, index) => {
    if (spreadMs !== undefined && (asked.delayMs ?? asked.runAt) !== undefined) {
      throw new InputRefusedError(
        `tasks[${index}].options`,
        'must not say when, together with spreadMs',
        'field-invalid',
      );
    }
    const spread = spreadMs === undefined ? {} : { delayMs: spreadDelayMs(index, tasks.length, spreadMs, random) };
    return rowOf(nameOf(type), renderInput(input, `tasks[${index}].input`), { ...asked, ...spread }, trace);
  });
  return rows.length === 0 ? [] : await send(pg, schema, rows);
}

interface Row {
  readonly type: string;
  readonly input: string;
  readonly options: string;
}

function rowOf(type: string, input: string, options: EnqueueOptions, trace: TraceOptions): Row {
  const { idempotencyKey } = options;
  const members = { ...membersOf(options), ...(idempotencyKey === undefined ? {} : { idempotencyKey }), ...trace };
  return { type, input, options: JSON.stringify(members) };
}

async function send<Result>(
  pg: PgQueryable,
  schema = 'warren',
  rows: readonly Row[],
): Promise<readonly Enqueued<Result>[]> {
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) {
    throw new InputRefusedError(
      'schema',
      'must be the name of a schema: lower-case letters, digits, _',
      'field-invalid',
    );
  }
  const text = `
    select e.id, e.duplicate
      from unnest($1::text[], $2::text[], $3::text[]) with ordinality as t (type, input, options, place)
      cross join lateral "${schema}".enqueue_task(t.type, t.input, t.options::jsonb) as e
     order by t.place`;
  try {
    const { rows: found } = await pg.query(text, [
      rows.map(({ type }) => type),
      rows.map(({ input }) => input),
      rows.map(({ options }) => options),
    ]);
    return found as readonly Enqueued<Result>[];
  } catch (thrown) {
    throw problemOf(thrown) ?? thrown;
  }
}

/** The functions of the database say the code in `constraint` and the field in `column`. */
function problemOf(thrown: unknown): ProblemError | undefined {
  const { constraint, column, detail, message } = thrown as Readonly<Record<string, unknown>>;
  if (typeof constraint !== 'string' || constraint !== detail || typeof column !== 'string') return undefined;
  const reason = String(message).startsWith(`${column} `) ? String(message).slice(column.length + 1) : String(message);
  return new ProblemError({ type: constraint, title: 'Warren refused the task:', field: column, reason }, thrown);
}
