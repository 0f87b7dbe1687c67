/** Brings the database to the state this program knows: numbered plain SQL files, forward only. */
import { createHash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Bug, WarrenError } from '../errors/warren-error.ts';
import type { Logger } from '../observability/log.ts';
import { codeOf } from '../errors/to-error.ts';
import type { Connection, Database } from './pool.ts';
import { inTransaction } from './transaction.ts';
import type { Queryable } from './statement.ts';

/** One file of the directory. */
interface Migration {
  /** File name without `.sql`. */
  readonly name: string;
  readonly text: string;
  /** SHA-256 of the file, hex. */
  readonly checksum: string;
  /** True where a program that does not know the migration must not run any more. */
  readonly isBreaking: boolean;
  readonly isTransactional: boolean;
}

interface Applied {
  readonly name: string;
  readonly checksum: string;
  readonly breaking: boolean;
}

const FILE_NAME = /^\d{4}_[a-z0-9_]+\.sql$/;
/** Milliseconds that a migration may wait for a table; longer, and it would hold up everybody who waits behind it. */
const LOCK_TIMEOUT_MS = 10_000;
/** Milliseconds between two looks at whether another migrating process is done. */
const LOCK_POLL_MS = 100;

/**
 * Applies what is missing, each file in a transaction of its own, and says what it applied. Two at once are harmless:
 * the second waits. Creates the schema when it is missing; otherwise needs no right but the schema's.
 *
 * A file begins with comments: `-- breaking: yes` or `no`, and `-- no transaction` where its one statement refuses one
 * (`create index concurrently`); that statement must be repeatable, since a crash can come before it is recorded.
 *
 * Throws `migration-changed` when an applied file has other content now, `database-unavailable`, and Postgres's error
 * of a migration that fails, with `migration` in front of its message.
 */
export async function migrate(
  db: Database,
  { dir, log }: { readonly dir: string; readonly log: Logger },
): Promise<{ readonly applied: readonly string[] }> {
  const migrations = await readMigrations(dir);
  const connection = await db.checkOut();
  try {
    await send(connection, 'set statement_timeout = 0');
    await takeLock(connection, db);
    await send(connection, `set lock_timeout = ${LOCK_TIMEOUT_MS}`);
    await prepareSchema(connection, db.options.schema);
    const before = new Map((await readApplied(connection)).map((row) => [row.name, row]));
    refuseChanged(migrations, before);
    const missing = migrations.filter(({ name }) => !before.has(name));
    for (const migration of missing) {
      await apply(connection, migration);
      log.info('migration applied', { migration: migration.name });
    }
    return { applied: missing.map(({ name }) => name) };
  } finally {
    // Ends the session, and with it the lock and the settings.
    connection.release(true);
  }
}

/**
 * Refuses a database that this program must not work with. Throws `database-outdated` when migrations are missing or when
 * a breaking one was applied that this program does not know, `migration-changed`, `database-unavailable`.
 */
export async function checkMigrations(db: Database, dir: string): Promise<void> {
  const migrations = await readMigrations(dir);
  const applied = new Map((await readAppliedOrNone(db)).map((row) => [row.name, row]));
  const missing = migrations.filter(({ name }) => !applied.has(name)).map(({ name }) => name);
  if (missing.length > 0) {
    throw new WarrenError('database-outdated', { missing, hint: 'the database is older: run `warren migrate`' });
  }
  refuseChanged(migrations, applied);
  const known = new Set(migrations.map(({ name }) => name));
  const unknown = [...applied.values()].filter(({ name, breaking }) => breaking && !known.has(name));
  if (unknown.length > 0) {
    throw new WarrenError('database-outdated', {
      unknown: unknown.map(({ name }) => name),
      hint: 'the database is newer: update this program',
    });
  }
}

/**
 * Makes the database belong to a prefix of AMQP names; only the first caller decides. Two installations on one database
 * would take each other's tasks. Throws `prefix-mismatch` with both, `database-unavailable`.
 */
export async function claimPrefix(db: Database, prefix: string): Promise<void> {
  const owner =
    (await readPrefix(db)) ??
    (await inTransaction(db, async (tx) => {
      await tx.query({ text: 'lock table installation in share row exclusive mode' });
      const claimed = await readPrefix(tx);
      if (claimed !== undefined) return claimed;
      await tx.query({ text: 'insert into installation (prefix) values ($1)', values: [prefix] });
      return prefix;
    }));
  if (owner !== prefix) throw new WarrenError('prefix-mismatch', { configured: prefix, database: owner });
}

/**
 * Asks again and again instead of waiting inside Postgres: a waiting statement holds a snapshot, and
 * `create index concurrently` in the session that has the lock waits for all snapshots: a deadlock.
 */
async function takeLock(connection: Connection, { options, deps }: Database): Promise<void> {
  for (;;) {
    const { rows } = await connection.query({
      text: 'select pg_try_advisory_lock(hashtextextended($1, 0)) as locked',
      values: [`warren migrate ${options.schema}`],
    });
    if ((rows as { locked: boolean }[])[0]?.locked === true) return;
    await deps.clock.sleep(LOCK_POLL_MS);
  }
}

async function readPrefix(db: Queryable): Promise<string | undefined> {
  const { rows } = await db.query({ text: 'select prefix from installation' });
  return (rows as { prefix: string }[])[0]?.prefix;
}

async function readMigrations(dir: string): Promise<readonly Migration[]> {
  const files = (await readdir(dir)).filter((file) => file.endsWith('.sql')).toSorted();
  const migrations: Migration[] = [];
  for (const file of files) {
    if (!FILE_NAME.test(file)) throw new Bug(`migration name not allowed: ${file}`);
    if (migrations.at(-1)?.name.slice(0, 4) === file.slice(0, 4))
      throw new Bug(`two migrations are numbered as ${file}`);
    migrations.push(parseMigration(file.slice(0, -'.sql'.length), await readFile(join(dir, file), 'utf8')));
  }
  return migrations;
}

function parseMigration(name: string, text: string): Migration {
  const breaking = /^-- breaking: (yes|no)$/m.exec(text)?.[1];
  if (breaking === undefined) throw new Bug(`migration ${name} does not say "-- breaking: yes" or "-- breaking: no"`);
  return {
    name,
    text,
    checksum: createHash('sha256').update(text).digest('hex'),
    isBreaking: breaking === 'yes',
    isTransactional: !/^-- no transaction$/m.test(text),
  };
}

function refuseChanged(migrations: readonly Migration[], applied: ReadonlyMap<string, Applied>): void {
  for (const { name, checksum } of migrations) {
    const row = applied.get(name);
    if (row !== undefined && row.checksum !== checksum) throw new WarrenError('migration-changed', { migration: name });
  }
}

async function prepareSchema(connection: Connection, schema: string): Promise<void> {
  // `create schema if not exists` asks for the right to create even where the schema exists.
  const { rows } = await connection.query({ text: 'select 1 from pg_namespace where nspname = $1', values: [schema] });
  if (rows.length === 0) await send(connection, `create schema "${schema}"`);
  await send(
    connection,
    `create table if not exists migrations (
       name       text        primary key,
       checksum   text        not null,
       breaking   bool        not null,
       applied_at timestamptz not null default clock_timestamp()
     )`,
  );
}

async function readApplied(db: Queryable): Promise<readonly Applied[]> {
  const { rows } = await db.query({ text: 'select name, checksum, breaking from migrations order by name' });
  return rows as Applied[];
}

async function readAppliedOrNone(db: Queryable): Promise<readonly Applied[]> {
  try {
    return await readApplied(db);
  } catch (thrown) {
    if (codeOf(thrown) === '42P01') return []; // undefined_table: never migrated
    throw thrown;
  }
}

async function apply(connection: Connection, migration: Migration): Promise<void> {
  const { name, checksum, isBreaking } = migration;
  const record = async (): Promise<void> => {
    await connection.query({
      text: 'insert into migrations (name, checksum, breaking) values ($1, $2, $3)',
      values: [name, checksum, isBreaking],
      withinMs: 0,
    });
  };
  try {
    if (!migration.isTransactional) {
      await send(connection, migration.text);
      await record();
      return;
    }
    await send(connection, 'begin');
    await send(connection, migration.text);
    await record();
    await send(connection, 'commit');
  } catch (thrown) {
    throw withMigrationName(thrown, name);
  }
}

function withMigrationName(thrown: unknown, name: string): unknown {
  if (typeof thrown === 'object' && thrown !== null && 'message' in thrown) {
    Object.assign(thrown, { message: `migration ${name}: ${String(thrown.message)}` });
  }
  return thrown;
}

/** Without a deadline: building an index on a large table takes what it takes. */
async function send(connection: Connection, text: string): Promise<void> {
  await connection.query({ text, withinMs: 0 });
}
