/** The client over HTTP where the way is bad: answers get lost, services are away, callers lose patience. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { createClient } from '../../client/src/client.ts';
import type { ClientDeps, HttpClient } from '../../client/src/client.ts';
import { count } from '../support/core.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

const SCHEMA = { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] };
const TOKEN = 'a-token-for-this-test';

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send', { inputSchema: SCHEMA })], {
    tokens: [{ name: 'shop', role: 'operator', token: TOKEN }],
  });
});
afterAll(async () => await api[Symbol.asyncDispose]());

/** What happens to the next requests, in order: none is left means that all goes well. */
let faults: ('lose the answer' | 'never arrive' | Response)[] = [];
let requests: string[] = [];
let slept: number[] = [];
beforeEach(() => {
  faults = [];
  requests = [];
  slept = [];
});

const deps: Partial<ClientDeps> = {
  fetch: async (url, init) => {
    requests.push(`${init?.method ?? 'GET'} ${String(new Headers(init?.headers).get('idempotency-key'))}`);
    const fault = faults.shift();
    if (fault === 'never arrive')
      throw Object.assign(new TypeError('fetch failed'), { cause: new Error('ECONNREFUSED') });
    const response = fault instanceof Response ? fault : await fetch(url, init);
    if (fault !== 'lose the answer') return response;
    await response.text();
    throw new TypeError('terminated');
  },
  // Waits between tries are counted, and take no time; deadlines are far away.
  sleep: async (ms, signal) => {
    if (ms >= 10_000)
      await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve(), { once: true }));
    else slept.push(ms);
  },
  random: () => 0.5,
};
const client = (): HttpClient => createClient({ url: `${api.url}/`, token: TOKEN }, deps);
const problem = (status: number, type: string, headers: Record<string, string> = {}): Response =>
  new Response(JSON.stringify({ type, title: 'Not now.', status }), {
    status,
    headers: { 'content-type': 'application/problem+json', ...headers },
  });

describe('a submission', () => {
  test('whose answer is lost again and again makes one task', async () => {
    faults = ['lose the answer', 'never arrive', 'lose the answer'];
    const before = await count(api.db.database, 'tasks');
    const { id, duplicate } = await client().enqueue('mail.send', { to: 'a' });
    expect([requests.length, new Set(requests).size, duplicate]).toEqual([4, 1, false]);
    expect(slept).toEqual([50, 100, 200]);
    expect(await count(api.db.database, 'tasks')).toBe(before + 1);
    expect(await client().task(id)).toMatchObject({ state: 'pending', publisher: 'shop', input: { to: 'a' } });
  });

  test('under a key of the caller is the same task in a later call too, and never with other content', async () => {
    const options = { idempotencyKey: 'a "quoted" \\ key' };
    const first = await client().enqueue('mail.send', { to: 'a' }, options);
    expect(await client().enqueue('mail.send', { to: 'a' }, options)).toEqual({ id: first.id, duplicate: true });
    const other = client().enqueue('mail.send', { to: 'b' }, options);
    await expect(other).rejects.toMatchObject({ name: 'ProblemError', code: 'idempotency-key-reused', status: 422 });
    await expect(client().enqueue('mail.send', { to: 'b' }, { idempotencyKey: 'é' })).rejects.toMatchObject({
      code: 'idempotency-key-invalid',
    });
  });

  test('waits as Retry-After says', async () => {
    faults = [
      problem(503, 'outbox-full', { 'retry-after': '7' }),
      problem(409, 'idempotency-key-in-flight', { 'retry-after': '1' }),
    ];
    await client().enqueue('mail.send', { to: 'a' });
    expect(slept).toEqual([7_000, 1_000]);
  });

  test('that is refused is not tried again, and says the field, the reason and all faults', async () => {
    const refused = client().enqueue('mail.send', { to: 1 }, { priority: 4 });
    await expect(refused).rejects.toMatchObject({
      code: 'input-invalid',
      status: 422,
      field: 'input.to',
      reason: 'must be string',
    });
    await expect(client().enqueue('mail.send', { to: 'a' }, { priority: 10 })).rejects.toMatchObject({
      code: 'field-invalid',
      field: 'priority',
      problem: { faults: [{ code: 'field-invalid', field: 'priority' }] },
    });
    expect(requests).toHaveLength(2);
  });

  test('is given up within its time, and says why nobody answered', async () => {
    faults = Array.from({ length: 20 }, () => 'never arrive');
    const { fetch: failing = fetch } = deps;
    const patient = createClient({ url: api.url }, { fetch: failing, random: () => 0.5 });
    await expect(patient.enqueue('mail.send', { to: 'a' }, { timeoutMs: 120 })).rejects.toMatchObject({
      name: 'UnreachableError',
      code: 'server-unreachable',
      message: expect.stringContaining('ECONNREFUSED'),
    });
    const away = createClient({ url: 'http://127.0.0.1:1' });
    await expect(away.task('x', { timeoutMs: 50 })).rejects.toMatchObject({ code: 'server-unreachable' });
    expect(requests.length).toBeGreaterThan(0);
    faults = [new Response('<html>', { status: 404 })];
    await expect(client().task('x')).rejects.toThrow('is no Warren service');
  });

  test('ends as soon as its signal aborts, with the reason of the signal', async () => {
    const reason = new Error('the user has left');
    await expect(client().enqueue('mail.send', { to: 'a' }, { signal: AbortSignal.abort(reason) })).rejects.toBe(
      reason,
    );
    const aborting = new AbortController();
    const hanging: HttpClient = createClient(
      { url: api.url },
      {
        fetch: async (_url, init) =>
          await new Promise((_resolve, reject) => {
            init?.signal?.addEventListener('abort', () => reject(new TypeError('aborted')), { once: true });
            aborting.abort(reason);
          }),
      },
    );
    await expect(hanging.enqueue('mail.send', { to: 'a' }, { signal: aborting.signal })).rejects.toBe(reason);
    expect(requests).toEqual([]);
  });

  test('with an option that is none, or an input that JSON changes, is not sent', async () => {
    await expect(client().enqueue('mail.send', { to: 'a' }, { prio: 1 } as never)).rejects.toMatchObject({
      field: 'prio',
    });
    await expect(client().enqueue('mail.send', { to: 'a' }, { runAt: new Date(Number.NaN) })).rejects.toMatchObject({
      field: 'runAt',
    });
    await expect(client().enqueue('mail.send', { to: new Map() })).rejects.toMatchObject({ field: 'input.to' });
    const many = client().enqueueMany([
      { type: 'mail.send', input: { to: 'a' } },
      { type: 'mail.send', input: { to: 1n } },
    ]);
    await expect(many).rejects.toMatchObject({ field: 'tasks[1].input.to' });
    expect(requests).toEqual([]);
  });
});

describe('many tasks', () => {
  test('go in requests of a thousand, each task once though answers are lost', async () => {
    const before = await count(api.db.database, 'tasks');
    faults = ['lose the answer', 'never arrive'];
    const tasks = Array.from({ length: 2_100 }, (_each, n) => ({
      type: 'mail.send',
      input: n === 1_500 ? {} : { to: `${n}` },
    }));
    const results = await client().enqueueMany(tasks, { idempotencyKey: 'night-1' });
    expect(requests).toEqual(['0', '0', '0', '1', '2'].map((n) => `POST "night-1/${n}"`));
    expect(results.flatMap(({ kind }, n) => (kind === 'refused' ? [n] : []))).toEqual([1_500]);
    expect(await count(api.db.database, 'tasks')).toBe(before + 2_099);
    expect(await client().enqueueMany(tasks.slice(0, 0))).toEqual([]);
  });

  test('under a unique key are answered with the task that holds it', async () => {
    const one = { type: 'mail.send', input: { to: 'a' }, options: { unique: { key: 'one' } } };
    const results = await client().enqueueMany([one, one]);
    const ids = results.map((result) => (result.kind === 'enqueued' ? result.id : 'refused'));
    expect(new Set(ids).size).toBe(1);
    expect(
      results.map((result) => result.kind === 'enqueued' && result.duplicate).toSorted((a, b) => Number(a) - Number(b)),
    ).toEqual([false, true]);
  });
});

test('a cancel whose answer is lost is a cancel', async () => {
  const { id } = await client().enqueue('mail.send', { to: 'a' }, { delayMs: 60_000 });
  faults = ['lose the answer'];
  expect(await client().cancel(id)).toEqual({ id, state: 'cancelled' });
  const done = await client().enqueue('mail.send', { to: 'a' }, { delayMs: 60_000 });
  await api.db.database.query({
    text: `update tasks set state = 'succeeded', run_at = null, finished_at = now(), started_at = now() where id = $1`,
    values: [done.id],
  });
  await expect(client().cancel(done.id)).rejects.toMatchObject({ code: 'task-finished' });
  await expect(client().cancel('..')).rejects.toMatchObject({ name: 'ProblemError' });
});

test('a wait goes on while the service is away, and asks again when the service says', async () => {
  const { id } = await client().enqueue('mail.send', { to: 'a' }, { delayMs: 60_000 });
  const waiting = new Response(JSON.stringify({ id, state: 'scheduled', attempts: [] }), {
    headers: { 'retry-after': '3' },
  });
  const over = new Response(JSON.stringify({ id, state: 'succeeded', attempts: [], result: { sent: true } }));
  faults = ['never arrive', waiting, over];
  expect(await client().result<{ sent: boolean }>(id)).toEqual({ sent: true });
  expect(slept).toEqual([50, 3_000]);
});
