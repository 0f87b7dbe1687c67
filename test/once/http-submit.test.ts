/** The HTTP front door: what it accepts, what it refuses and how, over a real database. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';

const SCHEMA = { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] };

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([
    aType('mail.send'),
    aType('user.add', { inputSchema: SCHEMA, queue: 'users', priority: 6 }),
  ]);
});
afterAll(async () => await api[Symbol.asyncDispose]());

const submit = async (body: string | Buffer): Promise<Answer> => await api.post('/v1/tasks', body);
const envelope = (members: string): string => `{"type":"mail.send","input":{}${members}}`;
const nested = (levels: number): string => '{"a":'.repeat(levels - 1) + '{}' + '}'.repeat(levels - 1);
const rowsOf = async (sql: string): Promise<readonly Record<string, unknown>[]> =>
  (await api.db.database.query({ text: sql })).rows as Record<string, unknown>[];

describe('one task', () => {
  test('is answered 202 with its place and itself, and is committed with an invitation', async () => {
    const answer = await submit('{"type":"user.add","input":{"to":"x"},"tags":["a"],"businessKey":"k"}');
    expect(answer.status).toBe(202);
    const { id } = answer.json as { id: string };
    expect(answer.headers.get('location')).toBe(`/v1/tasks/${id}`);
    expect(answer.json).toMatchObject({
      type: 'user.add',
      queue: 'users',
      priority: 6,
      state: 'pending',
      attempt: 0,
      maxAttempts: 5,
      tags: ['a'],
      businessKey: 'k',
      input: { to: 'x' },
    });
    expect(await rowsOf(`select state::text as state from tasks where id = '${id}'`)).toEqual([{ state: 'pending' }]);
    expect(await rowsOf(`select 1 as found from outbox where '${id}' = any(task_ids)`)).toHaveLength(1);
  });

  test('comes back byte for byte', async () => {
    const input = `{ "n" : 1.10e2,\n\t"é":"\\u00e9\\ud83d\\ude00 \\\\u0000", "__proto__": {"polluted": true}, "constructor": {}, "max":9007199254740991 }`;
    const answer = await submit(`{"businessKey":"a", "input":${input} , "type":"mail.send"}`);
    expect(answer.text).toContain(`"input":${input}`);
    const seen = await api.get(String(answer.headers.get('location')));
    expect(seen.text).toContain(`"input":${input}`);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  test('that is to run later is scheduled', async () => {
    const delayed = await submit(envelope(',"delayMs":60000'));
    expect(delayed.json).toMatchObject({ state: 'scheduled' });
    const { acceptedAt, runAt } = delayed.json as { acceptedAt: string; runAt: string };
    expect(Date.parse(runAt) - Date.parse(acceptedAt)).toBe(60_000);
    const dated = await submit(envelope(',"runAt":"2099-01-01T00:00:00+01:00","deadline":"9999-12-31T23:59:59Z"'));
    expect(dated.json).toMatchObject({ runAt: '2098-12-31T23:00:00.000Z', deadline: '9999-12-31T23:59:59.000Z' });
    expect((await submit(envelope(',"runAt":"1970-01-01T00:00:00Z"'))).json).toMatchObject({ state: 'pending' });
  });

  test('of a type or for a queue announced a moment ago is accepted', async () => {
    await announceTypes(api.db.database, [aType('brand.new', { queue: 'fresh' })], 'v2');
    expect((await submit('{"type":"brand.new","input":{}}')).status).toBe(202);
    expect((await submit(envelope(',"queue":"fresh"'))).status).toBe(202);
  });

  test.each<[string, string | Buffer, number, string, string]>([
    ['an unknown type', '{"type":"no.such","input":{}}', 422, 'task-type-unknown', 'type'],
    ['the type __proto__', '{"type":"__proto__","input":{}}', 422, 'task-type-unknown', 'type'],
    ['the type constructor', '{"type":"constructor","input":{}}', 422, 'task-type-unknown', 'type'],
    ['an input that its schema refuses', '{"type":"user.add","input":{"to":1}}', 422, 'input-invalid', 'input.to'],
    ['an unknown queue', envelope(',"queue":"nowhere"'), 422, 'queue-unknown', 'queue'],
    ['priority 10', envelope(',"priority":10'), 400, 'field-invalid', 'priority'],
    ['priority -1', envelope(',"priority":-1'), 400, 'field-invalid', 'priority'],
    ['priority "5"', envelope(',"priority":"5"'), 400, 'field-invalid', 'priority'],
    ['priority 1.5', envelope(',"priority":1.5'), 400, 'field-invalid', 'priority'],
    ['a delay of -1', envelope(',"delayMs":-1'), 400, 'field-invalid', 'delayMs'],
    ['a delay of 1e15', envelope(',"delayMs":1e15'), 400, 'field-invalid', 'delayMs'],
    ['a delay of "abc"', envelope(',"delayMs":"abc"'), 400, 'field-invalid', 'delayMs'],
    ['no JSON', 'hello', 400, 'body-invalid', 'body'],
    ['a list', '[]', 400, 'body-invalid', 'body'],
    ['null', 'null', 400, 'body-invalid', 'body'],
    [
      'an input of 65 levels',
      `{"type":"mail.send","input":${nested(65)}}`,
      400,
      'body-too-deep',
      `input${'.a'.repeat(64)}`,
    ],
    ['__proto__ as a member', envelope(',"__proto__":{}'), 400, 'field-invalid', '__proto__'],
    ['U+0000', '{"type":"mail.send","input":{"a":"\\u0000"}}', 400, 'text-invalid', 'input.a'],
    ['U+0000 in a tag', envelope(',"tags":["\\u0000"]'), 400, 'text-invalid', 'tags[0]'],
    ['a lone surrogate', '{"type":"mail.send","input":{"a":"\\udc00"}}', 400, 'text-invalid', 'input.a'],
    [
      'an integer beyond 2^53',
      '{"type":"mail.send","input":{"a":9007199254740993}}',
      400,
      'number-not-exact',
      'input.a',
    ],
    ['NaN', '{"type":"mail.send","input":{"a":NaN}}', 400, 'body-invalid', 'body'],
  ])('with %s is refused by name, in a problem document', async (_name, body, status, type, field) => {
    const answer = await submit(body);
    expect(answer.status).toBe(status);
    expect(answer.headers.get('content-type')).toContain('application/problem+json');
    expect(answer.json).toMatchObject({ status, type, field, reason: expect.any(String), faults: expect.any(Array) });
  });

  test('of more bytes than the limit is refused, one of the limit is not', async () => {
    const pad = (bytes: number): string => {
      const empty = envelope('').replace('{}', '{"a":""}');
      return empty.replace('""', `"${'x'.repeat(bytes - empty.length)}"`);
    };
    expect((await submit(pad(262_144))).status).toBe(202);
    const answer = await submit(pad(262_145));
    expect([answer.status, answer.json['type']]).toEqual([413, 'body-too-large']);
  });

  test.each([
    ['text/plain', {}],
    ['application/json; charset=utf-16', {}],
    ['application/json', { 'content-encoding': 'gzip' }],
  ])('as %s %j is refused unread', async (contentType, headers) => {
    const answer = await api.post('/v1/tasks', envelope(''), { 'content-type': contentType, ...headers });
    expect([answer.status, answer.json['type']]).toEqual([415, 'content-type-unsupported']);
  });

  test('is answered 503 with the time to wait while the outbox is full', async () => {
    api.setOutboxFull(true);
    const answer = await submit(envelope(''));
    api.setOutboxFull(false);
    expect([answer.status, answer.json['type'], answer.headers.get('retry-after')]).toEqual([503, 'outbox-full', '10']);
  });
});

describe('a batch', () => {
  test('answers a result per item in order; one bad item fails no other, whatever is wrong with it', async () => {
    const bad = [
      '{"type":"mail.send","input":{"n":9007199254740993}}',
      '{"type":"mail.send","input":{"t":"\\u0000"}}',
      `{"type":"mail.send","input":${nested(70)}}`,
      '{"type":"user.add","input":{}}',
      '7',
      '"}],"',
      'null',
      envelope(',"priority":10'),
    ];
    const input = '{ "k" : "a,]}\\"" }';
    const good = `{"type":"mail.send","input":${input}}`;
    const items = bad.flatMap((item) => [good, item]);
    const answer = await api.post('/v1/tasks/batch', ` { "tasks" : [ ${items.join(' ,\n')} ] } `);
    expect(answer.status).toBe(207);
    const { results, accepted, refused } = answer.json as {
      results: { status: number; task?: { id: string }; problem?: { type: string; field: string } }[];
      accepted: number;
      refused: number;
    };
    expect([accepted, refused]).toEqual([8, 8]);
    expect(results.map(({ status }) => status)).toEqual(
      [400, 400, 400, 422, 400, 400, 400, 400].flatMap((status) => [202, status]),
    );
    expect(results[1]?.problem).toMatchObject({ type: 'number-not-exact', field: 'input.n' });
    expect(results[15]?.problem).toMatchObject({ type: 'field-invalid', field: 'priority' });
    const seen = await api.get(`/v1/tasks/${results[0]?.task?.id ?? ''}`);
    expect(seen.text).toContain(`"input":${input}`);
  });

  test('of good items only is answered 200', async () => {
    const body = `{"tasks":[${Array.from({ length: 1_000 }, (_, n) => envelope(`,"priority":${n % 10}`)).join(',')}]}`;
    const answer = await api.post('/v1/tasks/batch', body);
    expect([answer.status, answer.json['accepted']]).toEqual([200, 1_000]);
    const results = answer.json['results'] as { task: { priority: number } }[];
    expect(results.map(({ task }) => task.priority)).toEqual(Array.from({ length: 1_000 }, (_, n) => n % 10));
  });

  test.each([
    ['no items', '{"tasks":[]}', 'field-invalid', 'tasks'],
    ['an object for a list', '{"tasks":{}}', 'field-invalid', 'tasks'],
    ['no list', '{}', 'field-invalid', 'tasks'],
    ['a member too many', '{"tasks":[{}],"more":1}', 'field-invalid', 'more'],
    ['two lists', '{"tasks":[{}],"tasks":[{}]}', 'field-invalid', 'tasks'],
    ['broken JSON', '{"tasks":[{]}', 'body-invalid', 'body'],
    ['a list alone', '[]', 'body-invalid', 'body'],
    ['1 001 items', `{"tasks":[${'1,'.repeat(1_000)}1]}`, 'field-invalid', 'tasks'],
    ['100 000 open brackets', `{"tasks":[${'['.repeat(100_000)}`, 'body-invalid', 'body'],
  ])('of %s is refused as a whole', async (_name, body, type, field) => {
    const answer = await api.post('/v1/tasks/batch', body);
    expect([answer.status, answer.json['type'], answer.json['field']]).toEqual([400, type, field]);
  });

  test('is answered 503 as a whole where nothing of it could be accepted', async () => {
    api.setOutboxFull(true);
    const answer = await api.post('/v1/tasks/batch', `{"tasks":[${envelope('')},${envelope('')}]}`);
    api.setOutboxFull(false);
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '10']);
  });
});

test('bad requests in between touch no good one', async () => {
  const bodies = Array.from({ length: 60 }, (_, n) =>
    n % 3 === 0 ? '{"type":"mail.send","input":{"n":1e400}}' : envelope(''),
  );
  const answers = await Promise.all(bodies.map(async (body) => await submit(body)));
  expect(answers.map(({ status }) => status)).toEqual(bodies.map((_, n) => (n % 3 === 0 ? 400 : 202)));
});
