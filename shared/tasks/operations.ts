/** Operations: something that was done to many rows at once, each with its own line in the audit that names the operation. */
import { execute, run } from '../postgres/statement.ts';
import type { Queryable } from '../postgres/statement.ts';
import { newId } from './ids.ts';
import { findOperation, recordOperation } from './operations.sql.ts';

/** Who begins to do what. */
export interface Operation {
  /** As the audit calls it: `tasks.cancel`. */
  readonly action: string;
  readonly actor: { readonly name: string; readonly role: string; readonly address?: string };
  /** With the text of the filter under `filter`, where there is one. */
  readonly detail: Readonly<Record<string, unknown>>;
}

/** Writes that it begins, before the first row is touched. Gives its id. Throws as `Queryable.query`. */
export async function beginOperation(db: Queryable, { action, actor, detail }: Operation): Promise<string> {
  const id = newId() as string;
  const { name, role, address } = actor;
  await execute(db, recordOperation, id, action, name, role, JSON.stringify(detail), address ?? null);
  return id;
}

/** True where this id is of an operation that this actor began with this filter. */
export async function isOperationOf(
  db: Queryable,
  {
    id,
    action,
    actor,
    filter,
  }: { readonly id: string; readonly action: string; readonly actor: string; readonly filter: string },
): Promise<boolean> {
  return (await run(db, findOperation, id, action, actor, filter)).length > 0;
}
