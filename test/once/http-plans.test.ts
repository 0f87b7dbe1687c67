/** No statement of the Task API reads the table of tasks, or of flows, from end to end. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cancelTasks } from '../../services/producer/cancel.sql.ts';
import { editTasks, readType } from '../../services/producer/edit.sql.ts';
import {
  countFlowTasks,
  pageFlows,
  pageFlowsByKey,
  pageFlowsByName,
  pageFlowsByParent,
  pageFlowsByState,
  readFlowSteps,
} from '../../services/producer/flows-read.sql.ts';
import {
  readHistoryAttempts,
  readHistoryAudit,
  readHistoryLetters,
  readHistoryTask,
} from '../../services/producer/history.sql.ts';
import { listOnce } from '../../services/producer/once-keys.sql.ts';
import {
  countTagged,
  endOfWalk,
  filterTasks,
  pageIdsByBusinessKey,
  pageIdsByExternalId,
  pageIdsOfDeadLetters,
  pageIdsOfDue,
  readWholeTasks,
  someIdsByTag,
  walkTasks,
} from '../../services/producer/tasks.sql.ts';
import { readCancels } from '../../services/worker/leases.sql.ts';
import { readAttemptLogs } from '../../shared/tasks/attempt-logs.sql.ts';
import { readAttempts } from '../../shared/tasks/attempts.sql.ts';
import { findOperation } from '../../shared/tasks/operations.sql.ts';
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
  await db.database.query({
    text: `insert into flows (id, name, business_type, business_key, on_failure, steps_total, steps_open, state, finished_at)
           select uuid_v7(), 'n' || n % 10, 'b', 'k' || n, 'stop', 1, 0, (case n % 1000 when 0 then 'failed' else 'succeeded' end)::flow_state, now()
             from generate_series(1, 20000) n`,
  });
  await db.database.query({ text: 'analyze tasks, flows' });
});
afterAll(async () => await db[Symbol.asyncDispose]());

const PLANS: readonly (readonly [Pick<Statement<readonly unknown[], Columns>, 'name' | 'text'>, string])[] = [
  [walkTasks, 'tasks_default_pkey'],
  [endOfWalk, 'tasks_default_pkey'],
  [pageIdsByBusinessKey, 'tasks_default_business_key_id_idx'],
  [pageIdsByExternalId, 'tasks_default_external_id_id_idx'],
  [countTagged, 'tasks_default_pkey'],
  [someIdsByTag, 'tasks_default_tags_idx'],
  [pageIdsOfDue, 'due_pkey'],
  [pageIdsOfDeadLetters, 'dead_letters_task'],
  [filterTasks, 'tasks_default_pkey'],
  [readWholeTasks, 'tasks_default_pkey'],
  [readAttempts, 'attempts_pkey'],
  [cancelTasks, 'tasks_default_pkey'],
  [editTasks, 'tasks_default_pkey'],
  [readType, 'tasks_default_pkey'],
  [readCancels, 'claims_worker'],
  [findOperation, 'audit_pkey'],
  [readHistoryTask, 'tasks_default_pkey'],
  [readHistoryAttempts, 'attempts_pkey'],
  [readHistoryLetters, 'dead_letters_task'],
  [readHistoryAudit, 'audit_target'],
  [readAttemptLogs, 'attempt_logs_pkey'],
  [listOnce, 'once_runs_pkey'],
  [pageFlowsByKey, 'flows_business_key'],
  [pageFlowsByState, 'flows_state'],
  [pageFlowsByName, 'flows_name'],
  [pageFlowsByParent, 'flows_parent'],
  [countFlowTasks, 'flows_pkey'],
  [pageFlows, 'flows_pkey'],
  [readFlowSteps, 'flow_steps_pkey'],
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
    expect(plan).not.toMatch(/Seq Scan on (tasks|flows)|Sort Key: (f\.)?id/);
  } finally {
    connection.release(true);
  }
});
