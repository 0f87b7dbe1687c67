/** Lists of dead letters are found by the indexes that are there for them, under the settings of a service. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { idsByFacts, idsThatFit, idsToLookAt, readSummaries } from '../../services/dead-letter-handler/finder.sql.ts';
import { conditionOf, parseLetterFilter } from '../../services/dead-letter-handler/letter-filter.ts';
import { loadConfig } from '../../shared/config/load.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { sql } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { inTimeLimit } from '../../shared/postgres/transaction.ts';
import { createDatabase } from '../../shared/tasks/backbone.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { fillLetters, GROUP, measureListing, renderListing } from '../bench/dead-letters/listing.ts';
import { partDeps } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

const LETTERS = 20_000;

let opened: TestDatabase;
/** As a service reaches Postgres. */
let db: Database;
beforeAll(async () => {
  opened = await openDatabase();
  const { config } = loadConfig({ user: 'dead-letter-handler', env: { DATABASE_URL: opened.url } });
  db = createDatabase({ ...partDeps, config }, 'test');
  await db.connectOrThrow();
  await fillLetters(db, LETTERS);
});
afterAll(async () => {
  await db.stop(systemClock.monotonicMs() + 2_000);
  await opened[Symbol.asyncDispose]();
});

async function planOf(text: string, values: readonly unknown[]): Promise<string> {
  const { rows } = await inTimeLimit(db, 10_000, async (tx) => await tx.query({ text: `explain ${text}`, values }));
  return (rows as { 'QUERY PLAN': string }[]).map((row) => row['QUERY PLAN']).join('\n');
}

const below = sql`'ffffffff-ffff-ffff-ffff-ffffffffffff'`;
type Build = (condition: Sql) => Sql;
const wholePage: Build = (condition) => idsThatFit(condition, below, sql`51`);
const byFacts: Build = (condition) => idsByFacts(condition, sql`5000`);
const step: Build = (condition) => idsToLookAt(condition, below, sql`4000`);

test.each<readonly [string, Build, RegExp]>([
  ['', wholePage, /Index Only Scan Backward using dead_letters_open /],
  ['reason:worker_lost', wholePage, /using dead_letters_open_by_reason/],
  ['type:bench.rare', wholePage, /using dead_letters_open_by_type/],
  [`group:${GROUP}`, wholePage, /using dead_letters_open_by_group/],
  ['age:>29d', wholePage, /Scan Backward using dead_letters_\w+[\s\S]*Index Cond: .*id < \(/],
  ['age:<30m', wholePage, /dead_letters_\w+[\s\S]*Index Cond: .*id >= \(/],
  ['died:<2026-01-01', wholePage, /dead_letters_\w+[\s\S]*Index Cond: .*id < '/],
  ['state:all tag:rare', byFacts, /on letter_facts_tags/],
  ['state:all error:"order 19999"', byFacts, /on letter_facts_error/],
  ['state:all input.user.id:4242', byFacts, /BitmapOr[\s\S]*on letter_facts_input/],
  ['age:>1d', step, /Scan Backward using dead_letters_\w+[\s\S]*Index Cond: .*id < \(/],
])('%s', async (filter, build, index) => {
  const values: unknown[] = [];
  const text = build(conditionOf(parseLetterFilter(filter), values));
  const plan = await planOf(text, values);
  expect(plan).toMatch(index);
  expect(plan).not.toMatch(/Seq Scan/);
});

test('what a list shows is looked up in primary keys', async () => {
  const plan = await planOf(readSummaries.text, ['{}']);
  expect(plan).toMatch(/using dead_letters_pkey/);
  expect(plan).toMatch(/using letter_facts_pkey/);
});

test('the bench of lists finds what it has filled', async () => {
  await db.query({ text: 'truncate dead_letters, letter_facts' });
  const figures = await measureListing(db, LETTERS);
  const of = (filter: string): number | undefined => figures.find((figure) => figure.filter === filter)?.letters;
  expect(of('')).toBe(50);
  expect(of('tag:rare')).toBe(1);
  expect(of('age:>29d')).toBe(50);
  expect(of('input.user.id:4242')).toBe(1);
  expect(of('code:NOTHING')).toBe(0);
  expect(figures.every(({ ms }) => ms > 0)).toBe(true);
  expect(renderListing(figures).split('\n')).toHaveLength(figures.length + 1);
});
