/** A database that was restored from a backup: what is open runs again under a number of its own, and says so. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { LIFTED_BY } from '../../services/producer/ledger-reconcile.ts';
import { addTask, addTasks, openWorker, readTask, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { expectBalance } from '../support/ledger.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';

const TOKENS = [
  { name: 'olga', role: 'operator', token: 'operator-token-0123456789' },
  { name: 'ada', role: 'admin', token: 'admin-token-0123456789' },
] as const;
const REASON = 'restored the backup of 02:00';

let api: TestTaskApi;
const db = (): TestTaskApi['db']['database'] => api.db.database;
beforeAll(async () => void (api = await openTaskApi([aType('test.noop')], { tokens: TOKENS })));
afterAll(async () => await api[Symbol.asyncDispose]());
beforeEach(async () => {
  await db().query({
    text: 'truncate tasks, due, claims, leases, attempts, outbox, held_back, dead_letters, ledger_entries',
  });
});

async function reconcile(body: object, as: (typeof TOKENS)[number] = TOKENS[1]): Promise<Answer> {
  return await api.post('/v1/ledger/reconcile', JSON.stringify(body), { authorization: `Bearer ${as.token}` });
}

/** As the backup shows a worker that was alive when it was made. */
async function aWorkerOfLongAgo(): Promise<TestWorker> {
  const worker = await openWorker(db());
  await db().query({ text: `update leases set renewed_at = clock_timestamp() - interval '1 h'` });
  return worker;
}

const invitedOf = async (): Promise<readonly string[]> =>
  (await rows<{ id: string }>(db(), 'select unnest(task_ids) as id from outbox')).map(({ id }) => id);

describe('reconciling after a restore', () => {
  test('lifts the attempt of whatever is open, frees what ran, invites what waits, and leaves alone what has ended', async () => {
    const [waiting, held] = [await addTask(db()), await addTask(db(), { invitedAt: 'null' })];
    const later = await addTask(db(), { state: 'retrying', attempt: 2, runAt: `now() + interval '1 h'` });
    const worker = await aWorkerOfLongAgo();
    const [running, over] = [await worker.win(await addTask(db())), await worker.win(await addTask(db()))];
    await worker.settles.succeed(over, undefined);
    await db().query({ text: 'truncate outbox' });

    const { status, json } = await reconcile({ reason: REASON });
    expect([status, json]).toMatchObject([200, { dryRun: false, freed: 1, lifted: 4, invited: 2, isPartial: false }]);
    expect(await readTask(db(), waiting)).toMatchObject({ state: 'pending', attempt: LIFTED_BY });
    expect(await readTask(db(), held)).toMatchObject({ state: 'pending', attempt: LIFTED_BY, invited_at: null });
    expect(await readTask(db(), later)).toMatchObject({ state: 'retrying', attempt: 2 + LIFTED_BY });
    expect(await readTask(db(), running.taskId)).toMatchObject({
      state: 'pending',
      attempt: 1 + LIFTED_BY,
      failures: 0,
    });
    expect(await readTask(db(), over.taskId)).toMatchObject({ state: 'succeeded', attempt: 1 });
    // Once by the one that freed it, which nobody may have published, and once more.
    expect(new Set(await invitedOf())).toEqual(new Set([waiting, running.taskId]));
    expect(
      await rows(
        db(),
        `select 1 from audit where action = 'ledger.reconcile' and actor = 'ada' and id = $1`,
        json['operation'],
      ),
    ).toHaveLength(1);
    await expectBalance(db());

    // Whoever held it before the restore settles nothing; the next attempt has a number that no other had.
    expect(await worker.settles.succeed(running, undefined)).toBe('fenced');
    const next = await (await openWorker(db())).win(running.taskId);
    expect(next.attempt).toBe(2 + LIFTED_BY);
    const { json: history } = await api.get(`/v1/tasks/${running.taskId}/history`, {
      authorization: `Bearer ${TOKENS[0].token}`,
    });
    const entries = history['items'] as readonly Record<string, unknown>[];
    expect(entries.map(({ kind, attempt }) => [kind, attempt])).toEqual([
      ['accepted', undefined],
      ['started', 1],
      ['ended', 1],
      ['restored', 1 + LIFTED_BY],
      ['started', 2 + LIFTED_BY],
    ]);
    expect(entries[3]?.['reason']).toBe(
      `The database was restored from a backup (operation ${String(json['operation'])}): attempts up to this one may have run since, and are not on record.`,
    );
  });

  test('is refused while a worker is alive, and names it: it may hold what the backup does not know', async () => {
    const id = await addTask(db());
    await openWorker(db());
    for (const body of [{ reason: REASON }, { dryRun: true }]) {
      const { status, json } = await reconcile(body);
      expect([status, json]).toMatchObject([409, { type: 'workers-alive', workers: 1, hosts: [expect.any(String)] }]);
    }
    expect(await readTask(db(), id)).toMatchObject({ attempt: 0 });
  });

  test('of many goes on where it stopped, and lifts none twice', async () => {
    await addTasks(db(), 1_203);
    const preview = await reconcile({ dryRun: true });
    expect(preview.json).toMatchObject({ dryRun: true, selected: 1_203, isPartial: false });
    let [lifted, cursor] = [0, undefined as unknown];
    do {
      const { json } = await reconcile({ reason: REASON, cursor, withinMs: 100 });
      lifted += Number(json['lifted']);
      cursor = json['nextCursor'];
    } while (cursor !== undefined);
    expect(lifted).toBe(1_203);
    const counts = await rows(db(), 'select attempt, count(*)::int4 as tasks from tasks group by 1');
    expect(counts).toEqual([{ attempt: LIFTED_BY, tasks: 1_203 }]);
    expect(
      await rows(db(), `select 1 from attempts where outcome = 'interrupted' and error_code = 'restored'`),
    ).toHaveLength(1_203);
  });

  test('needs the role admin and a reason', async () => {
    expect((await reconcile({ reason: REASON }, TOKENS[0])).status).toBe(403);
    const { status, json } = await reconcile({});
    expect([status, json]).toMatchObject([400, { type: 'field-invalid', field: 'reason' }]);
  });
});
