/** A migrated database for each test file: cloned from a template, dropped at the end. */
import { createHash, randomUUID } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { Database } from '../../shared/postgres/pool.ts';
import type { DatabaseOptions } from '../../shared/postgres/pool.ts';
import { migrate } from '../../shared/postgres/migrate.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** The migrations of the product. */
export const MIGRATIONS_DIR = fileURLToPath(new URL('../../shared/postgres/migrations', import.meta.url));

/** A database of one test file. */
export interface TestDatabase extends AsyncDisposable {
  /** For processes that the test starts. */
  readonly url: string;
  /** Started, with the schema `warren`. */
  readonly database: Database;
}

const ADMIN_URL = process.env['WARREN_TEST_DATABASE_URL'] ?? 'postgres://postgres@127.0.0.1:5432/postgres';
/** Whatever the cluster's own encoding, Warren's text is UTF-8. */
const EMPTY = `template0 encoding 'UTF8'`;
const TEMPLATE_PREFIX = 'warren_template_';

/** A new database, cloned from the migrated template; `options` change how `database` connects. */
export async function openDatabase(options: Partial<DatabaseOptions> = {}): Promise<TestDatabase> {
  return await withAdmin(async (admin) => {
    const template = await ensureTemplate(admin);
    return await create(admin, options, template);
  });
}

/** A new database without anything in it, not even the schema. */
export async function openEmptyDatabase(options: Partial<DatabaseOptions> = {}): Promise<TestDatabase> {
  return await withAdmin(async (admin) => await create(admin, options, EMPTY));
}

/** A database object for tests, not started. */
export function aDatabase(url: string, options: Partial<DatabaseOptions> = {}): Database {
  return new Database(
    { clock: systemClock, log: silentLogger, random: () => 0.5 },
    {
      url,
      applicationName: 'warren-test',
      max: 5,
      connectTimeoutMs: 5_000,
      statementTimeoutMs: 30_000,
      lockTimeoutMs: 5_000,
      idleTimeoutMs: 10_000,
      schema: 'warren',
      ...options,
    },
  );
}

async function create(admin: Database, options: Partial<DatabaseOptions>, template: string): Promise<TestDatabase> {
  const name = `warren_test_${randomUUID().replaceAll('-', '')}`;
  await admin.query({ text: `create database ${name} template ${template}` });
  const url = withDatabase(name);
  const database = aDatabase(url, options);
  await database.connectOrThrow();
  return {
    url,
    database,
    async [Symbol.asyncDispose](): Promise<void> {
      await database.stop(systemClock.monotonicMs() + 2_000);
      await withAdmin(async (again) => await again.query({ text: `drop database if exists ${name} with (force)` }));
    },
  };
}

/** The template's name holds the day and a hash of the migrations; the first caller makes it, others wait at the lock. */
async function ensureTemplate(admin: Database): Promise<string> {
  const day = systemClock.now().toISOString().slice(0, 10).replaceAll('-', '');
  const name = `${TEMPLATE_PREFIX}${day}_${await hashMigrations()}`;
  if (await exists(admin, name)) return name;
  const lock = await admin.checkOut();
  try {
    await lock.query({ text: `select pg_advisory_lock(hashtextextended('warren test template', 0))` });
    if (await exists(admin, name)) return name;
    await dropOldTemplates(admin, day);
    const unfinished = `${name}_unfinished`;
    await admin.query({ text: `drop database if exists ${unfinished} with (force)` });
    await admin.query({ text: `create database ${unfinished} template ${EMPTY}` });
    const database = aDatabase(withDatabase(unfinished));
    await database.connectOrThrow();
    await migrate(database, { dir: MIGRATIONS_DIR, log: silentLogger });
    await database.stop(systemClock.monotonicMs() + 2_000);
    await admin.query({ text: `alter database ${unfinished} rename to ${name}` });
    return name;
  } finally {
    lock.release(true);
  }
}

async function dropOldTemplates(admin: Database, today: string): Promise<void> {
  const { rows } = await admin.query({
    text: 'select datname from pg_database where starts_with(datname, $1) and not starts_with(datname, $2)',
    values: [TEMPLATE_PREFIX, `${TEMPLATE_PREFIX}${today}`],
  });
  for (const { datname } of rows as { datname: string }[]) {
    await admin.query({ text: `drop database if exists ${datname} with (force)` });
  }
}

async function exists(admin: Database, name: string): Promise<boolean> {
  const { rows } = await admin.query({ text: 'select 1 from pg_database where datname = $1', values: [name] });
  return rows.length > 0;
}

async function hashMigrations(): Promise<string> {
  const hash = createHash('sha256');
  for (const file of (await readdir(MIGRATIONS_DIR)).filter((name) => name.endsWith('.sql')).toSorted()) {
    hash.update(file).update(await readFile(join(MIGRATIONS_DIR, file)));
  }
  return hash.digest('hex').slice(0, 12);
}

function withDatabase(name: string): string {
  const url = new URL(ADMIN_URL);
  url.pathname = `/${name}`;
  return url.href;
}

async function withAdmin<T>(work: (admin: Database) => Promise<T>): Promise<T> {
  const admin = aDatabase(ADMIN_URL, { max: 2, lockTimeoutMs: 0, statementTimeoutMs: 120_000 });
  await admin.connectOrThrow();
  try {
    return await work(admin);
  } finally {
    await admin.stop(systemClock.monotonicMs() + 2_000);
  }
}
