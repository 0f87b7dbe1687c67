/** No statement of the Task API reads the table of tasks from end to end. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cancelOne } from '../../services/producer/cancel.sql.ts';
import {
  filterTasks,
  pageIds,
  pageIdsByBusinessKey,
  pageIdsByExternalId,
  pageIdsOfDeadLetters,
  pageIdsOfDue,
  readAttempts,
  readTask,
  someIdsByTag,
} from '../../services/producer/tasks.sql.ts';
import type { Columns, Statement } from '../../shared/postgres/statement.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await openDatabase({ settings: SERVICE_PLANS });
  await db.database.query({
    text: `insert into tasks (id, state, max_attempts, priority, type, queue, input, tags, business_key, external_id)
           select uuid_v7(), 'pending', 1, 4, 't', 'q', '{}', array['t' || n % 1000], 'k' || n % 1000, 'x' || n
             from generate_series(1, 20000) n`,
  });
  await db.database.query({ text: 'analyze tasks' });
});
afterAll(async () => await db[Symbol.asyncDispose]());

const PLANS: readonly (readonly [Pick<Statement<readonly unknown[], Columns>, 'name' | 'text'>, string])[] = [
  [pageIds, 'tasks_default_pkey'],
  [pageIdsByBusinessKey, 'tasks_default_business_key_id_idx'],
  [pageIdsByExternalId, 'tasks_default_external_id_id_idx'],
  [someIdsByTag, 'tasks_default_tags_idx'],
  [pageIdsOfDue, 'due_pkey'],
  [pageIdsOfDeadLetters, 'dead_letters_task'],
  [filterTasks, 'tasks_default_pkey'],
  [readTask, 'tasks_default_pkey'],
  [readAttempts, 'attempts_pkey'],
  [cancelOne, 'tasks_default_pkey'],
];

test.each(PLANS.map(([{ name, text }, index]) => [name, index, text]))('%s walks %s', async (name, index, text) => {
  const connection = await db.database.checkOut();
  try {
    // The plan that a prepared statement ends up with, whatever its parameters are.
    await connection.query({ text: 'set plan_cache_mode = force_generic_plan' });
    await connection.query({ text: `prepare ${name} as ${text}` });
    const count = Math.max(...[...text.matchAll(/\$(\d+)/g)].map((match) => Number(match[1])));
    const nulls = Array.from({ length: count }, () => 'null').join(', ');
    const { rows } = await connection.query({ text: `explain execute ${name} (${nulls})` });
    const plan = (rows as { 'QUERY PLAN': string }[]).map((row) => row['QUERY PLAN']).join('\n');
    expect(plan).toContain(index);
    expect(plan).not.toMatch(/Seq Scan on tasks/);
  } finally {
    connection.release(true);
  }
});
