/** Looks for whole tasks that come at once share statements, and each gets its own task. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Submitter } from '../../services/producer/submit.ts';
import { TaskFinder } from '../../services/producer/task-finder.ts';
import type { WarrenError } from '../../shared/errors/warren-error.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { openFaulty, partDeps } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: Database;
const ids: string[] = [];

beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  const invite = async (): Promise<boolean> => await Promise.resolve(true);
  const submitter = new Submitter(
    {
      db,
      log: silentLogger,
      invite,
      isOutboxFull: () => false,
      holdReasonOf: () => undefined,
      metrics: partDeps.metrics,
    },
    { maxBatch: 500 },
  );
  for (let each = 0; each < 100; each += 1) {
    const input = Buffer.from(JSON.stringify({ each }));
    const acceptance = await submitter.submit({ type: 'mail', queue: 'default', priority: 4, maxAttempts: 3, input });
    if (acceptance.kind === 'accepted') ids.push(acceptance.id);
  }
});
afterAll(async () => await opened[Symbol.asyncDispose]());

test('each of many looks at once finds its own task, or that there is none', async () => {
  await using counted = await openFaulty(db);
  const finder = new TaskFinder(counted);
  const asked = Array.from({ length: 1_000 }, (_, index) => (index % 7 === 0 ? newId() : (ids[index % 100] ?? '')));
  const found = await Promise.all(asked.map(async (id) => await finder.find(id)));
  found.forEach((each, index) => {
    const input = index % 7 === 0 ? undefined : JSON.stringify({ each: index % 100 });
    expect([each?.task.id, each?.task.input.toString()]).toEqual([input && asked[index], input]);
  });
  expect(counted.sent.length).toBeLessThan(50);
});

test('a look sees what was committed before it began', async () => {
  const finder = new TaskFinder(db);
  const looks = ids.map(async (id) => await finder.find(id));
  const [id = ''] = ids;
  await db.query({ text: `update tasks set priority = 9 where id = $1`, values: [id] });
  expect((await finder.find(id))?.task.priority).toBe(9);
  await Promise.all(looks);
});

test('a failure of Postgres is told to each that looks, and the next look finds', async () => {
  await using faulty = await openFaulty(db);
  faulty.fault = () => 'refuse';
  const finder = new TaskFinder(faulty);
  const looks = await Promise.allSettled(ids.map(async (id) => await finder.find(id)));
  const reasons = looks.map((look) => (look.status === 'rejected' ? (look.reason as WarrenError).code : 'found'));
  expect(new Set(reasons)).toEqual(new Set(['database-unavailable']));
  faulty.fault = () => undefined;
  expect((await finder.find(ids[0] ?? ''))?.task.id).toBe(ids[0]);
});
