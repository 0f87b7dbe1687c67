/** Rows that stand for tasks are removed behind the fleet's back: every task still comes to its end. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

test('invariants 1 and 4: tasks that lost their rows of due, claims, dead letters and of what held them back end, each death with its letter', async () => {
  const env = { WARREN_LEDGER_INTERVAL_MS: '100', WARREN_LEDGER_STRANDED_AFTER_MS: '100' };
  await using fleet = await openFleet({ workers: 2, env });
  const db = fleet.database.database;
  const [dies = ''] = await fleet.submit({ input: { failures: 9 } });
  await eventually(async () => expect((await fleet.task(dies)).state).toBe('dead'));
  const kinds = [{ input: { ms: 1_500 } }, { delayMs: 1_500 }, { input: { failures: 1 }, delayMs: 1_000 }] as const;
  await fleet.submit(...Array.from({ length: 24 }, (_, index) => kinds[index % 3] ?? {}));
  await eventually(async () => expect((await fleet.books()).running).toBe(8));
  const ran = new Set(fleet.entries().map(({ taskId }) => taskId));
  expect(ran.size).toBeGreaterThan(8);

  await fleet.worker(0).kill();
  await db.query({ text: 'delete from claims' });
  await db.query({ text: 'delete from due' });
  // Some that wait are held back, and what stands for that goes too.
  await db.query({ text: `update tasks set invited_at = null, generation = generation + 1 where state = 'pending'` });
  await db.query({ text: 'delete from held_back' });
  await db.query({ text: 'delete from dead_letters' });

  expect(await fleet.ended()).toMatchObject({ accepted: 25, succeeded: 24, dead: 1 });
  await eventually(async () => expect(await fleet.deadLetters()).toMatchObject([{ task_id: dies }]));
  await expectSoundHistory(fleet);
});
