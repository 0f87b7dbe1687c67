/** The AMQP front door: what it accepts, what it refuses and how, over a real broker and a real database. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Options } from 'amqplib';
import { headersFromStored } from '../../shared/amqp/headers.ts';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { eventually } from '../support/eventually.ts';
import { openFrontDoor } from '../support/front-door.ts';
import type { TestFrontDoor } from '../support/front-door.ts';
import { aType } from '../support/task-api.ts';

const SCHEMA = { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] };

let door: TestFrontDoor;
beforeAll(async () => {
  door = await openFrontDoor([
    aType('mail.send'),
    aType('user.add', { inputSchema: SCHEMA, queue: 'users', priority: 6 }),
  ]);
});
afterAll(async () => await door[Symbol.asyncDispose]());

interface Task {
  readonly id: string;
  readonly state: string;
  readonly input: Buffer;
  readonly [column: string]: unknown;
}

/** Tasks with this business key, once there are `count`. */
async function tasksOf(key: string, count = 1): Promise<readonly Task[]> {
  return await eventually(async () => {
    const found = await door.rows<Task>(
      `select t.*, t.state::text as state from tasks t where business_key = '${key}' order by id`,
    );
    expect(found).toHaveLength(count);
    return found;
  });
}

const keyed = (key: string, headers: Record<string, unknown> = {}): Options.Publish => ({
  headers: { 'warren-business-key': key, ...headers },
});
const nested = (levels: number): string => '{"a":'.repeat(levels - 1) + '{}' + '}'.repeat(levels - 1);

describe('a message', () => {
  test('becomes a task with all that its properties and headers say, byte for byte', async () => {
    const body = `{ "n" : 1.10e2,\n "é":"\\u00e9", "__proto__": {"x": 1}, "max":9007199254740991 }\n`;
    await door.publish('mail.send', body, {
      messageId: 'all-1',
      correlationId: 'c-1',
      priority: 9,
      appId: 'shop',
      contentType: 'application/json',
      headers: {
        'warren-business-key': 'all',
        'warren-queue': 'users',
        'warren-delay-ms': 3_600_000,
        'warren-deadline': '2099-01-01T00:00:00Z',
        'warren-max-attempts': 2,
        'warren-tags': ['a', 'b'],
      },
    });
    const [task] = await tasksOf('all');
    expect(task?.input.toString()).toBe(body);
    expect(task).toMatchObject({
      type: 'mail.send',
      queue: 'users',
      state: 'scheduled',
      priority: 9,
      max_attempts: 2,
      tags: ['a', 'b'],
      external_id: 'all-1',
      publisher: 'shop',
      correlation_id: 'c-1',
    });
    expect(await door.rows(`select 1 from due where task_id = '${task?.id}'`)).toHaveLength(1);
    expect(await door.rows(`select 1 from origins where task_id = '${task?.id}'`)).toEqual([]);
  });

  test('takes from its type what it does not say, and needs no message id', async () => {
    await door.publish('user.add', '{"to":"x"}', keyed('plain'));
    const [task] = await tasksOf('plain');
    expect(task).toMatchObject({ queue: 'users', priority: 6, state: 'pending', external_id: null, publisher: null });
  });

  test('of a type announced a moment ago is accepted', async () => {
    await announceTypes(door.db.database, [aType('brand.new')], 'v2');
    await door.publish('brand.new', '{}', keyed('fresh'));
    expect((await tasksOf('fresh'))[0]).toMatchObject({ type: 'brand.new' });
  });

  test('keeps its foreign headers of every AMQP type, and what its properties say beside', async () => {
    const headers = {
      text: 'é',
      long: 2 ** 40,
      negative: -5,
      fraction: 1.5,
      yes: true,
      nothing: null,
      bytes: Buffer.from([0, 255]),
      list: ['a', 1, [true, null], { deep: 'er' }],
      table: { a: { b: 1 } },
      at: { '!': 'timestamp', value: 1_700_000_000 },
      money: { '!': 'decimal', value: { digits: 1_234, places: 2 } },
      $: 'a name of ours',
      'x-death': [{ queue: 'forged', count: 99 }],
    };
    await door.publish('mail.send', '{}', { ...keyed('foreign', headers), type: 'order', timestamp: 1_700_000_000 });
    const [task] = await tasksOf('foreign');
    const [origin] = await door.rows<{ headers: Record<string, unknown>; properties: Record<string, unknown> }>(
      `select headers, properties from origins where task_id = '${task?.id}'`,
    );
    expect(origin?.properties).toMatchObject({ type: 'order', timestamp: 1_700_000_000 });
    expect(headersFromStored(origin?.headers ?? {})).toEqual({ ...headers, 'warren-business-key': 'foreign' });
  });

  test.each<[string, string, string | Buffer, Options.Publish, string, string]>([
    ['an unknown type', 'no.such', '{}', {}, 'task-type-unknown', 'routing key'],
    ['the type __proto__', '__proto__', '{}', {}, 'task-type-unknown', 'routing key'],
    ['the type constructor', 'constructor', '{}', {}, 'task-type-unknown', 'routing key'],
    ['no type', '', '{}', {}, 'task-type-unknown', 'routing key'],
    ['an input that its schema refuses', 'user.add', '{"to":1}', {}, 'input-invalid', 'input.to'],
    ['priority 10', 'mail.send', '{}', { priority: 10 }, 'field-invalid', 'priority'],
    ['priority 255', 'mail.send', '{}', { priority: 255 }, 'field-invalid', 'priority'],
    ['a delay of -1', 'mail.send', '{}', { headers: { 'warren-delay-ms': -1 } }, 'field-invalid', 'warren-delay-ms'],
    [
      'a delay of 1e15',
      'mail.send',
      '{}',
      { headers: { 'warren-delay-ms': 1e15 } },
      'field-invalid',
      'warren-delay-ms',
    ],
    [
      'a delay of "abc"',
      'mail.send',
      '{}',
      { headers: { 'warren-delay-ms': 'abc' } },
      'field-invalid',
      'warren-delay-ms',
    ],
    [
      'an unknown queue',
      'mail.send',
      '{}',
      { headers: { 'warren-queue': 'nowhere' } },
      'queue-unknown',
      'warren-queue',
    ],
    ['an unknown warren header', 'mail.send', '{}', { headers: { 'warren-prio': 1 } }, 'header-unknown', 'warren-prio'],
    [
      'headers beyond the limit',
      'mail.send',
      '{}',
      { headers: { a: 'x'.repeat(17_000) } },
      'headers-too-large',
      'headers',
    ],
    ['no JSON', 'mail.send', 'hello', {}, 'body-invalid', 'body'],
    ['an empty body', 'mail.send', '', {}, 'body-invalid', 'body'],
    ['a list', 'mail.send', '[]', {}, 'body-invalid', 'body'],
    ['null', 'mail.send', 'null', {}, 'body-invalid', 'body'],
    ['two documents', 'mail.send', '{}{}', {}, 'body-invalid', 'body'],
    ['a byte order mark', 'mail.send', '\uFEFF{}', {}, 'body-invalid', 'body'],
    ['65 levels', 'mail.send', nested(65), {}, 'body-too-deep', `input${'.a'.repeat(64)}`],
    ['a byte too many', 'mail.send', `{"a":"${'x'.repeat(262_144 - 7)}"}`, {}, 'body-too-large', 'body'],
    ['U+0000', 'mail.send', '{"a":"\\u0000"}', {}, 'text-invalid', 'input.a'],
    ['a lone surrogate', 'mail.send', '{"a":"\\udc00"}', {}, 'text-invalid', 'input.a'],
    ['U+0000 in its id', 'mail.send', '{}', { messageId: 'a\0b' }, 'text-invalid', 'message_id'],
    ['an integer beyond 2^53', 'mail.send', '{"a":9007199254740993}', {}, 'number-not-exact', 'input.a'],
    ['gzip', 'mail.send', '{}', { contentEncoding: 'gzip' }, 'content-type-unsupported', 'content_encoding'],
    [
      'pickle',
      'mail.send',
      '{}',
      { contentType: 'application/x-python-serialize' },
      'content-type-unsupported',
      'content_type',
    ],
    [
      'UTF-16',
      'mail.send',
      '{}',
      { contentType: 'application/json;charset=utf-16' },
      'content-type-unsupported',
      'content_type',
    ],
  ])('with %s dies with its raw bytes, for a reason that is found again; its publisher is told', async (...row) => {
    const [, type, body, properties, code, field] = row;
    const replyTo = await door.broker.queue();
    await door.publish(type, body, { ...properties, replyTo, correlationId: 'q' });
    const { message, faults } = await door.nextDead();
    expect(faults[0]).toEqual({ code, field });
    expect(message.content.equals(Buffer.from(body))).toBe(true);
    expect(message.fields.routingKey).toBe(type);
    const reply = await door.next(replyTo);
    expect(reply.properties).toMatchObject({ correlationId: 'q', contentType: 'application/json' });
    expect(JSON.parse(reply.content.toString())).toMatchObject({
      refused: { code, field, reason: expect.any(String) },
    });
  });

  test('that is bad fails none of those around it, and holds up none', async () => {
    const bodies = Array.from({ length: 200 }, (_, n) => (n % 4 === 0 ? '{"n":1e400}' : '{}'));
    await Promise.all(bodies.map(async (body) => await door.publish('mail.send', body, keyed('mixed'))));
    expect(await tasksOf('mixed', 150)).toHaveLength(150);
    for (let dead = 0; dead < 50; dead += 1) expect((await door.nextDead()).faults[0]?.code).toBe('number-not-exact');
  });
});

describe('message ids', () => {
  test('a message that comes twice is one task, and both publishes are told its id', async () => {
    const replyTo = await door.broker.queue();
    for (let n = 0; n < 2; n += 1) {
      await door.publish('mail.send', '{"n":1}', { ...keyed('twice'), messageId: 'twice-1', replyTo });
      const answer = JSON.parse((await door.next(replyTo)).content.toString()) as { accepted: { id: string } };
      const [task] = await tasksOf('twice');
      expect(answer.accepted).toEqual({ id: task?.id, ...(n === 1 ? { duplicate: true } : {}) });
    }
  });

  test('twins in one batch are one task', async () => {
    const publish = async (): Promise<void> =>
      await door.publish('mail.send', '{}', { ...keyed('twins'), messageId: 'twins-1' });
    await Promise.all(Array.from({ length: 20 }, publish));
    await tasksOf('twins');
    await eventually(async () => {
      expect((await door.broker.raw.checkQueue(door.names.ingress)).messageCount).toBe(0);
    });
    await tasksOf('twins');
  });

  test('the same id with other content dies as a conflict', async () => {
    const replyTo = await door.broker.queue();
    await door.publish('mail.send', '{"n":1}', { ...keyed('conflict'), messageId: 'conflict-1' });
    await tasksOf('conflict');
    await door.publish('mail.send', '{"n":2}', { ...keyed('conflict'), messageId: 'conflict-1', replyTo });
    const { refused } = JSON.parse((await door.next(replyTo)).content.toString()) as { refused: object };
    expect(refused).toMatchObject({ code: 'id-conflict', field: 'message_id' });
    expect((await door.nextDead()).message.content.toString()).toBe('{"n":2}');
    await tasksOf('conflict');
  });

  test('the same id from another application or for another type is another task', async () => {
    for (const appId of ['a', 'b']) {
      await door.publish('mail.send', '{}', { ...keyed('apps'), messageId: 'apps-1', appId });
      await door.publish('user.add', '{"to":"x"}', { ...keyed('apps'), messageId: 'apps-1', appId });
    }
    const publishers = (await tasksOf('apps', 4)).map(({ publisher }) => publisher);
    expect(publishers).toEqual(['a', 'a', 'b', 'b']);
  });

  test('a publish without one that comes twice is two tasks: at least once', async () => {
    await door.publish('mail.send', '{}', keyed('nameless'));
    await door.publish('mail.send', '{}', keyed('nameless'));
    expect(await tasksOf('nameless', 2)).toHaveLength(2);
  });
});

describe('replies', () => {
  test('a reply that no queue takes, or that would go to a queue of Warren, harms nothing', async () => {
    await door.publish('mail.send', '{}', { ...keyed('unheard'), replyTo: 'no-such-queue' });
    await door.publish('mail.send', '{}', { ...keyed('unheard'), replyTo: door.names.dead });
    await door.publish('mail.send', '{}', { ...keyed('unheard'), replyTo: door.names.ingress });
    await tasksOf('unheard', 3);
    await eventually(async () => {
      expect(await door.metrics.render()).toMatch(/warren_published_total\{what="reply",answer="unroutable"\} 1/);
    });
    expect((await door.broker.raw.checkQueue(door.names.dead)).messageCount).toBe(0);
  });

  test('the message id stands in where there is no correlation id', async () => {
    const replyTo = await door.broker.queue();
    await door.publish('mail.send', '{}', { messageId: 'reply-1', replyTo });
    expect((await door.next(replyTo)).properties.correlationId).toBe('reply-1');
  });
});
