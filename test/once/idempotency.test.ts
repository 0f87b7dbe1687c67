/** Requests that come again over HTTP, and tasks that hold a key, over a real database. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { count } from '../support/core.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send'), aType('user.add')]);
});
afterAll(async () => await api[Symbol.asyncDispose]());

const envelope = (members = '', type = 'mail.send'): string => `{"type":"${type}","input":{"n":1}${members}}`;
const post = async (path: string, body: string, key?: string): Promise<Answer> =>
  await api.post(path, body, key === undefined ? {} : { 'idempotency-key': key });
const submit = async (body: string, key?: string): Promise<Answer> => await post('/v1/tasks', body, key);
const unique = (rule: string): string => envelope(`,"unique":${rule}`);

describe('Idempotency-Key', () => {
  test.each([
    ['at once', ''],
    ['delayed', ',"delayMs":60000'],
    ['at an instant', ',"runAt":"2099-01-01T00:00:00Z","tags":["a"]'],
    ['at an instant that is over', ',"runAt":"2001-01-01T00:00:00Z"'],
  ])('answers a task that is to run %s byte for byte as the first time', async (name, members) => {
    const first = await submit(envelope(members), `"same ${name}"`);
    expect([first.status, first.headers.get('idempotent-replayed')]).toEqual([202, null]);
    const again = await submit(envelope(members), `"same ${name}"`);
    expect([again.status, again.text]).toEqual([202, first.text]);
    expect(again.headers.get('location')).toBe(first.headers.get('location'));
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(await count(api.db.database, 'idempotency_keys', `key = 'same ${name}'`)).toBe(1);
  });

  test('with another body, or another type, is 422', async () => {
    const first = await submit(envelope(), 'k-1');
    for (const body of [`${envelope()} `, envelope('', 'user.add')]) {
      const other = await submit(body, 'k-1');
      expect([other.status, other.json['type']]).toEqual([422, 'idempotency-key-reused']);
      expect(other.text).toContain(String(first.json['id']));
    }
    const batch = await post('/v1/tasks/batch', `{"tasks":[${envelope()}]}`, 'k-1');
    expect([batch.status, batch.json['type']]).toEqual([422, 'idempotency-key-reused']);
  });

  test('under way is 409 with a time to come again, and then the same answer', async () => {
    const all = await Promise.all(Array.from({ length: 50 }, async () => await submit(envelope(), 'k-flight')));
    const accepted = all.filter(({ status }) => status === 202);
    const underWay = all.filter(({ status }) => status === 409);
    expect(accepted.length).toBeGreaterThan(0);
    expect(accepted.length + underWay.length).toBe(50);
    expect(new Set(accepted.map(({ text }) => text)).size).toBe(1);
    expect(
      new Set(underWay.map(({ json, headers }) => `${String(json['type'])} ${headers.get('retry-after')}`)),
    ).toEqual(new Set(underWay.length === 0 ? [] : ['idempotency-key-in-flight 1']));
    expect((await submit(envelope(), 'k-flight')).text).toBe(accepted[0]?.text);
  });

  test('under way is answered 409 while Postgres holds the first request up', async () => {
    const { database } = api.db;
    const connection = await database.checkOut();
    await connection.query({ text: 'begin' });
    await connection.query({ text: 'lock table idempotency_keys in exclusive mode' });
    const first = submit(envelope(), 'k-slow');
    const second = await submit(envelope(), 'k-slow');
    expect([second.status, second.json['type']]).toEqual([409, 'idempotency-key-in-flight']);
    await connection.query({ text: 'commit' });
    connection.release(false);
    expect((await first).status).toBe(202);
  });

  test('of a submission that was refused may be used again', async () => {
    expect((await submit(envelope('', 'no.such'), 'k-refused')).status).toBe(422);
    expect((await submit(envelope(), 'k-refused')).status).toBe(202);
  });

  test('as a quoted text and without quotes is the same key', async () => {
    const first = await submit(envelope(), 'k-bare');
    expect((await submit(envelope(), '"k-bare"')).text).toBe(first.text);
  });

  test.each(['', '""', '"open', 'a b', 'a,b', 'x'.repeat(256), '"\u00e9"', 'a\tb'])(
    'of an unreadable form is refused: %j',
    async (key) => {
      const answer = await submit(envelope(), key);
      expect([answer.status, answer.json['type']]).toEqual([400, 'idempotency-key-invalid']);
    },
  );

  test('of a batch makes each of its tasks once, and finishes a batch that was cut off', async () => {
    const body = `{"tasks":[${[1, 2, 3].map((n) => envelope(`,"tags":["${n}"]`)).join(',')}]}`;
    const first = await post('/v1/tasks/batch', body, 'k-batch');
    expect([first.status, first.json['accepted']]).toEqual([200, 3]);
    expect((await post('/v1/tasks/batch', body, 'k-batch')).text).toBe(first.text);
    const other = await post('/v1/tasks/batch', body.replace('"3"', '"4"'), 'k-batch');
    expect([other.status, other.json['type']]).toEqual([422, 'idempotency-key-reused']);

    // As if the process had died after the first task.
    const { results } = first.json as { results: readonly { readonly task: { readonly id: string } }[] };
    await api.db.database.query({
      text: `with gone as (delete from idempotency_keys where key in (E'k-batch\\t1', E'k-batch\\t2') returning task_id)
             delete from tasks where id in (select task_id from gone)`,
    });
    const finished = await post('/v1/tasks/batch', body, 'k-batch');
    const ids = (finished.json as { results: typeof results }).results.map(({ task }) => task.id);
    expect(ids[0]).toBe(results[0]?.task.id);
    expect(await count(api.db.database, 'tasks', `id = any('{${ids.join(',')}}')`)).toBe(3);
  });
});

describe('a unique key', () => {
  test('that a task holds is answered 200 with that task as it is now, or 409', async () => {
    const first = await submit(unique('{"key":"a"}'));
    const again = await submit(unique('{"key":"a"}'));
    expect(again.status).toBe(200);
    expect(again.json).toMatchObject({ id: first.json['id'], state: 'pending', duplicate: true });
    expect(again.headers.get('location')).toBe(`/v1/tasks/${String(first.json['id'])}`);
    const refused = await submit(unique('{"key":"a","onConflict":"reject"}'));
    expect([refused.status, refused.json['type'], refused.json['field']]).toEqual([
      409,
      'unique-conflict',
      'unique.key',
    ]);
    expect(refused.text).toContain(String(first.json['id']));
    await api.post(`/v1/tasks/${String(first.json['id'])}/cancel`, undefined);
    expect((await submit(unique('{"key":"a"}'))).status).toBe(202);
  });

  test('under an Idempotency-Key is answered with the same task again', async () => {
    const holder = await submit(unique('{"key":"b","withinMs":60000}'));
    const first = await submit(unique('{"key":"b","withinMs":60000}'), 'k-unique');
    const again = await submit(unique('{"key":"b","withinMs":60000}'), 'k-unique');
    expect([first.status, again.status, again.text]).toEqual([200, 200, first.text]);
    expect(again.json['id']).toBe(holder.json['id']);
    expect(again.headers.get('idempotent-replayed')).toBe('true');
  });

  test('with debounce: one task with the last input, put off by each submission', async () => {
    const debounced = (n: number): string =>
      `{"type":"mail.send","input":{"n":${n}},"debounce":{"key":"d","delayMs":60000,"maxWaitMs":90000}}`;
    const first = await submit(debounced(1));
    expect([first.status, first.json['state']]).toEqual([202, 'scheduled']);
    const second = await submit(debounced(2));
    expect(second.status).toBe(200);
    expect(second.json).toMatchObject({ id: first.json['id'], duplicate: true, replaced: true, state: 'scheduled' });
    expect(Date.parse(String(second.json['runAt']))).toBeGreaterThan(Date.parse(String(first.json['runAt'])));
    expect((await api.get(`/v1/tasks/${String(first.json['id'])}`)).json['input']).toEqual({ n: 2 });
    for (const [body, field] of [
      [`{"type":"mail.send","input":{},"debounce":{"key":"d","delayMs":5},"delayMs":5}`, 'debounce'],
      [
        `{"type":"mail.send","input":{},"debounce":{"key":"d","delayMs":5},"throttle":{"key":"d","withinMs":5}}`,
        'debounce',
      ],
      [`{"type":"mail.send","input":{},"debounce":{"key":"d","delayMs":5,"maxWaitMs":4}}`, 'debounce.maxWaitMs'],
      [`{"type":"mail.send","input":{},"debounce":{"key":"d"}}`, 'debounce.delayMs'],
    ] as const) {
      const refused = await submit(body);
      expect([refused.status, refused.json['field']]).toEqual([400, field]);
    }
  });

  test('in a batch: one is made, the others are told', async () => {
    const throttled = envelope(',"throttle":{"key":"c","withinMs":60000}');
    const answer = await post('/v1/tasks/batch', `{"tasks":[${[throttled, throttled, envelope()].join(',')}]}`);
    const { results } = answer.json as { results: readonly { readonly status: number; readonly task: object }[] };
    expect(results.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 202, 202]);
    expect(results.find(({ status }) => status === 200)?.task).toMatchObject({ duplicate: true, state: 'pending' });
  });

  test.each([
    ['{"key":""}', 'unique.key'],
    ['{"key":5}', 'unique.key'],
    ['{"while":"waiting"}', 'unique.key'],
    [`{"key":"${'k'.repeat(201)}"}`, 'unique.key'],
    ['{"key":"a\\u0000"}', 'unique.key'],
    ['{"key":"a","while":"running"}', 'unique.while'],
    ['{"key":"a","withinMs":0}', 'unique.withinMs'],
    ['{"key":"a","withinMs":1.5}', 'unique.withinMs'],
    ['{"key":"a","withinMs":1,"while":"waiting"}', 'unique.withinMs'],
    ['{"key":"a","onConflict":"ignore"}', 'unique.onConflict'],
    ['"a"', 'unique'],
    ['{"key":"a"},"throttle":{"key":"a","withinMs":1}', 'throttle'],
  ])('is checked: %s', async (rule, field) => {
    const answer = await submit(unique(rule));
    expect([answer.status, answer.json['field']]).toEqual([400, field]);
  });
});
