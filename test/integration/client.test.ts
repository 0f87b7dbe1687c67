/** The client against a whole fleet: over HTTP, over AMQP, in Postgres. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createClient, enqueueIn } from '../../client/src/client.ts';
import type { AmqpClient, HttpClient, PoolClient } from '../../client/src/client.ts';
import { AMQP_URL } from '../support/broker.ts';
import { openCallersPool } from '../support/callers-pool.ts';
import type { CallersPool } from '../support/callers-pool.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { step } from '../support/tasks/well-behaved.ts';

let fleet: Fleet;
let http: HttpClient;
let amqp: AmqpClient;
let pool: CallersPool;
let postgres: PoolClient;
beforeAll(async () => {
  fleet = await openFleet();
  http = createClient({ url: fleet.producer().url });
  amqp = createClient({ amqpUrl: AMQP_URL, prefix: fleet.prefix, appId: 'client-test' });
  pool = openCallersPool(fleet.database.url);
  postgres = createClient({ pool });
});
afterAll(async () => {
  await amqp.close();
  await pool.end();
  await fleet[Symbol.asyncDispose]();
});

const input = (more: object = {}): { journal: string; ms?: number; failures?: number } => ({
  journal: fleet.journal,
  ...more,
});
const codeOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => 'resolved',
    (thrown: unknown) => (thrown as { code?: unknown }).code,
  );
/** The tasks of a business key, once they have all ended. */
const endedOf = async (businessKey: string, count: number): Promise<readonly string[]> =>
  await eventually(
    async () => {
      const found = await pool.query<{ state: string }>(
        'select state::text as state from warren.tasks where business_key = $1',
        [businessKey],
      );
      const states = found.rows.map(({ state }) => state);
      expect(states.filter((state) => state === 'succeeded')).toHaveLength(count);
      return states;
    },
    { withinMs: 20_000 },
  );

describe('over HTTP', () => {
  test('a task is submitted by its type, and its result has the type of what its handler returns', async () => {
    const { id, duplicate } = await http.enqueue(step, input({ failures: 1 }), { priority: 7, tags: ['a'] });
    const { attempt }: { attempt: number } = await http.result(id, { timeoutMs: 20_000 });
    expect([duplicate, attempt]).toEqual([false, 2]);
    const task = await http.task(id);
    expect(task).toMatchObject({ state: 'succeeded', priority: 7, tags: ['a'], failures: 1, result: { attempt: 2 } });
    expect(task.attempts.map(({ outcome }) => outcome)).toEqual(['failed']);
  });

  test('a task by its name has a result of whatever type the caller says', async () => {
    const { id } = await http.enqueue<object, { attempt: number }>('fault.step', input());
    expect((await http.result(id)).attempt).toBe(1);
  });

  test('whoever waits for a task that died, was cancelled or expired is told so', async () => {
    const dead = await http.enqueue(step, input({ failures: 9 }), { maxAttempts: 1 });
    await expect(http.result(dead.id)).rejects.toMatchObject({
      name: 'TaskDeadError',
      code: 'task-dead',
      taskId: dead.id,
      error: { message: 'fails in attempt 1' },
      deadLetterId: expect.any(String),
    });
    const waiting = await http.enqueue(step, input(), { delayMs: 60_000 });
    expect(await http.cancel(waiting.id, { reason: 'not wanted' })).toEqual({ id: waiting.id, state: 'cancelled' });
    await expect(http.result(waiting.id)).rejects.toMatchObject({ name: 'TaskCancelledError', state: 'cancelled' });
    const late = await http.enqueue(step, input(), { delayMs: 60_000, deadline: new Date('2001-01-01T00:00:00Z') });
    await expect(http.result(late.id, { timeoutMs: 20_000 })).rejects.toMatchObject({ name: 'TaskExpiredError' });
  });

  test('a wait that is over says how the task stands, and one that is aborted ends at once', async () => {
    const { id } = await http.enqueue(step, input(), { delayMs: 60_000 });
    await expect(http.result(id, { timeoutMs: 3_000 })).rejects.toMatchObject({
      name: 'WaitTimeoutError',
      code: 'wait-timeout',
      message: `task ${id} had not ended after 3000 ms: it is scheduled`,
    });
    const aborting = new AbortController();
    const waited = http.result(id, { signal: aborting.signal, timeoutMs: 600_000 });
    aborting.abort(new Error('nobody wants it any more'));
    await expect(waited).rejects.toThrow('nobody wants it any more');
    await http.cancel(id);
  });

  test('many are submitted with a result for each, spread over a time', async () => {
    const tasks = Array.from({ length: 30 }, (_each, n) => ({
      type: step,
      input: n === 7 ? { wrong: true } : input(),
      options: { businessKey: 'spread-http' },
    }));
    const results = await http.enqueueMany(tasks, { spreadMs: 600 });
    expect(results.map(({ kind }) => kind)).toEqual(tasks.map((_task, n) => (n === 7 ? 'refused' : 'enqueued')));
    expect(results[7]).toMatchObject({ error: { code: 'input-invalid', status: 422 } });
    await endedOf('spread-http', 29);
  });
});

describe('over AMQP', () => {
  test('a task is published with all that it asks for, confirmed, and runs', async () => {
    const asked = {
      priority: 8,
      businessKey: 'over-amqp',
      tags: ['a', 'b'],
      maxAttempts: 2,
      throttle: { key: 'k', withinMs: 60_000 },
    };
    const { messageId } = await amqp.enqueue(step, input(), { ...asked, idempotencyKey: 'order-1' });
    expect(messageId).toBe('order-1');
    await endedOf('over-amqp', 1);
    const { rows } = await pool.query(
      'select priority, tags, max_attempts, publisher, external_id from warren.tasks where business_key = $1',
      ['over-amqp'],
    );
    expect(rows).toEqual([
      { priority: 8, tags: ['a', 'b'], max_attempts: 2, publisher: expect.stringMatching(/./), external_id: 'order-1' },
    ]);
    expect((await pool.query(`select 1 from warren.unique_keys where key = 'k' and hold = 'window'`)).rowCount).toBe(1);
    // The same message again is the same task.
    await amqp.enqueue(step, input(), { ...asked, idempotencyKey: 'order-1' });
    await amqp.enqueueMany([{ type: step, input: input(), options: { businessKey: 'over-amqp-2' } }], {
      spreadMs: 100,
    });
    await endedOf('over-amqp-2', 1);
    expect((await pool.query('select 1 from warren.tasks where business_key = $1', ['over-amqp'])).rowCount).toBe(1);
  });

  test('every task of many over a connection that is cut again and again is accepted, once', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    await using client = createClient({ amqpUrl: proxy.urlOf(AMQP_URL), prefix: fleet.prefix, maxUnconfirmed: 20 });
    const published: Promise<unknown>[] = [];
    for (let n = 0; n < 60; n += 1) {
      published.push(client.enqueue(step, input(), { businessKey: 'over-cuts' }));
      if (n % 20 === 10) {
        await eventually(() => {
          if (proxy.openLinks === 0) throw new Error('is not connected');
        });
        proxy.cut();
      }
    }
    await Promise.all(published);
    expect(proxy.accepted).toBeGreaterThan(1);
    await endedOf('over-cuts', 60);
    expect((await pool.query('select 1 from warren.tasks where business_key = $1', ['over-cuts'])).rowCount).toBe(60);
  });

  test('a prefix that there is not, a wrong password and a broker that is away are each said', async () => {
    await using nobody = createClient({ amqpUrl: AMQP_URL, prefix: `${fleet.prefix}x` });
    await expect(nobody.enqueue(step, input(), { timeoutMs: 5_000 })).rejects.toMatchObject({
      code: 'broker-unavailable',
      message: expect.stringContaining(`${fleet.prefix}x.tasks`),
    });
    const url = new URL(AMQP_URL);
    url.password = 'wrong';
    await using stranger = createClient({ amqpUrl: url.href, prefix: fleet.prefix });
    const refused = stranger.enqueue(step, input(), { timeoutMs: 20_000 });
    await expect(refused).rejects.toMatchObject({ code: 'broker-refused-login' });
    await expect(refused).rejects.not.toThrow(/wrong/);
    url.port = '1';
    await using away = createClient({ amqpUrl: url.href, prefix: fleet.prefix });
    expect(await codeOf(away.enqueue(step, input(), { timeoutMs: 300 }))).toBe('broker-unavailable');
    await amqp.enqueue(step, input(), { businessKey: 'closing' });
    await away.close();
    expect(await codeOf(away.enqueue(step, input()))).toBe('broker-unavailable');
  });
});

describe('in Postgres', () => {
  test('a task of a transaction runs once that has committed, and never where it was rolled back', async () => {
    const client = await pool.connect();
    await client.query('create table if not exists orders (id text primary key)');
    for (const [id, end] of [
      ['kept', 'commit'],
      ['lost', 'rollback'],
    ] as const) {
      await client.query('begin');
      await client.query('insert into orders values ($1)', [id]);
      const { duplicate } = await enqueueIn(client, step, input(), { businessKey: id, idempotencyKey: id });
      expect(duplicate).toBe(false);
      await client.query(end);
    }
    client.release();
    await endedOf('kept', 1);
    expect((await pool.query('select 1 from warren.tasks where business_key = $1', ['lost'])).rowCount).toBe(0);
    expect((await pool.query('select id from orders')).rows).toEqual([{ id: 'kept' }]);
    const [id] = (
      await pool.query<{ id: string }>('select id from warren.tasks where business_key = $1', ['kept'])
    ).rows.map((row) => row.id);
    expect(await postgres.enqueue(step, input(), { businessKey: 'kept', idempotencyKey: 'kept' })).toEqual({
      id,
      duplicate: true,
    });
    expect(await http.result<{ attempt: number }>(id ?? '')).toEqual({ attempt: 1 });
  });

  test('many are accepted together or not at all, and spread over a time', async () => {
    const tasks = Array.from({ length: 20 }, () => ({
      type: step,
      input: input(),
      options: { businessKey: 'many-sql' },
    }));
    const refused = postgres.enqueueMany([...tasks, { type: 'no.such', input: input() } as never]);
    await expect(refused).rejects.toMatchObject({
      name: 'ProblemError',
      code: 'task-type-unknown',
      field: 'type',
      reason: 'names no announced task type',
    });
    expect((await pool.query('select 1 from warren.tasks where business_key = $1', ['many-sql'])).rowCount).toBe(0);
    const accepted = await postgres.enqueueMany(tasks, { spreadMs: 500 });
    expect(new Set(accepted.map(({ id }) => id)).size).toBe(20);
    await endedOf('many-sql', 20);
    expect(await postgres.enqueueMany([])).toEqual([]);
  });

  test('an input that its schema refuses dies in the worker', async () => {
    const { id } = await postgres.enqueue('fault.step', { wrong: true });
    await expect(http.result(id)).rejects.toMatchObject({ name: 'TaskDeadError', error: { code: 'input-invalid' } });
  });
});
