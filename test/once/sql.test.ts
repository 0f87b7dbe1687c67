/** Every statement of the product is right about the migrated database: parameters, columns, types, nullability. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { sql } from '../../shared/postgres/statement.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { openDescriber } from '../support/describe-statement.ts';
import type { DescribedStatement } from '../support/describe-statement.ts';
import { findStatementFiles } from '../support/product-statements.ts';
import type { AnyStatement } from '../support/product-statements.ts';
import { isParameterFitting, parametersOf } from '../support/statement-source.ts';

const files = await findStatementFiles();

let db: TestDatabase;
let describer: Awaited<ReturnType<typeof openDescriber>>;
beforeAll(async () => {
  db = await openDatabase();
  describer = await openDescriber(db);
});
afterAll(async () => {
  await describer[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
});

test.each(files.map((file) => [file.path, file] as const))('%s fits the database', async (_path, file) => {
  const { source, statements } = file;
  expect(statements.length).toBe(source.match(/\bstatement</g)?.length ?? 0);
  const faults: string[] = [];
  for (const declared of statements) faults.push(...(await check(declared, source)));
  expect(faults).toEqual([]);
});

test('planted faults are each named', async () => {
  const planted: AnyStatement = {
    name: 'planted',
    text: sql`select id, external_id, state, attempt, accepted_at from tasks where id = $1::uuid and attempt = $2::int4`,
    columns: { id: 'uuid?', external_id: 'text', status: 'text', attempt: 'int8', accepted_at: 'timestamptz' },
  };
  const source = `statement<[id: string, attempt: Date, more: string]>()({ name: 'planted'`;
  expect(await check(planted, source)).toEqual([
    'planted: takes 2 parameters, declared are 3',
    'planted: parameter 2 is int4, declared Date',
    'planted: column 1 is id and never null, declared id: uuid?',
    'planted: column 2 is external_id and may be null, declared external_id: text',
    'planted: column 3 is state: text, declared status: text',
    'planted: column 4 is attempt: int4, declared attempt: int8',
  ]);
  const wrong: AnyStatement = { name: 'wrong', text: sql`select nothing from tasks`, columns: {} };
  expect(await check(wrong, '')).toEqual(['wrong: column "nothing" does not exist']);
});

async function check(declared: AnyStatement, source: string): Promise<readonly string[]> {
  const { name } = declared;
  let found: DescribedStatement;
  try {
    found = await describer.describe(declared.text);
  } catch (thrown) {
    return [`${name}: ${(thrown as Error).message}`];
  }
  return [...parameterFaults(name, source, found), ...columnFaults(declared, found)];
}

function parameterFaults(name: string, source: string, { params }: DescribedStatement): readonly string[] {
  const types = parametersOf(source, name)?.map(({ type }) => type);
  if (types === undefined) return [`${name}: its parameters are not written as a tuple`];
  const faults: string[] = [];
  if (types.length !== params.length) {
    faults.push(`${name}: takes ${params.length} parameters, declared are ${types.length}`);
  }
  for (const [index, postgres] of params.entries()) {
    const typescript = types[index];
    if (typescript !== undefined && !isParameterFitting(typescript, postgres)) {
      faults.push(`${name}: parameter ${index + 1} is ${postgres}, declared ${typescript}`);
    }
  }
  return faults;
}

function columnFaults({ name, text, columns }: AnyStatement, found: DescribedStatement): readonly string[] {
  const declared = Object.entries(columns);
  if (declared.length !== found.columns.length) {
    const names = found.columns.map((column) => column.name).join(', ');
    return [`${name}: returns ${found.columns.length} columns (${names}), declared are ${declared.length}`];
  }
  // An outer join makes any column null, and Postgres does not say so.
  const hasOuterJoin = /\b(left|right|full)\s+(outer\s+)?join\b/i.test(text);
  return found.columns.flatMap((column, index) => {
    const [label, type] = declared[index] as [string, string];
    const say = (is: string): string[] => [`${name}: column ${index + 1} is ${is}, declared ${label}: ${type}`];
    if (label !== column.name || type.replace('?', '') !== column.type) return say(`${column.name}: ${column.type}`);
    if (column.isNullable === true && !type.endsWith('?')) return say(`${column.name} and may be null`);
    if (column.isNullable === false && type.endsWith('?') && !hasOuterJoin) return say(`${column.name} and never null`);
    return [];
  });
}
