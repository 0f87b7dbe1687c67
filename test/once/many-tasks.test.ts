/** Cancelling and editing by filter: what is done, what is recorded, and what is left where it is cut off. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { cancelEach } from '../../services/producer/cancel.ts';
import { doToMany } from '../../services/producer/many.ts';
import { parseTaskFilter } from '../../services/producer/task-filter.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Query } from '../../shared/postgres/statement.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { addTask, addTasks, count, openWorker, readTask, rows } from '../support/core.ts';
import { expectBalance } from '../support/ledger.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';

const TOKENS = [
  { name: 'vera', role: 'viewer', token: 'viewer-token-0123456789' },
  { name: 'olga', role: 'operator', token: 'operator-token-0123456789' },
  { name: 'otto', role: 'operator', token: 'other-token-0123456789' },
] as const;

let api: TestTaskApi;
const db = (): TestTaskApi['db']['database'] => api.db.database;
let since: Date;
beforeAll(async () => {
  api = await openTaskApi([aType('test.noop'), aType('x', { queue: 'bulk' })], { tokens: TOKENS });
});
afterAll(async () => await api[Symbol.asyncDispose]());
beforeEach(async () => {
  await db().query({ text: 'truncate tasks, due, claims, cancel_requests, attempts, outbox, ledger_entries' });
  api.invited.length = 0;
  // The audit is never emptied.
  [{ at: since }] = (await rows<{ at: Date }>(db(), 'select clock_timestamp() as at')) as [{ at: Date }];
});

async function post(what: 'cancel' | 'edit', body: unknown, as: (typeof TOKENS)[number] = TOKENS[1]): Promise<Answer> {
  return await api.post(`/v1/tasks/${what}`, JSON.stringify(body), { authorization: `Bearer ${as.token}` });
}

const lines = async (action: string): Promise<readonly { target: string; detail: Record<string, unknown> }[]> =>
  await rows(db(), 'select target, detail from audit where action = $1 and at >= $2 order by at', action, since);
const stateCounts = async (): Promise<Record<string, number>> =>
  Object.fromEntries(
    (await rows<{ state: string; n: number }>(db(), 'select state, count(*)::int4 as n from tasks group by 1')).map(
      ({ state, n }) => [state, n],
    ),
  );

describe('a cancel by filter', () => {
  test('cancels what waits, asks for what runs, leaves the rest alone, and records each', async () => {
    await addTasks(db(), 1_203);
    const scheduled = await addTask(db(), { state: 'scheduled', runAt: `now() + interval '1 h'` });
    const other = await addTask(db(), { type: 'x' });
    const worker = await openWorker(db());
    const [running, over] = [await worker.win(await addTask(db())), await worker.win(await addTask(db()))];
    await worker.settles.succeed(over, undefined);
    const { status, json } = await post('cancel', { filter: 'type:test.noop', reason: 'of a test' });
    expect([status, json]).toMatchObject([
      200,
      { dryRun: false, cancelled: 1_204, requested: 1, skipped: 0, isPartial: false },
    ]);
    expect(json['nextCursor']).toBeUndefined();
    expect(await stateCounts()).toEqual({ cancelled: 1_204, running: 1, succeeded: 1, pending: 1 });
    expect((await readTask(db(), other)).state).toBe('pending');
    expect(await count(db(), 'due')).toBe(0);
    expect(await rows(db(), 'select task_id from cancel_requests')).toEqual([{ task_id: running.taskId }]);
    expect(await lines('tasks.cancel')).toEqual([
      { target: json['operation'], detail: { filter: 'type:test.noop', reason: 'of a test' } },
    ]);
    const each = await lines('task.cancel');
    expect(each).toHaveLength(1_205);
    expect(each.find(({ target }) => target === scheduled)?.detail).toEqual({
      reason: 'of a test',
      operation: json['operation'],
      was: 'scheduled',
    });
    await expectBalance(db());
  });

  test('says before what it would do, and does nothing', async () => {
    await addTasks(db(), 30);
    const { json } = await post('cancel', { filter: 'state:pending', all: true, dryRun: true });
    expect(json).toMatchObject({ dryRun: true, selected: 30, isPartial: false });
    expect(json['samples']).toHaveLength(10);
    expect(await stateCounts()).toEqual({ pending: 30 });
    expect(await lines('tasks.cancel')).toEqual([]);
  });

  test('that is out of time says where to go on, and the same operation goes on there', async () => {
    await addTasks(db(), 1_700);
    let ms = 0;
    const slow: Transactional = {
      deps: { ...db().deps, clock: { ...db().deps.clock, monotonicMs: () => (ms += 1_000) } },
      query: async (query) => await db().query(query),
      checkOut: async () => await db().checkOut(),
    };
    const actor = { name: 'olga', role: 'operator' } as const;
    const done = await doToMany(
      slow,
      {
        filter: parseTaskFilter('type:test.noop'),
        text: 'type:test.noop',
        states: ['pending'],
        actor,
        reason: 'x',
        from: undefined,
        withinMs: 100,
      },
      {
        action: 'tasks.cancel',
        act: async (ids, operation) => void (await cancelEach(db(), ids, { actor, reason: 'x', operation })),
      },
    );
    expect(await stateCounts()).toEqual({ cancelled: 500, pending: 1_200 });
    const cursor = Buffer.from(JSON.stringify(done.place)).toString('base64url');
    // What was accepted after it began is not meant.
    const later = await addTask(db());
    const again = { filter: 'type:test.noop', reason: 'x', cursor };
    for (const [wrong, as] of [
      [{ ...again, filter: 'type:*', all: true }, TOKENS[1]],
      [again, TOKENS[2]],
      [{ ...again, cursor: 'x' }, TOKENS[1]],
    ] as const) {
      expect((await post('cancel', wrong, as)).json).toMatchObject({ type: 'cursor-invalid' });
    }
    expect((await post('cancel', again)).json).toMatchObject({
      operation: done.operation,
      cancelled: 1_200,
      isPartial: false,
    });
    expect((await readTask(db(), later)).state).toBe('pending');
    expect(await lines('tasks.cancel')).toHaveLength(1);
    await expectBalance(db());
  });

  test('that dies in the middle leaves each task either cancelled and recorded, or untouched', async () => {
    await addTasks(db(), 1_200);
    let chunks = 0;
    const dying: Transactional = {
      deps: db().deps,
      checkOut: async () => await db().checkOut(),
      query: async (query: Query) => {
        if (query.name === 'cancel_tasks' && (chunks += 1) > 1) throw new WarrenError('database-unavailable');
        return await db().query(query);
      },
    };
    const actor = { name: 'olga', role: 'operator' } as const;
    const request = { filter: parseTaskFilter('type:test.noop'), text: '', actor, reason: 'x', from: undefined };
    const work = {
      action: 'tasks.cancel',
      act: async (ids: readonly string[], operation: string) =>
        void (await cancelEach(dying, ids, { actor, reason: 'x', operation })),
    };
    await expect(doToMany(dying, { ...request, states: ['pending'], withinMs: 20_000 }, work)).rejects.toThrow(
      expect.objectContaining({ code: 'database-unavailable' }),
    );
    expect(await stateCounts()).toEqual({ cancelled: 500, pending: 700 });
    expect(await lines('task.cancel')).toHaveLength(500);
    expect((await post('cancel', { filter: 'type:test.noop', reason: 'again' })).json).toMatchObject({
      cancelled: 700,
    });
  });

  test('of fifty clients at once cancels each task once', async () => {
    await addTasks(db(), 600);
    const answers = await Promise.all(
      Array.from({ length: 50 }, async () => await post('cancel', { filter: 'type:test.noop', reason: 'x' })),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    const cancelled = answers.reduce((sum, { json }) => sum + Number(json['cancelled']), 0);
    expect([cancelled, (await lines('task.cancel')).length]).toEqual([600, 600]);
    await expectBalance(db());
  });
});

describe('an edit by filter', () => {
  test('edits what waits, invites anew what is pending, and passes over what is as wanted', async () => {
    const ids = await addTasks(db(), 700);
    const retrying = await addTask(db(), { state: 'retrying', runAt: `now() + interval '1 h'` });
    const same = await addTask(db(), { priority: 9, queue: 'bulk' });
    const worker = await openWorker(db());
    const running = await worker.win(await addTask(db()));
    const changes = { priority: 9, queue: 'bulk' };
    const { json } = await post('edit', { filter: 'type:test.noop', changes, reason: 'urgent' });
    expect(json).toMatchObject({ dryRun: false, edited: 701, skipped: 1, isPartial: false });
    expect(await count(db(), 'tasks', `priority = 9 and queue = 'bulk' and generation = 2`)).toBe(701);
    expect(await readTask(db(), same)).toMatchObject({ generation: 1 });
    expect(await readTask(db(), running.taskId)).toMatchObject({ generation: 1, priority: 4 });
    expect(await readTask(db(), retrying)).toMatchObject({ state: 'retrying', generation: 2 });
    const invited = api.invited.flatMap(({ invitations }) => invitations);
    expect(new Set(invited.map(({ taskId }) => taskId))).toEqual(new Set(ids));
    expect(new Set(invited.map(({ priority, queue, generation }) => `${priority} ${queue} ${generation}`))).toEqual(
      new Set(['9 bulk 2']),
    );
    expect(await lines('tasks.edit')).toEqual([
      { target: json['operation'], detail: { filter: 'type:test.noop', changes, reason: 'urgent' } },
    ]);
    expect(await lines('task.edit')).toHaveLength(701);
    expect((await post('edit', { filter: 'type:test.noop', changes, reason: 'again' })).json).toMatchObject({
      edited: 0,
      skipped: 702,
    });
  });

  test('puts many off, and brings them back', async () => {
    await addTasks(db(), 20);
    await db().query({ text: `update tasks set state = 'blocked' where id = (select id from tasks limit 1)` });
    const filter = 'type:test.noop';
    await post('edit', { filter, changes: { delayMs: 60_000 }, reason: 'later' });
    expect([await stateCounts(), await count(db(), 'due')]).toEqual([{ scheduled: 19, blocked: 1 }, 19]);
    await post('edit', { filter, changes: { runAt: null }, reason: 'now' });
    expect([await stateCounts(), await count(db(), 'due')]).toEqual([{ pending: 19, blocked: 1 }, 0]);
    expect(await count(db(), 'outbox')).toBe(1);
  });

  test('says before what it would do', async () => {
    await addTasks(db(), 3);
    const body = { filter: 'type:test.noop', changes: { priority: 1 }, dryRun: true };
    expect((await post('edit', body)).json).toMatchObject({ dryRun: true, selected: 3 });
    expect(await count(db(), 'tasks', 'priority = 1')).toBe(0);
  });
});

test.each([
  ['cancel', { reason: 'x' }, 'field-invalid', 'filter'],
  ['cancel', { filter: 'state:pending', reason: 'x' }, 'field-invalid', 'filter'],
  ['cancel', { filter: 'colour:red', reason: 'x' }, 'field-invalid', 'filter'],
  ['cancel', { filter: 'type:a' }, 'field-invalid', 'reason'],
  ['cancel', { filter: 'type:a', reason: '' }, 'field-invalid', 'reason'],
  ['cancel', { filter: 'type:a', reason: 'x', withinMs: 5 }, 'field-invalid', 'withinMs'],
  ['edit', { filter: 'type:a', reason: 'x' }, 'field-invalid', 'changes'],
  ['edit', { filter: 'type:a', reason: 'x', changes: {} }, 'field-invalid', 'body'],
  ['edit', { filter: 'type:a', reason: 'x', changes: { queue: 'nowhere' } }, 'queue-unknown', 'queue'],
  ['edit', { filter: 'type:a', reason: 'x', changes: { input: {} } }, 'field-invalid', 'changes.input'],
] as const)('%s of %j is refused as %s of %s', async (what, body, type, field) => {
  expect((await post(what, body)).json).toMatchObject({ type, field });
  expect((await post(what, { ...body }, TOKENS[0])).json).toMatchObject({ type: 'role-insufficient' });
});
