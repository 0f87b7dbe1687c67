/** The schema of a migrated database as text, the same on every version of Postgres. */
import { run } from '../shared/postgres/statement.ts';
import type { Queryable } from '../shared/postgres/statement.ts';
import { dumpSchema } from './dump-schema.sql.ts';

const HEAD = [
  '-- The schema after all migrations, for reading and for comparing. Written by `make golden`; it is not meant to be run.',
  '',
];

/** Dumps the schema that `search_path` names. */
export async function renderSchema(db: Queryable): Promise<string> {
  const lines = (await run(db, dumpSchema)).map(({ line }) => line ?? '');
  return [...HEAD, ...lines.flatMap((line) => (line.startsWith('create table') ? ['', line] : [line])), ''].join('\n');
}
