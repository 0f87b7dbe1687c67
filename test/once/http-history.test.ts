/** The history of a task over HTTP, what its attempts logged, and what it did once. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { dispatchDue } from '../../services/producer/dispatcher.sql.ts';
import { run } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { addTask, aDeath, aHandBack, aVerdict, openWorker } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

const TOKENS = [
  { name: 'eyes', role: 'viewer', token: 'viewer-token-0123456789' },
  { name: 'hands', role: 'operator', token: 'operator-token-0123456789' },
] as const;
const AS_HANDS = { authorization: 'Bearer operator-token-0123456789' };
const AS_EYES = { authorization: 'Bearer viewer-token-0123456789' };

let api: TestTaskApi;
let worker: TestWorker;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send')], { tokens: TOKENS });
  worker = await openWorker(api.db.database);
});
afterAll(async () => await api[Symbol.asyncDispose]());

type Entry = Readonly<Record<string, unknown>>;

async function query(text: string, ...values: readonly unknown[]): Promise<void> {
  await api.db.database.query({ text, values });
}

async function submit(members: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const body = JSON.stringify({ type: 'mail.send', input: {}, ...members });
  const answer = await api.post('/v1/tasks', body, AS_HANDS);
  expect(answer.status).toBe(202);
  return String(answer.json['id']);
}

/** Every page of a history, `limit` entries each. */
async function historyOf(id: string, limit = 200): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  let cursor = '';
  for (;;) {
    const { status, json } = await api.get(`/v1/tasks/${id}/history?limit=${limit}${cursor}`, AS_EYES);
    expect(status).toBe(200);
    const items = json['items'] as readonly Entry[];
    expect(items.length).toBeLessThanOrEqual(limit);
    entries.push(...items);
    const { nextCursor } = json as { readonly nextCursor?: string };
    if (nextCursor === undefined) return entries;
    expect(items.length).toBe(limit);
    cursor = `&cursor=${nextCursor}`;
  }
}

test('a task that succeeded at once shows who sent it, its one attempt and its end', async () => {
  const id = await submit();
  const claim = await worker.win(id);
  await worker.settles.succeed(claim, undefined);
  expect(await historyOf(id)).toEqual([
    { at: expect.any(String), kind: 'accepted', by: 'hands', door: 'http' },
    { at: expect.any(String), kind: 'started', attempt: 1, by: 'worker', worker: worker.workerId },
    {
      at: expect.any(String),
      kind: 'ended',
      attempt: 1,
      by: 'worker',
      worker: worker.workerId,
      outcome: 'succeeded',
      became: 'succeeded',
    },
    { at: expect.any(String), kind: 'finished', state: 'succeeded' },
  ]);
});

test('a task that waits says until when, and one that runs has no end yet', async () => {
  const scheduled = await submit({ delayMs: 3_600_000 });
  expect(await historyOf(scheduled)).toMatchObject([{ kind: 'accepted', until: expect.stringMatching(/^20/) }]);
  const running = await submit();
  await worker.win(running);
  expect((await historyOf(running)).map(({ kind }) => kind)).toEqual(['accepted', 'started']);
});

test('a wait that is over says when, and who ended it', async () => {
  const id = await submit({ delayMs: 3_600_000 });
  const fallDue = async (): Promise<void> => {
    await query(`update tasks set run_at = clock_timestamp() where id = $1`, id);
    await query(`update due set at = clock_timestamp() where task_id = $1`, id);
    await run(api.db.database, dispatchDue, 10);
  };
  await fallDue();
  await worker.settles.settle(await worker.win(id), aVerdict());
  await fallDue();
  const seen = (await historyOf(id)).map(({ kind, attempt, by, became }) => [kind, attempt, by, became]);
  const waited = [
    ['accepted', undefined, 'hands', undefined],
    ['invited', 1, 'producer', undefined],
    ['started', 1, 'worker', undefined],
    ['ended', 1, 'worker', 'retrying'],
    ['invited', 2, 'dispatcher', undefined],
  ];
  expect(seen).toEqual(waited);
  await worker.settles.succeed(await worker.win(id), undefined);
  const entries = await historyOf(id);
  expect(entries.map(({ kind }) => kind)).toEqual([...waited.map(([kind]) => kind), 'started', 'ended', 'finished']);
  const times = entries.map(({ at }) => Date.parse(String(at)));
  expect(times).toEqual(times.toSorted((a, b) => a - b));
  expect(await historyOf(id, 1)).toEqual(entries);
});

test('failures, hand-backs, edits, cancels and deaths stand in order, each with its cause', async () => {
  const id = await submit();
  await worker.settles.settle(await worker.win(id), aHandBack());
  await query(
    `insert into audit (id, actor, role, action, target, detail) values ($1, 'eve', 'editor', 'task.edit', $2, '{"priority": 9}')`,
    newId(),
    id,
  );
  await worker.settles.settle(await worker.win(id), aVerdict());
  await query(`update tasks set state = 'pending', run_at = null where id = $1`, id);
  const claim = await worker.win(id);
  expect((await api.post(`/v1/tasks/${id}/cancel`, '{"reason":"not wanted"}', AS_HANDS)).status).toBe(202);
  await worker.settles.settle(claim, aDeath());
  const entries = await historyOf(id);
  expect(
    entries.map(({ kind, attempt, outcome, became, action, by }) => [kind, attempt ?? action, outcome ?? by, became]),
  ).toEqual([
    ['accepted', undefined, 'hands', undefined],
    ['started', 1, 'worker', undefined],
    ['ended', 1, 'interrupted', 'pending'],
    ['act', 'task.edit', 'eve', undefined],
    ['started', 2, 'worker', undefined],
    ['ended', 2, 'failed', 'retrying'],
    ['started', 3, 'worker', undefined],
    ['act', 'task.cancel', 'hands', undefined],
    ['ended', 3, 'failed', 'dead'],
    ['died', 3, undefined, undefined],
  ]);
  expect(entries[5]).toMatchObject({ error: { type: 'Error', message: 'did not work' }, codeVersion: 'test' });
  expect(entries[7]).toMatchObject({ role: 'operator', detail: { was: 'running', reason: 'not wanted' } });
  expect(entries[9]).toMatchObject({ reason: 'non_retryable', letterId: expect.any(String) });
  // What is done with the letter belongs to the task.
  const letterId = String(entries[9]?.['letterId']);
  await query(
    `update dead_letters set state = 'discarded', closed_at = clock_timestamp(), closed_by = 'eve', close_reason = 'old' where id = $1`,
    letterId,
  );
  expect((await historyOf(id)).at(-1)).toMatchObject({ kind: 'discarded', by: 'eve', letterId, reason: 'old' });
  expect(await historyOf(id, 1)).toEqual(await historyOf(id));
});

test('a task cancelled while it waits, and one that a publisher sent', async () => {
  const id = await submit();
  expect((await api.post(`/v1/tasks/${id}/cancel`, '{}', AS_HANDS)).status).toBe(200);
  expect((await historyOf(id)).map(({ kind, state, action }) => state ?? action ?? kind)).toEqual([
    'accepted',
    'task.cancel',
    'cancelled',
  ]);
  const sent = await addTask(api.db.database);
  expect(await historyOf(sent)).toMatchObject([{ kind: 'accepted', door: 'amqp' }]);
});

test('a history of thousands of entries comes in pages, whole and in order', async () => {
  const id = await submit();
  await query(
    `insert into attempts (task_id, attempt, worker, started_at, finished_at, outcome)
     select $1, n, gen_random_uuid(), clock_timestamp() + n * interval '1 ms', clock_timestamp() + n * interval '1 ms' + interval '0.4 ms', 'deferred'
       from generate_series(1, 3000) n`,
    id,
  );
  await query(`update tasks set attempt = 3000, state = 'scheduled', run_at = now() where id = $1`, id);
  await query(
    `insert into audit (id, at, actor, role, action, target, detail)
     select gen_random_uuid(), clock_timestamp() + n * interval '10 ms', 'eve', 'editor', 'task.edit', $1::uuid::text, '{}' from generate_series(1, 200) n`,
    id,
  );
  const entries = await historyOf(id, 47);
  expect(entries).toHaveLength(1 + 6_000 + 200);
  const instants = entries.map(({ at }) => String(at));
  expect(instants).toEqual(instants.toSorted());
  const attempts = entries.filter(({ kind }) => kind === 'ended').map(({ attempt }) => attempt);
  expect(attempts).toEqual(Array.from({ length: 3_000 }, (_, index) => index + 1));
  expect(
    new Set(entries.map((entry) => JSON.stringify([entry['at'], entry['kind'], entry['attempt']]))).size,
  ).toBeGreaterThan(6_000);
});

test('wrong asking is refused with what is wrong', async () => {
  const missing = newId();
  const refused = async (path: string, headers = AS_EYES): Promise<unknown[]> => {
    const { status, json } = await api.get(path, headers);
    return [status, json['type']];
  };
  expect(await refused(`/v1/tasks/${missing}/history`)).toEqual([404, 'task-not-found']);
  expect(await refused('/v1/tasks/x/history')).toEqual([400, 'field-invalid']);
  expect(await refused(`/v1/tasks/${missing}/history?limit=0`)).toEqual([400, 'field-invalid']);
  expect(await refused(`/v1/tasks/${missing}/history?cursor=abc`)).toEqual([400, 'cursor-invalid']);
  expect(await refused(`/v1/tasks/${missing}/attempts/1/logs`)).toEqual([404, 'task-not-found']);
  expect(await refused(`/v1/tasks/${missing}/once`)).toEqual([404, 'task-not-found']);
  const id = await submit();
  expect((await api.get(`/v1/tasks/${id}/once`, AS_EYES)).json).toEqual({ taskId: id, items: [] });
  for (const attempt of ['0', '-1', 'x', '9999999999']) {
    expect((await refused(`/v1/tasks/${id}/attempts/${attempt}/logs`))[0]).toBe(400);
  }
  expect(await refused(`/v1/tasks/${id}/attempts/1/logs`)).toEqual([404, 'attempt-not-found']);
  const forget = async (body: string, headers = AS_HANDS): Promise<unknown[]> => {
    const { status, json } = await api.post(`/v1/tasks/${id}/once/forget`, body, headers);
    return [status, json['type']];
  };
  expect(await forget('{"key":"k"}')).toEqual([400, 'field-invalid']);
  expect(await forget('{"key":"","reason":"r"}')).toEqual([400, 'field-invalid']);
  expect(await forget('{"key":"k","reason":"r"}', AS_EYES as typeof AS_HANDS)).toEqual([403, 'role-insufficient']);
  expect(await forget('{"key":"k","reason":"r"}')).toEqual([404, 'not-found']);
});

test('an attempt without lines says why', async () => {
  const id = await submit();
  const why = async (attempt: number): Promise<unknown> => {
    const { json } = await api.get(`/v1/tasks/${id}/attempts/${attempt}/logs`, AS_EYES);
    expect(json).toMatchObject({ taskId: id, attempt, lines: [], dropped: 0, note: expect.any(String) });
    return json['why'];
  };
  const first = await worker.win(id);
  expect(await why(1)).toBe('running');
  await worker.settles.settle(first, aHandBack());
  expect(await why(1)).toBe('none');
  await query(`update attempts set outcome = 'lost' where task_id = $1`, id);
  expect(await why(1)).toBe('lost');
  await worker.settles.succeed(await worker.win(id), undefined);
  expect(await why(2)).toBe('succeeded');
  await query(
    `insert into attempt_logs (task_id, attempt, lines, dropped) values ($1, 1, '[{"message":"a\\u0000b"}]', 3)`,
    id,
  );
  const { json } = await api.get(`/v1/tasks/${id}/attempts/1/logs`, AS_EYES);
  expect(json).toEqual({ taskId: id, attempt: 1, outcome: 'lost', dropped: 3, lines: [{ message: 'a\0b' }] });
  expect((await historyOf(id)).filter(({ hasLogs }) => hasLogs === true)).toMatchObject([
    { attempt: 1, kind: 'ended' },
  ]);
});

test('what a task did once is shown, and forgotten on demand, but not while it runs', async () => {
  const id = await submit();
  const at = '2026-05-01T10:00:00Z';
  await query(
    `insert into once_runs (task_id, key, run_id, attempt, started_at, finished_at, result)
     values ($1, 'charge', gen_random_uuid(), 1, $2, $2, '{"id":"9007199254740993","n":1.0}'), ($1, 'mail', gen_random_uuid(), 2, $2, null, null)`,
    id,
    at,
  );
  const answer = await api.get(`/v1/tasks/${id}/once`, AS_EYES);
  expect(answer.text).toContain('"result":{"id":"9007199254740993","n":1.0}');
  expect(answer.json['items']).toMatchObject([
    { key: 'charge', state: 'finished', attempt: 1 },
    { key: 'mail', state: 'begun', attempt: 2 },
  ]);
  const forget = async (): Promise<number> =>
    (await api.post(`/v1/tasks/${id}/once/forget`, '{"key":"mail","reason":"never sent"}', AS_HANDS)).status;
  const claim = await worker.win(id);
  expect(await forget()).toBe(409);
  await worker.settles.settle(claim, aHandBack());
  expect(await forget()).toBe(200);
  expect(await forget()).toBe(404);
  const left = await api.get(`/v1/tasks/${id}/once`, AS_EYES);
  expect(left.json['items']).toHaveLength(1);
  expect((await historyOf(id)).filter(({ kind }) => kind === 'act')).toMatchObject([
    { action: 'task.forget-once', by: 'hands', detail: { key: 'mail', reason: 'never sent' } },
  ]);
});
