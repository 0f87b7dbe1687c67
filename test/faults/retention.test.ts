/** Producers killed while they retire partitions: whoever comes next goes on, and the books balance. */
import { expect, test } from '@jest/globals';
import { partitionName } from '../../services/producer/retention-plan.ts';
import { addTask, count, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import {
  addEnded,
  addLetters,
  daysAgo,
  expectAllAccounted,
  idOf,
  partitionOfDays,
  settled,
  tableOf,
} from '../support/retention.ts';

test('producers killed at any moment of a retirement lose no task, and the last one ends it', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 0 });
  const db = fleet.database.database;
  await partitionOfDays(db, 50, 45);
  for (let index = 0; index < 3; index += 1) await addEnded(db, 2_000, daysAgo(49) + index);
  const dead = await addEnded(db, 300, daysAgo(47), { state: 'dead' });
  await addLetters(db, dead);
  const waiting = await addTask(db, { id: idOf(daysAgo(46)) });
  const env = { WARREN_RETENTION_INTERVAL_MS: '20' };
  // Each has judged more than the one before; killed in the middle, whatever it was doing.
  for (const judged of [1, 2_000, 4_000]) {
    const producer = fleet.start('producer', env);
    await eventually(
      async () => {
        const [row] = await rows<{ n: number }>(db, 'select (retired + kept)::int4 as n from task_retirements');
        expect(row?.n).toBeGreaterThanOrEqual(judged);
      },
      { withinMs: 60_000, everyMs: 5 },
    );
    await producer.kill();
    expect(await count(db, 'tasks')).toBe(6_301);
    await expectAllAccounted(db);
  }
  fleet.start('producer', env);
  await settled(db, [partitionName(daysAgo(50))]);
  expect(await count(db, 'tasks')).toBe(301);
  expect(await tableOf(db, waiting)).toMatch(/^tasks_rest_/);
  expect(await tableOf(db, dead[0] ?? '')).toMatch(/^tasks_rest_/);
  await expectAllAccounted(db);
}, 720_000);
