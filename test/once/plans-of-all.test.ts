/**
 * No statement compares each row of a batch with each other, and none reads all tasks, whatever Postgres believes of the sizes of tables: those beside them hold few rows or none, are never
 * analyzed, and pass for large; and a session that prepared its statements when there were few tasks keeps its plans for a while.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { loadConfig } from '../../shared/config/load.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { createDatabase } from '../../shared/tasks/backbone.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { partDeps } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { findStatementFiles } from '../support/product-statements.ts';
import type { AnyStatement } from '../support/product-statements.ts';

const statements = (await findStatementFiles()).flatMap((file) => file.statements).filter((each) => isPlannable(each));

let opened: TestDatabase;
/** As a service reaches Postgres. */
let db: Database;
beforeAll(async () => {
  opened = await openDatabase();
  const { config } = loadConfig({ user: 'producer', env: { DATABASE_URL: opened.url } });
  db = createDatabase({ ...partDeps, config }, 'test');
  await db.connectOrThrow();
});
afterAll(async () => {
  await db.stop(systemClock.monotonicMs() + 2_000);
  await opened[Symbol.asyncDispose]();
});

// Twenty that ran: Postgres counts a table anew from fifty changes on.
test.each([0, 20, 300, 30_000])('no statement reads all tasks, planned where there are %d', async (count) => {
  await db.query({
    text: `insert into tasks (id, accepted_at, invited_at, state, max_attempts, priority, type, queue, input)
           select uuid_v7(), now(), now(), 'pending', 3, 5, 'bench.noop', 'default', '\\x7b7d'
             from generate_series(1, ${count})`,
  });
  const readers = async (): Promise<readonly string[]> => {
    const found: string[] = [];
    for (const each of statements) if (readsAllTasks(await plan(each))) found.push(each.name);
    return found;
  };
  expect(statements.length).toBeGreaterThan(100);
  expect(await readers()).toEqual([]);
  // A table that was counted while it was empty is taken for one of a single page, which anything reads at once.
  if (count === 0) return;
  await db.query({ text: 'analyze tasks' });
  expect(await readers()).toEqual([]);
});

/** Joins of two lists of which one has a row, or a few: policies of types, hours of a day, the one queue or letter that is meant, standbys. */
const OF_A_FEW: ReadonlySet<string> = new Set([
  'claim_restricted',
  'list_groups',
  'read_group',
  'read_replication',
  'release_starts',
  'replay_task',
  'set_queue_mode',
]);

test('no statement joins two lists that it made itself: without hash joins each is compared with each', async () => {
  const joiners: string[] = [];
  for (const each of statements) if (joinsLists(await plan(each))) joiners.push(each.name);
  expect(joiners.filter((name) => !OF_A_FEW.has(name))).toEqual([]);
});

/** Savepoints and blocks of code have no plan. */
function isPlannable({ text }: AnyStatement): boolean {
  return /^\s*(?:with|select|insert|update|delete)\b/i.test(text);
}

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Parent Relationship'?: string;
  readonly 'Join Filter'?: string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Index Cond'?: string;
  readonly Plans?: readonly PlanNode[];
}

/** By the table, or by the key of it, from end to end and not up to a limit; other indexes of tasks hold some of them. */
function readsAllTasks(node: PlanNode): boolean {
  if (node['Node Type'] === 'Limit') return false;
  if (node['Relation Name'] === 'tasks_default') {
    if (node['Node Type'] === 'Seq Scan') return true;
    if (node['Index Name'] === 'tasks_default_pkey' && node['Index Cond'] === undefined) return true;
  }
  return (node.Plans ?? []).some((child) => readsAllTasks(child));
}

/** A nested loop over two lists whose rows are compared, one with each. */
function joinsLists(node: PlanNode): boolean {
  const { 'Node Type': type, 'Join Filter': filter, Plans: plans = [] } = node;
  const joined = plans.filter((child) => ['Outer', 'Inner'].includes(child['Parent Relationship'] ?? ''));
  const isQuadratic = type === 'Nested Loop' && filter !== undefined && joined.every((child) => isList(child));
  return isQuadratic || plans.some((child) => joinsLists(child));
}

function isList(node: PlanNode): boolean {
  if (node['Node Type'] === 'CTE Scan' || node['Node Type'] === 'Function Scan') return true;
  const [below, ...others] = node.Plans ?? [];
  return below !== undefined && others.length === 0 && LIST_PARTS.has(node['Node Type']) && isList(below);
}

const LIST_PARTS: ReadonlySet<string> = new Set(['Sort', 'Materialize', 'Subquery Scan', 'Limit', 'Unique']);

/** The plan of a statement for any parameters, as a session keeps it. */
async function plan({ text }: AnyStatement): Promise<PlanNode> {
  const connection = await db.checkOut();
  try {
    await connection.query({ text: 'set plan_cache_mode = force_generic_plan' });
    await connection.query({ text: `prepare planned as ${text}` });
    const { rows } = await connection.query({
      text: `select cardinality(parameter_types)::int4 as params from pg_prepared_statements where name = 'planned'`,
    });
    const [{ params }] = rows as [{ readonly params: number }];
    const values = params === 0 ? '' : `(${Array.from({ length: params }, () => 'null').join(', ')})`;
    const explained = await connection.query({ text: `explain (format json) execute planned${values}` });
    const [row] = explained.rows as [{ 'QUERY PLAN': [{ Plan: PlanNode }] }];
    return row['QUERY PLAN'][0].Plan;
  } finally {
    connection.release(true);
  }
}
