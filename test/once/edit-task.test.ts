/** Editing a task that waits: what changes, what is invited, and who is told that it is too late. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { dispatchDue } from '../../services/producer/dispatcher.sql.ts';
import { run } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { TASK_STATES } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { addTask, count, openWorker, readTask, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { expectBalance } from '../support/ledger.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';

const TOKENS = [
  { name: 'vera', role: 'viewer', token: 'viewer-token-0123456789' },
  { name: 'olga', role: 'operator', token: 'operator-token-0123456789' },
  { name: 'edda', role: 'editor', token: 'editor-token-0123456789' },
] as const;
const [VIEWER, OPERATOR, EDITOR] = TOKENS;
const AHEAD = '2099-01-31T12:00:00.000Z';

let api: TestTaskApi;
const db = (): TestTaskApi['db']['database'] => api.db.database;
beforeAll(async () => {
  const inputSchema = { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] };
  api = await openTaskApi(
    [
      aType('mail.send', { inputSchema }),
      aType('x', { queue: 'bulk', concurrency: { limit: 1, key: 'input.to' }, rate: { limit: 5, perMs: 1_000 } }),
    ],
    {
      tokens: TOKENS,
    },
  );
});
afterAll(async () => await api[Symbol.asyncDispose]());
beforeEach(async () => {
  await db().query({ text: 'truncate tasks, due, claims, cancel_requests, attempts, outbox, ledger_entries' });
  api.invited.length = 0;
});

async function submit(members: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const body = JSON.stringify({ type: 'mail.send', input: { to: 'a' }, ...members });
  const answer = await api.post('/v1/tasks', body, { authorization: `Bearer ${OPERATOR.token}` });
  expect(answer.status).toBe(202);
  await db().query({ text: 'delete from outbox' }); // as if it had been published
  return String(answer.json['id']);
}

async function edit(
  id: string,
  body: unknown,
  { as = OPERATOR, ifMatch }: { as?: (typeof TOKENS)[number]; ifMatch?: string } = {},
): Promise<Answer> {
  return await api.patch(`/v1/tasks/${id}`, typeof body === 'string' ? body : JSON.stringify(body), {
    authorization: `Bearer ${as.token}`,
    ...(ifMatch === undefined ? {} : { 'if-match': ifMatch }),
  });
}

const dueOf = async (id: string): Promise<string | undefined> =>
  (await rows<{ at: Date }>(db(), 'select at from due where task_id = $1', id))[0]?.at.toISOString();
const auditOf = async (id: string): Promise<readonly unknown[]> =>
  await rows(db(), 'select actor, role, action, detail from audit where target = $1 order by at', id);
const outbox = async (): Promise<readonly unknown[]> =>
  await rows(db(), 'select task_ids, queues, priorities, generations from outbox order by id');

/** Puts a task into a state, as whoever leads there does. */
async function become(id: string, state: TaskState): Promise<void> {
  const isEnd = ['succeeded', 'dead', 'cancelled', 'expired'].includes(state);
  const waits = state === 'scheduled' || state === 'retrying';
  await db().query({
    text: `update tasks set state = $2::task_state, claim_id = $3, worker = $3, started_at = now(), attempt = 1,
                  finished_at = ${isEnd ? 'now()' : 'null'}, run_at = ${waits ? `'${AHEAD}'` : 'null'},
                  invited_at = ${state === 'pending' ? 'now()' : 'null'}
            where id = $1`,
    values: [id, state, randomUUID()],
  });
  if (waits) await db().query({ text: `insert into due (task_id, at) values ($1, '${AHEAD}')`, values: [id] });
}

describe('an edit of a pending task', () => {
  test('changes it, raises its generation and invites it anew with what it is now; the invitation of before loses', async () => {
    const id = await submit();
    const answer = await edit(id, { priority: 9, queue: 'bulk', reason: 'of a test' });
    expect([answer.status, answer.headers.get('etag')]).toEqual([200, '"2"']);
    expect(answer.json).toMatchObject({
      id,
      state: 'pending',
      priority: 9,
      queue: 'bulk',
      generation: 2,
      input: { to: 'a' },
    });
    const invitation = { taskId: id, type: 'mail.send', queue: 'bulk', priority: 9, generation: 2 };
    expect(api.invited).toMatchObject([{ invitations: [invitation] }]);
    expect(await outbox()).toEqual([{ task_ids: [id], queues: ['bulk'], priorities: [9], generations: [2] }]);
    const worker = await openWorker(db());
    expect((await worker.claims.claim({ taskId: id, generation: 1 })).kind).toBe('lost');
    expect((await worker.claims.claim({ taskId: id, generation: 2 })).kind).toBe('won');
    expect(await auditOf(id)).toEqual([
      {
        actor: 'olga',
        role: 'operator',
        action: 'task.edit',
        detail: {
          reason: 'of a test',
          changed: { priority: { before: 4, after: 9 }, queue: { before: 'default', after: 'bulk' } },
        },
      },
    ]);
  });

  test('that changes nothing does nothing', async () => {
    const id = await submit();
    const answer = await edit(id, { priority: 4, queue: 'default', delayMs: 0 });
    expect([answer.status, answer.headers.get('etag')]).toEqual([200, '"1"']);
    expect([await outbox(), await auditOf(id), api.invited]).toEqual([[], [], []]);
  });

  test('with an instant ahead makes it wait for that, and with none brings it back', async () => {
    const id = await submit();
    expect((await edit(id, { runAt: AHEAD })).json).toMatchObject({ state: 'scheduled', runAt: AHEAD, generation: 2 });
    expect([await dueOf(id), await outbox()]).toEqual([AHEAD, []]);
    expect((await readTask(db(), id)).invited_at).toBeNull();
    expect((await edit(id, { runAt: '2099-02-01T00:00:00Z' })).json).toMatchObject({
      state: 'scheduled',
      generation: 3,
    });
    expect(await dueOf(id)).toBe('2099-02-01T00:00:00.000Z');
    const back = await edit(id, { runAt: null });
    expect(back.json).toMatchObject({ state: 'pending', generation: 4 });
    expect(back.json['runAt']).toBeUndefined();
    expect(await dueOf(id)).toBeUndefined();
    expect(await outbox()).toMatchObject([{ task_ids: [id], generations: [4] }]);
    expect(await auditOf(id)).toMatchObject([
      {
        detail: {
          changed: { state: { before: 'pending', after: 'scheduled' }, runAt: { before: null, after: AHEAD } },
        },
      },
      { detail: { changed: { runAt: { before: AHEAD, after: '2099-02-01T00:00:00.000Z' } } } },
      { detail: { changed: { state: { before: 'scheduled', after: 'pending' } } } },
    ]);
  });

  test('with a delay counts it on the clock of Postgres', async () => {
    const id = await submit();
    expect((await edit(id, { delayMs: 3_600_000 })).json).toMatchObject({ state: 'scheduled' });
    const [row] = await rows<{ s: number }>(
      db(),
      'select extract(epoch from run_at - clock_timestamp())::float8 as s from tasks where id = $1',
      id,
    );
    expect([(row?.s ?? 0) > 3_500, (row?.s ?? 0) <= 3_600]).toEqual([true, true]);
  });

  test('with a deadline has it expire then, and with null never', async () => {
    const id = await submit();
    await edit(id, { deadline: AHEAD });
    expect([await dueOf(id), (await readTask(db(), id)).deadline?.toISOString()]).toEqual([AHEAD, AHEAD]);
    await edit(id, { runAt: '2098-01-01T00:00:00Z' });
    expect(await dueOf(id)).toBe('2098-01-01T00:00:00.000Z');
    await edit(id, { deadline: null, runAt: null });
    expect([await dueOf(id), (await readTask(db(), id)).deadline]).toEqual([undefined, null]);
    await edit(id, { deadline: '2020-01-01T00:00:00Z' });
    await run(db(), dispatchDue, 10);
    expect((await readTask(db(), id)).state).toBe('expired');
    await expectBalance(db());
  });

  test('with another input hands its bytes to the next attempt, and tells nobody but its size', async () => {
    const id = await submit();
    const answer = await edit(id, '{"input": {"to" : "b", "secret": 1.50}}', { as: EDITOR });
    expect(answer.text).toContain('"input":{"to" : "b", "secret": 1.50}');
    const claim = await (await openWorker(db())).win(id, 2);
    expect(claim.input.toString()).toBe('{"to" : "b", "secret": 1.50}');
    expect(await auditOf(id)).toEqual([
      {
        actor: 'edda',
        role: 'editor',
        action: 'task.edit',
        detail: { changed: { input: { bytesBefore: 10, bytesAfter: 28 } } },
      },
    ]);
  });
});

test('another input counts towards the limits of its type under its own key, and any other edit leaves the key', async () => {
  const id = await submit({ type: 'x' });
  const keys = async (): Promise<unknown> =>
    (await rows(db(), 'select concurrency_key, rate_key from tasks where id = $1', id))[0];
  await edit(id, { priority: 7 });
  expect(await keys()).toEqual({ concurrency_key: 'a', rate_key: '' });
  await edit(id, { input: { to: 'b' } }, { as: EDITOR });
  expect(await keys()).toEqual({ concurrency_key: 'b', rate_key: '' });
});

describe('an edit of a task that is', () => {
  test.each([
    ['pending', 200, 200],
    ['scheduled', 200, 200],
    ['retrying', 200, 200],
    ['blocked', 200, 409],
    ['running', 409, 409],
    ['succeeded', 409, 409],
    ['dead', 409, 409],
    ['cancelled', 409, 409],
    ['expired', 409, 409],
  ] as const)('%s answers %i to a priority and %i to an instant', async (state, ofPriority, ofInstant) => {
    for (const [body, expected] of [
      [{ priority: 8 }, ofPriority],
      [{ runAt: '2098-01-01T00:00:00Z' }, ofInstant],
    ] as const) {
      await db().query({ text: 'truncate due, outbox' });
      const id = await submit();
      await become(id, state);
      const before = await readTask(db(), id);
      const answer = await edit(id, body);
      const after = await readTask(db(), id);
      const type = ['running', 'blocked'].includes(state) ? 'task-not-editable' : 'task-finished';
      // What is pending then is invited, and nothing else.
      const done = { generation: 2, invitations: after.state === 'pending' ? 1 : 0, lines: 1 };
      expect({
        answer: [answer.status, answer.json['type'], answer.json['state']],
        generation: after.generation,
        invitations: (await outbox()).length,
        lines: (await auditOf(id)).length,
      }).toEqual(
        expected === 409
          ? { answer: [409, type, state], generation: 1, invitations: 0, lines: 0 }
          : { answer: [200, 'mail.send', after.state], ...done },
      );
      expect(expected === 200 || JSON.stringify(after) === JSON.stringify(before)).toBe(true);
    }
  });

  test('retrying keeps its failures, and goes at once where that is asked for', async () => {
    const id = await submit();
    await become(id, 'retrying');
    await db().query({ text: 'update tasks set failures = 2 where id = $1', values: [id] });
    expect((await edit(id, { delayMs: 60_000 })).json).toMatchObject({ state: 'retrying', failures: 2 });
    expect((await edit(id, { delayMs: 0 })).json).toMatchObject({ state: 'pending', failures: 2, attempt: 1 });
    expect(await dueOf(id)).toBeUndefined();
  });

  test('every state is thought of', () => expect(TASK_STATES).toHaveLength(9));
});

describe('who looked at another version', () => {
  test('is told, and the version that there is', async () => {
    const id = await submit();
    const looked = await api.get(`/v1/tasks/${id}`, { authorization: `Bearer ${VIEWER.token}` });
    const etag = looked.headers.get('etag') ?? '';
    expect((await edit(id, { priority: 1 }, { ifMatch: etag })).status).toBe(200);
    const late = await edit(id, { priority: 2 }, { ifMatch: etag });
    expect([late.status, late.json]).toMatchObject([412, { type: 'precondition-failed', generation: 2, etag: '"2"' }]);
    expect((await readTask(db(), id)).priority).toBe(1);
    expect((await edit(id, { priority: 2 }, { ifMatch: '*' })).status).toBe(200);
  });

  test('of fifty at once one wins with a version, and all without', async () => {
    const id = await submit();
    const versioned = await Promise.all(
      Array.from({ length: 50 }, async (_, n) => await edit(id, { delayMs: 60_000 + n }, { ifMatch: '"1"' })),
    );
    expect(versioned.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(versioned.filter(({ status }) => status === 412)).toHaveLength(49);
    const others = await Promise.all(
      Array.from({ length: 50 }, async (_, n) => await edit(id, { delayMs: 90_000 + n })),
    );
    expect(others.filter(({ status }) => status === 200)).toHaveLength(50);
    expect((await readTask(db(), id)).generation).toBe(52);
    expect(await auditOf(id)).toHaveLength(51);
  });
});

test.each([
  [{}, 'field-invalid', 'body'],
  [{ reason: 'x' }, 'field-invalid', 'body'],
  [{ priority: 10 }, 'field-invalid', 'priority'],
  [{ priority: '9' }, 'field-invalid', 'priority'],
  [{ runAt: 'tomorrow' }, 'field-invalid', 'runAt'],
  [{ runAt: AHEAD, delayMs: 1 }, 'field-invalid', 'runAt'],
  [{ delayMs: -1 }, 'field-invalid', 'delayMs'],
  [{ queue: 'nowhere' }, 'queue-unknown', 'queue'],
  [{ type: 'x' }, 'field-invalid', ''],
  [{ input: { to: 1 } }, 'input-invalid', 'input.to'],
  [{ input: [] }, 'field-invalid', 'input'],
  [{ input: { to: 'a\u0000' } }, 'text-invalid', 'input.to'],
  [{ reason: 'a\u0000', priority: 1 }, 'text-invalid', 'reason'],
])('%j is refused as %s of %j, and changes nothing', async (body, type, field) => {
  const id = await submit();
  const answer = await edit(id, body, { as: EDITOR });
  expect(answer.json).toMatchObject({ type, ...(field === '' ? {} : { field }) });
  expect((await readTask(db(), id)).generation).toBe(1);
});

test('a cancel that waited for an edit of the deadline leaves nothing beside the cancelled task', async () => {
  const id = await addTask(db(), { type: 'mail.send' });
  const editing = await db().checkOut();
  await editing.query({ text: 'begin' });
  await editing.query({ text: 'set local idle_in_transaction_session_timeout = 0' });
  await editing.query({
    text: `with edited as (
             update tasks set generation = generation + 1, deadline = '2099-01-31' where id = $1 returning id, deadline)
           insert into due (task_id, at) select id, deadline from edited`,
    values: [id],
  });
  const cancelling = api.post(`/v1/tasks/${id}/cancel`, undefined);
  await eventually(async () =>
    expect(
      await rows(
        db(),
        `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%cancelled as%' and datname = current_database()`,
      ),
    ).not.toEqual([]),
  );
  await editing.query({ text: 'commit' });
  editing.release(false);
  expect((await cancelling).json).toMatchObject({ state: 'cancelled' });
  expect(await count(db(), 'due', `task_id = '${id}'`)).toBe(0);
});

test('operators edit, editors alone inputs, and nobody what is not there', async () => {
  const id = await submit();
  expect((await edit(id, { priority: 1 }, { as: VIEWER })).json).toMatchObject({ type: 'role-insufficient' });
  expect((await edit(id, { input: { to: 'b' } })).json).toMatchObject({ type: 'role-insufficient', needed: 'editor' });
  expect((await edit(newId(), { priority: 1 })).json).toMatchObject({ type: 'task-not-found' });
  expect((await edit(newId(), { input: {} }, { as: EDITOR })).json).toMatchObject({ type: 'task-not-found' });
  expect((await edit('x', { priority: 1 })).status).toBe(400);
  expect((await edit(id, { priority: 1 }, { ifMatch: 'what' })).status).toBe(400);
  expect(await count(db(), 'audit', `target = '${id}'`)).toBe(0);
});

test('while the outbox is full nothing is edited, since what is invited anew must be written down', async () => {
  const id = await submit();
  api.setOutboxFull(true);
  expect((await edit(id, { priority: 1 })).json).toMatchObject({ type: 'outbox-full' });
  api.setOutboxFull(false);
  expect((await edit(id, { priority: 1 })).status).toBe(200);
});
