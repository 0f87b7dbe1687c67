/** While partitions come and go every moment, fifty clients claim, settle and replay: nothing is lost, and nobody is refused. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { replayTask } from '../../services/dead-letter-handler/replayer.sql.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { aDeath, addTasks, count, openWorker, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openAudit } from '../support/ledger.ts';
import { expectAllAccounted, openRetention, partitions, RETENTION_SESSIONS } from '../support/retention.ts';
import { seeded } from '../support/seeded.ts';

const CLIENTS = 50;
const ROUNDS = 2;
const TASKS = 4;
const KEPT_MS = 3_000;
const QUICK = {
  tasks: (['succeeded', 'cancelled', 'expired', 'dead'] as const).map((state) => ({
    type: '',
    state,
    keptMs: KEPT_MS,
  })),
  ripeMs: KEPT_MS,
  shortestMs: KEPT_MS,
  spanMs: 2_000,
  lettersMs: KEPT_MS,
};

const KILL_HALF = `
  select pg_terminate_backend(pid) from pg_stat_activity
   where application_name = $1 and datname = current_database() and random() < 0.5`;

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase({ max: 24 });
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

async function replay(taskId: string): Promise<void> {
  const [letter] = await rows<{ id: string }>(
    db,
    `select id from dead_letters where task_id = $1 and state = 'open'`,
    taskId,
  );
  const done = await retryConflicts(
    db,
    async () => await run(db, replayTask, letter?.id ?? '', 'ann', 'operator', null, newId(), newId(), null),
  );
  expect(done).toHaveLength(1);
}

/** Submits, claims, lets half of its tasks die, and brings those back after some partitions have gone. */
async function client(worker: TestWorker, random: () => number): Promise<void> {
  for (let round = 0; round < ROUNDS; round += 1) {
    const ids = await addTasks(db, TASKS);
    for (const [index, id] of ids.entries()) {
      const claim = await worker.win(id);
      const isDying = index % 2 === 0;
      const answer = await (isDying
        ? worker.settles.settle(claim, aDeath())
        : worker.settles.succeed(claim, undefined));
      expect(answer).toBe(isDying ? 'dead' : 'succeeded');
      if (!isDying) continue;
      await systemClock.sleep(random() * 4 * KEPT_MS);
      await replay(id);
      const again = await worker.win(id, 2);
      expect(again.attempt).toBe(2);
      expect(await worker.settles.succeed(again, undefined)).toBe('succeeded');
    }
  }
}

test('fifty clients lose no task to retention, whose sessions are killed at any moment', async () => {
  const random = seeded(7);
  const workers = await Promise.all(Array.from({ length: 5 }, async () => await openWorker(db)));
  const seen = new Set<string>();
  let killed = 0;
  let isOver = false;
  await using audit = await openAudit(db, { rowsPerStep: 500 });
  {
    await using _one = await openRetention(db, QUICK);
    await using _other = await openRetention(db, QUICK);
    const killing = (async () => {
      while (!isOver) {
        await systemClock.sleep(600 + random() * 900);
        for (const { name } of await partitions(db)) seen.add(name);
        killed += (await rows(db, KILL_HALF, RETENTION_SESSIONS)).length;
      }
    })();
    const clients = Array.from(
      { length: CLIENTS },
      async (_, n) => await client(workers[n % 5] as TestWorker, seeded(n + 1)),
    );
    await Promise.all(clients).finally(() => (isOver = true));
    await killing;
    await audit.pass();
    expect(audit.lines.filter(({ message }) => message === 'ledger differs')).toEqual([]);
    expect(killed).toBeGreaterThan(5);
    await eventually(async () => expect(await count(db, 'tasks')).toBe(0), { withinMs: 60_000 });
    await eventually(async () => expect(await count(db, 'dead_letters')).toBe(0), { withinMs: 30_000 });
    await eventually(async () => expect(await rows(db, 'select name from retired_partitions')).toEqual([]));
  }
  const there = new Set((await partitions(db)).map(({ name }) => name));
  expect([...seen].filter((name) => name.startsWith('tasks_rest_')).length).toBeGreaterThan(0);
  expect([...seen].filter((name) => name.startsWith('tasks_from_') && !there.has(name)).length).toBeGreaterThan(4);
  expect(there.size).toBeLessThan(20);
  await expectAllAccounted(db);
  const accepted = await rows(db, `select sum(tasks)::int4 as n from ledger_entries where entry = 'accepted'`);
  expect(accepted).toEqual([{ n: CLIENTS * ROUNDS * TASKS }]);
}, 540_000);
