import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { checkMigrations, claimPrefix, migrate } from '../../../shared/postgres/migrate.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { aDatabase, openEmptyDatabase } from '../../support/database.ts';
import type { TestDatabase } from '../../support/database.ts';

const log = silentLogger;
const FIRST =
  '-- breaking: yes\ncreate table things (id int primary key);\ncreate table installation (prefix text not null);\n';
const SECOND =
  '-- breaking: no\n-- no transaction\ncreate index concurrently if not exists things_id on things (id);\n';

let db: TestDatabase;
let dir: string;
beforeEach(async () => {
  db = await openEmptyDatabase();
  dir = await mkdtemp(join(tmpdir(), 'warren migrate '));
  await writeFile(join(dir, '0001_things.sql'), FIRST);
  await writeFile(join(dir, '0002_index.sql'), SECOND);
});
afterEach(async () => {
  await db[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
});

test('what is missing is applied once, in order, and then the check passes', async () => {
  await expect(checkMigrations(db.database, dir)).rejects.toMatchObject({
    code: 'database-outdated',
    facts: { missing: ['0001_things', '0002_index'], hint: expect.stringContaining('warren migrate') },
  });
  expect(await migrate(db.database, { dir, log })).toEqual({ applied: ['0001_things', '0002_index'] });
  expect(await migrate(db.database, { dir, log })).toEqual({ applied: [] });
  await checkMigrations(db.database, dir);
});

test('two at once are harmless', async () => {
  const other = aDatabase(db.url);
  await other.connectOrThrow();
  const both = await Promise.all([migrate(db.database, { dir, log }), migrate(other, { dir, log })]);
  expect(both.flatMap(({ applied }) => applied).toSorted()).toEqual(['0001_things', '0002_index']);
  await other.stop(systemClock.monotonicMs() + 1_000);
});

test('a migration that fails leaves nothing of itself and names itself', async () => {
  await writeFile(join(dir, '0003_bad.sql'), '-- breaking: no\ncreate table half (id int);\nselect nonsense;\n');
  await expect(migrate(db.database, { dir, log })).rejects.toMatchObject({
    code: '42703',
    message: expect.stringContaining('migration 0003_bad'),
  });
  const { rows } = await db.database.query({ text: `select to_regclass('half') as half, count(*) from migrations` });
  expect(rows).toEqual([{ half: null, count: '2' }]);
});

test('a changed file is refused', async () => {
  await migrate(db.database, { dir, log });
  await writeFile(join(dir, '0001_things.sql'), `${FIRST}-- more\n`);
  const refusal = { code: 'migration-changed', facts: { migration: '0001_things' } };
  await expect(migrate(db.database, { dir, log })).rejects.toMatchObject(refusal);
  await expect(checkMigrations(db.database, dir)).rejects.toMatchObject(refusal);
});

test('a newer database is accepted unless the newer migration is breaking', async () => {
  await writeFile(join(dir, '0003_soft.sql'), '-- breaking: no\nselect 1;\n');
  await migrate(db.database, { dir, log });
  await rm(join(dir, '0003_soft.sql'));
  await checkMigrations(db.database, dir);
  await writeFile(join(dir, '0004_hard.sql'), '-- breaking: yes\nselect 1;\n');
  await migrate(db.database, { dir, log });
  await rm(join(dir, '0004_hard.sql'));
  await expect(checkMigrations(db.database, dir)).rejects.toMatchObject({
    code: 'database-outdated',
    facts: { unknown: ['0004_hard'] },
  });
});

test('a file that does not say whether it is breaking is refused before anything is applied', async () => {
  await writeFile(join(dir, '0003_mute.sql'), 'select 1;\n');
  await expect(migrate(db.database, { dir, log })).rejects.toThrow('0003_mute does not say');
});

test('a user who owns only the schema can migrate', async () => {
  const role = `warren_owner_${new URL(db.url).pathname.slice(-8)}`;
  await db.database.query({ text: `create role ${role} login password 'owner'` });
  await db.database.query({ text: `create schema warren authorization ${role}` });
  const url = new URL(db.url);
  url.username = role;
  url.password = 'owner';
  const owner = aDatabase(url.href);
  await owner.connectOrThrow();
  expect((await migrate(owner, { dir, log })).applied).toHaveLength(2);
  await owner.stop(systemClock.monotonicMs() + 1_000);
  await db.database.query({ text: `drop owned by ${role}; drop role ${role}` });
});

test('the database belongs to the first prefix that claims it', async () => {
  await migrate(db.database, { dir, log });
  await Promise.all([claimPrefix(db.database, 'warren'), claimPrefix(db.database, 'warren')]);
  await claimPrefix(db.database, 'warren');
  await expect(claimPrefix(db.database, 'other')).rejects.toMatchObject({
    code: 'prefix-mismatch',
    facts: { configured: 'other', database: 'warren' },
  });
});
