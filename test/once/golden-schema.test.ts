/** The schema after all migrations is the one on record, on whatever version of Postgres. */
import { expect, test } from '@jest/globals';
import { renderSchema } from '../../scripts/dump-schema.ts';
import { SCHEMA_FILE } from '../../scripts/golden-files.ts';
import { openDatabase } from '../support/database.ts';
import { readSource } from '../support/source-files.ts';

test('the migrations make the schema on record', async () => {
  await using db = await openDatabase();
  expect(await renderSchema(db.database)).toBe(readSource(SCHEMA_FILE));
});

test('a column that is added shows', async () => {
  await using db = await openDatabase();
  await db.database.query({ text: 'alter table audit add column planted integer' });
  const planted = (await renderSchema(db.database))
    .split('\n')
    .filter((line) => !readSource(SCHEMA_FILE).includes(line));
  expect(planted).toEqual(['  planted integer']);
});
