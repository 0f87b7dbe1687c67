/** Finding, listing and cancelling tasks over HTTP. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { run } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { dispatchDue } from '../../services/producer/dispatcher.sql.ts';
import { eventually } from '../support/eventually.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';

const TOKENS = [
  { name: 'eyes', role: 'viewer', token: 'viewer-token-0123456789' },
  { name: 'hands', role: 'operator', token: 'operator-token-0123456789' },
] as const;

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send'), aType('user.add', { queue: 'users' })], { tokens: TOKENS });
});
afterAll(async () => await api[Symbol.asyncDispose]());
beforeEach(async () => {
  await query('truncate tasks, due, claims, dead_letters, cancel_requests, attempts, progress, message_ids, outbox');
});

async function query(text: string, values: readonly unknown[] = []): Promise<readonly Record<string, unknown>[]> {
  return (await api.db.database.query({ text, values })).rows as Record<string, unknown>[];
}

async function submit(members: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const answer = await api.post('/v1/tasks', JSON.stringify({ type: 'mail.send', input: {}, ...members }));
  expect(answer.status).toBe(202);
  return String(answer.json['id']);
}

/** Makes a task run, as a claim does. */
async function claim(id: string): Promise<void> {
  await query(
    `with claim as (
       insert into claims (id, worker, claimed_at, task_ids)
       values (gen_random_uuid(), gen_random_uuid(), clock_timestamp(), array[$1::uuid]) returning id, worker
     )
     update tasks t set state = 'running', claim_id = c.id, worker = c.worker, attempt = attempt + 1,
            started_at = clock_timestamp()
       from claim c where t.id = $1::uuid`,
    [id],
  );
}

/** Makes a running task dead, as a settle does. */
async function kill(id: string): Promise<void> {
  await claim(id);
  await query(`update tasks set state = 'dead', failures = 1, finished_at = clock_timestamp() where id = $1`, [id]);
  await query(
    `insert into attempts (task_id, attempt, worker, started_at, finished_at, outcome, error_type, error_code, error_message, error_stack)
     select id, attempt, worker, started_at, finished_at, 'failed', 'TypeError', 'E_X', 'no luck', 'at x' from tasks where id = $1`,
    [id],
  );
  await query(`insert into dead_letters (id, kind, task_id, reason) values (uuid_v7(), 'task', $1, 'exhausted')`, [id]);
}

const idsOf = (answer: Answer): string[] => (answer.json['items'] as { id: string }[]).map(({ id }) => id);
const list = async (search: string): Promise<Answer> => await api.get(`/v1/tasks?${search}`);
const cancel = async (id: string, body?: string, token?: string): Promise<Answer> =>
  await api.post(`/v1/tasks/${id}/cancel`, body, token === undefined ? {} : { authorization: `Bearer ${token}` });

describe('one task', () => {
  test('is shown with its attempts, its progress, its letter and its bodies as they are', async () => {
    const id = await submit({ tags: ['a'] });
    await kill(id);
    await query(`update tasks set result = '{ "n": 1.0 }' where id = $1`, [id]);
    const dead = await api.get(`/v1/tasks/${id.toUpperCase()}`);
    expect(dead.json).toMatchObject({
      id,
      state: 'dead',
      attempt: 1,
      failures: 1,
      deadLetterId: expect.any(String),
      attempts: [
        { attempt: 1, outcome: 'failed', error: { type: 'TypeError', code: 'E_X', message: 'no luck', stack: 'at x' } },
      ],
    });
    expect(dead.text).toContain('"result":{ "n": 1.0 }');
    const other = await submit();
    await claim(other);
    await query(`insert into progress (task_id, attempt, fraction, step) values ($1, 1, 0.4, 'reading')`, [other]);
    const running = await api.get(`/v1/tasks/${other}`);
    expect(running.json).toMatchObject({
      state: 'running',
      progress: { fraction: 0.4, step: 'reading' },
      attempts: [],
    });
  });

  test.each([
    ['/v1/tasks/no-uuid', 400, 'field-invalid'],
    ['/v1/tasks/__proto__', 400, 'field-invalid'],
    [`/v1/tasks/${newId()}`, 404, 'task-not-found'],
    ['/v1/nothing', 404, 'not-found'],
  ])('%s is answered %i', async (path, status, type) => {
    const answer = await api.get(path);
    expect([answer.status, answer.json['type']]).toEqual([status, type]);
  });
});

describe('a list', () => {
  test('is newest first, in pages that neither lose nor double a task', async () => {
    const ids: string[] = [];
    for (let n = 0; n < 7; n += 1) ids.unshift(await submit());
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await list(`limit=3${cursor === undefined ? '' : `&cursor=${cursor}`}`);
      seen.push(...idsOf(page));
      cursor = page.json['nextCursor'] as string | undefined;
      await submit(); // what comes meanwhile is above the cursor
    } while (cursor !== undefined);
    expect(seen).toEqual(ids);
  });

  test('is narrowed by type, queue, tag, business key and external id, alone and together', async () => {
    const [a, b, c] = [
      await submit({ tags: ['red', 'blue'], businessKey: 'k1' }),
      await submit({ type: 'user.add', tags: ['red'], businessKey: 'k1' }),
      await submit({ queue: 'users', businessKey: 'k2' }),
    ];
    await query(`update tasks set external_id = 'x1' where id = $1`, [c]);
    const found = async (search: string): Promise<string[]> => idsOf(await list(search));
    expect(await found('type=user.add')).toEqual([b]);
    expect(await found('queue=users')).toEqual([c, b]);
    expect(await found('tag=red')).toEqual([b, a]);
    expect(await found('tag=red&businessKey=k1&type=mail.send')).toEqual([a]);
    expect(await found('businessKey=k1')).toEqual([b, a]);
    expect(await found('externalId=x1')).toEqual([c]);
    expect(await found('externalId=x1&queue=default')).toEqual([]);
    expect(await found('tag=__proto__')).toEqual([]);
  });

  test('is narrowed by state, also where a table beside names more than fit', async () => {
    const [pending, scheduled, running, dead, cancelled] = [
      await submit(),
      await submit({ delayMs: 60_000 }),
      await submit({ deadline: '2099-01-01T00:00:00Z' }),
      await submit(),
      await submit(),
    ];
    await claim(running);
    await kill(dead);
    await cancel(cancelled, undefined, TOKENS[1].token);
    const found = async (search: string): Promise<string[]> => idsOf(await list(search));
    expect(await found('state=pending')).toEqual([pending]);
    expect(await found('state=scheduled')).toEqual([scheduled]);
    expect(await found('state=running')).toEqual([running]);
    expect(await found('state=dead')).toEqual([dead]);
    expect(await found('state=cancelled')).toEqual([cancelled]);
    expect(await found('state=retrying')).toEqual([]);
    expect(await found('state=dead&state=running&state=scheduled')).toEqual([dead, running, scheduled]);
    expect(await found('state=dead&state=pending')).toEqual([dead, pending]);
    expect(await found('state=dead&limit=1')).toEqual([dead]);
  });

  test('is narrowed by time of acceptance, whatever the clock that made the ids', async () => {
    const [first, second] = [await submit(), await submit()];
    await query(`update tasks set accepted_at = '2020-01-01T00:00:00Z' where id = $1`, [first]);
    expect(idsOf(await list('acceptedAfter=2021-01-01T00:00:00Z'))).toEqual([second]);
    expect(idsOf(await list('acceptedBefore=2021-01-01T00:00:00Z'))).toEqual([]);
    const [row] = await query('select accepted_at from tasks where id = $1', [second]);
    const at = (row as { readonly accepted_at: Date }).accepted_at.toISOString();
    expect(idsOf(await list(`acceptedBefore=${at}`))).toEqual([first]);
  });

  test('looks at 20 000 tasks at most, says so, and goes on from there', async () => {
    const rare = await submit({ type: 'user.add' });
    await query(
      `insert into tasks (id, state, max_attempts, priority, type, queue, input, tags)
       select uuid_v7(), 'pending', 1, 4, 'mail.send', 'default', '{}', array['common'] from generate_series(1, 20500)`,
    );
    const first = await list('type=user.add');
    expect(first.json).toMatchObject({ items: [], partial: true, nextCursor: expect.any(String) });
    const second = await list(`type=user.add&cursor=${String(first.json['nextCursor'])}`);
    expect(idsOf(second)).toEqual([rare]);
    expect(second.json['partial']).toBeUndefined();
    // A tag that most tasks have is found by walking; the page is full at once.
    expect((await list('tag=common&limit=5')).json).toMatchObject({ nextCursor: expect.any(String) });
    expect(idsOf(await list('tag=common&limit=5'))).toHaveLength(5);
  });

  test.each([
    'limit=0',
    'limit=201',
    'limit=x',
    'state=sleeping',
    'cursor=abc',
    'cursor=%00',
    'acceptedAfter=yesterday',
    'tag=%00',
    'colour=red',
    '__proto__=1',
  ])('%s is refused', async (search) => {
    const answer = await list(search);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([
      400,
      'application/problem+json; charset=utf-8',
    ]);
  });
});

test('what no table can hold is refused in every path and every query that there is', async () => {
  const { paths } = (await api.get('/openapi.json')).json as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  };
  const asked = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => ({ path, method })),
  );
  expect(asked.length).toBeGreaterThan(20);
  const ask = async (method: string, path: string): Promise<readonly unknown[]> => {
    const body = method === 'get' ? {} : { body: '{}', headers: { 'content-type': 'application/json' } };
    const response = await fetch(api.url + path, { method: method.toUpperCase(), ...body });
    return [response.status, ((await response.json()) as { readonly type?: unknown }).type];
  };
  for (const { path, method } of asked) {
    const bad = path.includes('{') ? path.replaceAll(/\{\w+\}/g, '%00') : `${path}?tag=%00`;
    expect([method, path, ...(await ask(method, bad))]).toEqual([method, path, 400, 'text-invalid']);
  }
});

describe('a cancel', () => {
  test('of a waiting task ends it at once, makes its invitation stale and is recorded', async () => {
    const id = await submit({ delayMs: 60_000 });
    const answer = await cancel(id, '{"reason":"not needed"}', TOKENS[1].token);
    expect([answer.status, answer.json]).toEqual([200, { id, state: 'cancelled' }]);
    const task = (await api.get(`/v1/tasks/${id}`)).json;
    expect(task).toMatchObject({ state: 'cancelled', generation: 2, finishedAt: expect.any(String) });
    expect(await query('select 1 from due')).toEqual([]);
    expect(
      await query('select actor, role, address, action, target, detail from audit where target = $1', [id]),
    ).toEqual([
      {
        actor: 'hands',
        role: 'operator',
        address: '127.0.0.1',
        action: 'task.cancel',
        target: id,
        detail: { was: 'scheduled', reason: 'not needed' },
      },
    ]);
  });

  test('of a running task asks its worker, once', async () => {
    const id = await submit();
    await claim(id);
    const first = await cancel(id);
    expect(first.status).toBe(202);
    expect(first.json).toMatchObject({ id, state: 'running', cancelRequestedAt: expect.any(String) });
    const again = await cancel(id, '{}');
    expect(again.json).toEqual(first.json);
    expect(await query('select requested_by from cancel_requests')).toEqual([{ requested_by: 'local' }]);
    expect((await api.get(`/v1/tasks/${id}`)).json).toMatchObject({
      cancelRequestedAt: first.json['cancelRequestedAt'],
    });
  });

  test('of a task that has ended, or that is not there, is refused and leaves no trace', async () => {
    const id = await submit();
    await kill(id);
    const ended = await cancel(id);
    expect([ended.status, ended.json['type'], ended.json['state']]).toEqual([409, 'task-finished', 'dead']);
    expect((await cancel(newId())).status).toBe(404);
    expect((await cancel('x')).status).toBe(400);
    expect((await cancel(id, '{"why":"?"}')).status).toBe(400);
    expect(await query('select 1 from audit where target = $1', [id])).toEqual([]);
  });

  test('waits for who holds the row, and judges it as it is then', async () => {
    const id = await submit();
    const held = await api.db.database.checkOut();
    await held.query({ text: 'begin' });
    await held.query({ text: 'set local idle_in_transaction_session_timeout = 0' });
    await held.query({
      text: `update tasks set state = 'retrying', run_at = now(), failures = 1 where id = $1`,
      values: [id],
    });
    const cancelling = cancel(id);
    await eventually(async () => {
      const waiting = await query(
        `select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
      );
      expect(waiting).toHaveLength(1);
    });
    await held.query({ text: 'commit' });
    held.release(false);
    expect((await cancelling).json).toEqual({ id, state: 'cancelled' });
    expect(await query('select detail from audit where target = $1', [id])).toEqual([{ detail: { was: 'retrying' } }]);
  });

  test('and the dispatcher on one task at once end in one state', async () => {
    for (let round = 0; round < 20; round += 1) {
      const id = await submit({ delayMs: 1 });
      await query(`update due set at = now() - interval '1 s'`);
      await query(`update tasks set run_at = now() - interval '1 s' where id = $1`, [id]);
      const [answer] = await Promise.all([cancel(id), run(api.db.database, dispatchDue, 10)]);
      expect(answer.json['state']).toBe('cancelled');
      expect((await api.get(`/v1/tasks/${id}`)).json['state']).toBe('cancelled');
    }
  });
});

describe('roles', () => {
  test('a viewer looks and does not touch', async () => {
    const id = await submit();
    const headers = { authorization: `Bearer ${TOKENS[0].token}` };
    expect((await api.get(`/v1/tasks/${id}`, headers)).status).toBe(200);
    expect((await api.get('/v1/tasks', headers)).status).toBe(200);
    expect((await cancel(id, undefined, TOKENS[0].token)).json['type']).toBe('role-insufficient');
    expect((await api.post('/v1/tasks', '{}', headers)).status).toBe(403);
    expect((await api.post('/v1/tasks/batch', '{}', headers)).status).toBe(403);
    expect((await api.get('/v1/tasks', { authorization: 'Bearer wrong-token-0123456789' })).status).toBe(401);
  });
});

test('task types and queues are shown as announced', async () => {
  expect((await api.get('/v1/task-types')).json['items']).toMatchObject([
    { name: 'mail.send', queue: 'default', priority: 4, maxAttempts: 5, timeoutMs: 60_000, codeVersion: 'test' },
    { name: 'user.add', queue: 'users', retry: { maxAttempts: 5, firstDelayMs: 1_000 } },
  ]);
  const asAlways = { mode: 'open', running: 0, ready: 7, holdsBack: false };
  expect((await api.get('/v1/queues')).json['items']).toEqual([
    { name: 'default', taskTypes: ['mail.send'], ...asAlways },
    { name: 'users', taskTypes: ['user.add'], ...asAlways },
  ]);
});
