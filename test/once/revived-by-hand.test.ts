/** A task that was made to live again by hand ends as any other, and holds up nobody: its letter is open, its attempts are there. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { reapOrphans } from '../../services/producer/reaper.sql.ts';
import { closeLease, handBackClaims } from '../../services/worker/leases.sql.ts';
import { run } from '../../shared/postgres/statement.ts';
import { aDeath, addTask, addTasks, openWorker, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

/** A task that died once, got the broker's evidence, and was set back to pending in its row alone. */
async function aRevived(): Promise<string> {
  const worker = await openWorker(db);
  const id = await addTask(db, { lostAlone: 2 });
  await worker.settles.settle(await worker.win(id), aDeath({ reason: 'timeout' }));
  await db.query({
    text: `update dead_letters set recorded_at = now(), exchange = 'x', routing_key = 'k', properties = '{}', headers = '{}',
                  x_death = '[]', evidence_key = decode(md5(id::text), 'hex') where task_id = $1`,
    values: [id],
  });
  await db.query({ text: `update tasks set state = 'pending', finished_at = null where id = $1`, values: [id] });
  return id;
}

const letters = async (id: string): Promise<unknown[]> =>
  await rows(db, 'select state, reason, attempt, recorded_at, x_death from dead_letters where task_id = $1', id);

test('its letter becomes that of the new death when it is settled, beside others', async () => {
  const id = await aRevived();
  const other = await addTask(db);
  const worker = await openWorker(db);
  const claims = [await worker.win(id), await worker.win(other)];
  const settled = await Promise.all(claims.map(async (claim) => await worker.settles.settle(claim, aDeath())));
  expect(settled).toEqual(['dead', 'dead']);
  expect(await letters(id)).toEqual([
    { state: 'open', reason: 'non_retryable', attempt: 2, recorded_at: null, x_death: null },
  ]);
});

test('its letter becomes that of the new death when its worker is lost', async () => {
  const id = await aRevived();
  const worker = await openWorker(db);
  await worker.claims.markAlone(await worker.win(id));
  await run(db, closeLease, worker.workerId);
  expect(await run(db, reapOrphans, 50, 3)).toHaveLength(1);
  expect((await readTask(db, id)).state).toBe('dead');
  expect(await letters(id)).toEqual([
    { state: 'open', reason: 'worker_lost', attempt: 2, recorded_at: null, x_death: null },
  ]);
});

test('one whose attempts are counted from 0 again ends, is lost and is handed back; its history stays', async () => {
  const worker = await openWorker(db);
  const ids = await addTasks(db, 3);
  for (const id of ids) await worker.settles.settle(await worker.win(id), aDeath());
  await db.query({ text: 'delete from dead_letters' });
  await db.query({
    text: `update tasks set state = 'pending', attempt = 0, finished_at = null where id = any($1::uuid[])`,
    values: [`{${ids.join(',')}}`],
  });
  const [settled = '', lost = '', back = ''] = ids;
  expect(await worker.settles.settle(await worker.win(settled), aDeath())).toBe('dead');

  const { claimId } = await worker.win(back);
  expect(await run(db, handBackClaims, worker.workerId, [claimId])).toHaveLength(1);

  await worker.win(lost);
  await run(db, closeLease, worker.workerId);
  expect(await run(db, reapOrphans, 50, 3)).toHaveLength(1);
  const history = await rows(db, 'select outcome from attempts where task_id = any($1::uuid[])', `{${ids.join(',')}}`);
  expect(history).toEqual(ids.map(() => ({ outcome: 'failed' })));
});
