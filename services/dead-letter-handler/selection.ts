/** Which letters a replay is about, as a condition for SQL. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run, sql } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { conditionOf } from './letter-filter.ts';
import type { LetterFilter } from './letter-filter.ts';
import { findExisting } from './replays.sql.ts';

/** What an operator chose. */
export type Selection =
  | { readonly kind: 'ids'; readonly ids: readonly string[] }
  | { readonly kind: 'group'; readonly group: string }
  | { readonly kind: 'filter'; readonly text: string; readonly filter: LetterFilter };

/**
 * The condition of a selection over the letters `l`, whose parameters it adds to `values`. Of chosen ids, also closed letters
 * pass, so that their items say why nothing happened.
 */
export function conditionFor(selection: Selection, values: unknown[]): Sql {
  if (selection.kind === 'ids') return sql`l.id = any(${parameter(values, selection.ids)}::uuid[])`;
  if (selection.kind === 'filter') return sql`l.state = 'open' and ${conditionOf(selection.filter, values)}`;
  return sql`l.group_id = ${parameter(values, selection.group)}::uuid and l.state = 'open'`;
}

/** What is kept of a selection with its replay. */
export function renderSelection(selection: Selection): string {
  if (selection.kind === 'ids') return JSON.stringify({ ids: selection.ids.length });
  return JSON.stringify(selection.kind === 'group' ? { group: selection.group } : { filter: selection.text });
}

/** Throws `dead-letter-not-found` with the first chosen id that there is none of. */
export async function checkSelection(db: Database, selection: Selection): Promise<void> {
  if (selection.kind !== 'ids') return;
  const there = new Set((await run(db, findExisting, selection.ids)).map(({ id }) => id));
  const missing = selection.ids.find((id) => !there.has(id.toLowerCase()));
  if (missing !== undefined) throw new WarrenError('dead-letter-not-found', { field: 'ids', id: missing });
}

/** The place of a parameter is a number that the program counts: nothing from outside is in it. */
function parameter(values: unknown[], value: unknown): Sql {
  values.push(value);
  return `$${values.length}` as Sql;
}
