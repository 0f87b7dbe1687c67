/** Tells Postgres which task types and queues there are, so that others validate, route and show them without the code. */
import { execute } from '../postgres/statement.ts';
import type { Queryable } from '../postgres/statement.ts';
import { announceQueueNames, announceTaskTypes } from './announce.sql.ts';
import type { TaskTypeDescription } from './define-task.ts';

/**
 * Announces task types and their queues; the last announcement of a name stands. Called by each worker at its start and
 * by `warren types apply`. `codeVersion` is at most 100 characters. Throws as `Queryable.query`.
 */
export async function announceTypes(
  db: Queryable,
  descriptions: readonly TaskTypeDescription[],
  codeVersion: string,
): Promise<void> {
  // One statement cannot touch a row twice.
  const types = [...new Map(descriptions.map((description) => [description.name, description])).values()];
  if (types.length === 0) return;
  await execute(
    db,
    announceTaskTypes,
    types.map(({ name }) => name),
    types.map(({ queue }) => queue),
    types.map(({ priority }) => priority),
    types.map(({ timeoutMs }) => timeoutMs),
    types.map(({ retry }) => retry.maxAttempts),
    types.map(({ isolation, keepLogs, retry, concurrency, rate }) =>
      JSON.stringify({ isolation, keepLogs, retry, concurrency, rate }),
    ),
    types.map(({ inputSchema }) => (inputSchema === undefined ? null : JSON.stringify(inputSchema))),
    codeVersion,
  );
}

/** Makes queues exist whether or not a task type names them. Throws as `Queryable.query`. */
export async function announceQueues(db: Queryable, names: readonly string[]): Promise<void> {
  if (names.length > 0) await execute(db, announceQueueNames, names);
}
