/** What dies is recorded once, whatever it is, and acked only then. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Options } from 'amqplib';
import { addTask, count, readTask, rows } from '../support/core.ts';
import { openDesk } from '../support/dead-letters.ts';
import type { DeadLetterDesk } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';

let desk: DeadLetterDesk;
beforeAll(async () => {
  desk = await openDesk();
  await desk.handler();
});
afterAll(async () => {
  // Whatever the tests sent in, nothing of it may have stayed or gone round.
  await desk.drained();
  await desk[Symbol.asyncDispose]();
});

const db = (): DeadLetterDesk['door']['db']['database'] => desk.door.db.database;

describe('an invitation that died', () => {
  test("brings the broker's evidence to the letter of its dead task", async () => {
    const taskId = await desk.deadTask();
    expect(await desk.letter(`task_id = '${taskId}'`)).toMatchObject({
      kind: 'task',
      state: 'open',
      recorded_at: null,
    });
    await desk.rejectInvitation(taskId);
    const letter = await desk.letter(`task_id = '${taskId}' and recorded_at is not null`);
    expect(letter).toMatchObject({
      kind: 'task',
      state: 'open',
      reason: 'non_retryable',
      attempt: 1,
      queue: 'default',
      exchange: desk.door.names.work,
      routing_key: 'default',
      body: null,
    });
    expect(letter.properties).toMatchObject({ messageId: taskId, priority: 4 });
    expect(letter.x_death).toMatchObject([{ reason: 'rejected', queue: desk.door.names.queue('default') }]);
  });

  test('whose task still waits is no dead letter: the task is invited anew', async () => {
    const taskId = await addTask(db(), { invitedAt: `clock_timestamp() - interval '1 minute'` });
    await desk.rejectInvitation(taskId);
    const invitation = await desk.nextInvitation();
    expect(JSON.parse(invitation.content.toString())).toEqual({ taskId, type: 'test.noop', generation: 1 });
    expect(await desk.letters(`task_id = '${taskId}'`)).toEqual([]);
    const { invited_at: invitedAt } = await readTask(db(), taskId);
    expect(invitedAt?.getTime()).toBeGreaterThan(Date.parse('2020-01-01'));
    await eventually(async () => expect(await count(db(), 'outbox', `'${taskId}' = any(task_ids)`)).toBe(0));
  });

  test('just after it was sent is left to the sweeper, so that a queue that kills all at once makes no hot loop', async () => {
    const taskId = await addTask(db());
    await desk.rejectInvitation(taskId);
    await eventually(async () => expect(await count(db(), 'outbox', `'${taskId}' = any(task_ids)`)).toBe(1));
    expect((await readTask(db(), taskId)).state).toBe('pending');
  });

  test.each([
    ['of an older generation', { generation: 3 }],
    ['of a task that waits for its time', { state: 'retrying', runAt: `clock_timestamp() + interval '1 hour'` }],
    ['of a task that is held back', { invitedAt: 'null' }],
  ] as const)('%s is only acked', async (_what, task) => {
    const taskId = await addTask(db(), task);
    const before = await readTask(db(), taskId);
    await desk.rejectInvitation(taskId);
    // Another death behind it shows that this one is through.
    const mark = await desk.deadTask();
    await desk.rejectInvitation(mark);
    await desk.letter(`task_id = '${mark}' and recorded_at is not null`);
    expect(await desk.letters(`task_id = '${taskId}'`)).toEqual([]);
    expect(await count(db(), 'outbox', `'${taskId}' = any(task_ids)`)).toBe(0);
    expect(await readTask(db(), taskId)).toEqual(before);
  });

  test('of a task that is not in the database is kept as a foreign letter', async () => {
    const taskId = '0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60';
    await desk.rejectInvitation(taskId);
    const letter = await desk.letter(`convert_from(body, 'UTF8') like '%${taskId}%'`);
    expect(letter).toMatchObject({ kind: 'foreign', reason: 'rejected' });
    expect(letter.error_message).toContain('not in the database');
  });
});

describe('what the front door refused', () => {
  test.each([
    ['an unknown type', 'no.such', '{}', {}, 'unknown_type', 'task-type-unknown', 'routing key'],
    ['input that its schema refuses', 'test.strict', '{"to":5}', {}, 'invalid_input', 'input-invalid', 'input.to'],
    ['a body that is no JSON', 'test.noop', '{"a":', {}, 'invalid_message', 'body-invalid', 'body'],
    ['no object', 'test.noop', '42', {}, 'invalid_message', 'body-invalid', 'body'],
    ['a priority of 10', 'test.noop', '{"a":1}', { priority: 10 }, 'invalid_message', 'field-invalid', 'priority'],
    [
      'an unknown warren header',
      'test.noop',
      '{"b":1}',
      { headers: { 'warren-colour': 'red' } },
      'invalid_message',
      'header-unknown',
      'warren-colour',
    ],
    [
      'an integer beyond 2^53',
      'test.noop',
      '{"n":9007199254740993}',
      {},
      'invalid_message',
      'number-not-exact',
      'input.n',
    ],
  ] as const)('%s is kept with its bytes and the reason', async (_what, type, body, options, reason, code, field) => {
    await desk.door.publish(type, body, { messageId: `refused ${body} ${type}`, ...options });
    const letter = await desk.letter(`kind = 'refused' and properties->>'messageId' = 'refused ${body} ${type}'`);
    expect(letter).toMatchObject({
      state: 'open',
      reason,
      type,
      error_code: code,
      exchange: desk.door.names.tasks,
      routing_key: type,
    });
    expect(letter.error_message).toContain(`${field}: `);
    expect(letter.body?.toString()).toBe(body);
    expect(letter.recorded_at).not.toBeNull();
  });

  test('a message id used with other content is named as such, with the task that has it', async () => {
    await desk.door.publish('test.noop', '{"v":1}', { messageId: 'twice', appId: 'shop' });
    const [task] = await eventually(async () => {
      const found = await desk.door.rows<{ task_id: string }>(
        `select task_id from message_ids where message_id = 'twice'`,
      );
      expect(found).toHaveLength(1);
      return found;
    });
    await desk.door.publish('test.noop', '{"v":2}', { messageId: 'twice', appId: 'shop' });
    const letter = await desk.letter(`properties->>'messageId' = 'twice'`);
    expect(letter).toMatchObject({ kind: 'refused', reason: 'id_conflict', error_code: 'id-conflict' });
    expect(letter.error_message).toContain(task?.task_id);
  });
});

test('a message whose unique key another task holds is done with, or a dead letter, as it asks', async () => {
  const keyed = (rule: string, messageId: string): Options.Publish => ({
    messageId,
    headers: { 'warren-unique-key': 'one at a time', 'warren-on-conflict': rule },
  });
  await desk.door.publish('test.noop', '{"v":1}', keyed('return', 'unique-1'));
  const [holder] = await eventually(async () => {
    const found = await desk.door.rows<{ id: string }>(`select id from tasks where external_id = 'unique-1'`);
    expect(found).toHaveLength(1);
    return found;
  });
  await desk.door.publish('test.noop', '{"v":2}', keyed('return', 'unique-2'));
  await desk.door.publish('test.noop', '{"v":3}', keyed('reject', 'unique-3'));
  const letter = await desk.letter(`properties->>'messageId' = 'unique-3'`);
  expect(letter).toMatchObject({ kind: 'refused', reason: 'unique_conflict', error_code: 'unique-conflict' });
  expect(letter.error_message).toContain(holder?.id);
  const remembered = await desk.door.rows<{ task_id: string }>(
    `select task_id from message_ids where message_id in ('unique-1', 'unique-2', 'unique-3')`,
  );
  expect(remembered).toEqual([{ task_id: holder?.id }, { task_id: holder?.id }]);
});

describe('a refused message that the broker let die twice, because it crashed while moving it', () => {
  const died = async (messageId: string, count: number): Promise<void> => {
    const { tasks, ingress, dlx } = desk.door.names;
    const death = { reason: 'rejected', exchange: tasks, queue: ingress, 'routing-keys': ['no.such'], count };
    const headers = { 'x-death': [death], 'x-first-death-queue': ingress };
    await desk.publish(dlx, 'no.such', '{}', { messageId, headers });
  };
  const recorded = async (mark: string): Promise<void> => {
    await died(mark, 1);
    await desk.letter(`properties->>'messageId' = '${mark}'`);
  };

  test('is one letter', async () => {
    await died('moved twice', 1);
    await died('moved twice', 2);
    await recorded('behind the second');
    expect(await desk.letters(`properties->>'messageId' = 'moved twice'`)).toHaveLength(1);
  });

  test('is another message once its letter is closed and seven days old', async () => {
    await recorded('of last week');
    await rows(
      db(),
      `update dead_letters set state = 'discarded', closed_at = now(), died_at = now() - interval '8 days'
        where properties->>'messageId' = 'of last week'`,
    );
    await died('of last week', 1);
    const letter = await desk.letter(`properties->>'messageId' = 'of last week' and state = 'open'`);
    expect(letter).toMatchObject({ kind: 'refused', reason: 'unknown_type' });
  });
});

describe('what never was for Warren', () => {
  test('is kept losslessly, with where it came from', async () => {
    const { raw } = desk.door.broker;
    const exchange = desk.door.broker.exchange(`${desk.door.broker.prefix}.shop`);
    await raw.assertExchange(exchange, 'direct', { durable: true });
    const queue = await desk.door.broker.queue({ 'x-dead-letter-exchange': desk.door.names.dlx });
    await raw.bindQueue(queue, exchange, 'order.paid');
    const body = Buffer.from([0, 255, 254, 128, 65]);
    const headers = { 'x-trace': 'abc', nested: { list: [1, 'two', null, true], bytes: Buffer.from([1, 0]) } };
    await desk.publish(exchange, 'order.paid', body, { messageId: 'f1', type: 'OrderPaid', headers });
    await desk.reject(queue);
    const letter = await desk.letter(`properties->>'messageId' = 'f1'`);
    expect(letter).toMatchObject({
      kind: 'foreign',
      reason: 'rejected',
      queue,
      exchange,
      routing_key: 'order.paid',
      type: null,
    });
    expect(letter.body).toEqual(body);
    expect(letter.properties).toMatchObject({ type: 'OrderPaid', deliveryMode: 2 });
    expect(letter.headers).toMatchObject({
      'x-trace': 'abc',
      nested: { list: [1, 'two', null, true], bytes: { $: 'x', v: 'AQA=' } },
    });
    expect(letter.headers).not.toHaveProperty('x-death');
  });

  test('and that no queue took comes by an alternate exchange, and is said to be unroutable', async () => {
    const { raw, prefix } = desk.door.broker;
    const exchange = desk.door.broker.exchange(`${prefix}.lost`);
    await raw.assertExchange(exchange, 'direct', { durable: true, alternateExchange: desk.door.names.dlx });
    await desk.publish(exchange, 'nobody.listens', 'x', { messageId: 'unroutable' });
    expect(await desk.letter(`properties->>'messageId' = 'unroutable'`)).toMatchObject({
      kind: 'foreign',
      reason: 'unroutable',
      exchange,
      routing_key: 'nobody.listens',
    });
    await desk.publish(desk.door.names.dlx, 'by hand', 'x', { messageId: 'by hand' });
    expect(await desk.letter(`properties->>'messageId' = 'by hand'`)).toMatchObject({ reason: 'unknown' });
  });

  test('says what the broker gave as the reason: expired, maxlen', async () => {
    const dlx = { 'x-dead-letter-exchange': desk.door.names.dlx };
    const expiring = await desk.door.broker.queue({ ...dlx, 'x-message-ttl': 20 });
    await desk.publish('', expiring, 'late', { messageId: 'late' });
    expect(await desk.letter(`properties->>'messageId' = 'late'`)).toMatchObject({
      reason: 'expired',
      queue: expiring,
    });
    const full = await desk.door.broker.queue({ ...dlx, 'x-max-length': 1 });
    await desk.publish('', full, 'first', { messageId: 'first' });
    await desk.publish('', full, 'second', { messageId: 'second' });
    expect(await desk.letter(`properties->>'messageId' = 'first'`)).toMatchObject({ reason: 'maxlen', queue: full });
  });

  test.each([
    ['a text', 'rejected'],
    ['a number', 42],
    ['an empty list', []],
    ['a list of texts', ['rejected']],
    ['a table', { reason: 'rejected' }],
    ['bytes', Buffer.from('x')],
    ['a death of odd members', [{ reason: 7, queue: ['q'], exchange: null, 'routing-keys': 'k', count: 'many' }]],
    ['a death by the name of a prototype', [{ reason: '__proto__', queue: 'constructor' }]],
  ])('a forged x-death that is %s is kept as data and does no harm', async (_what, xDeath) => {
    const messageId = `forged ${JSON.stringify(xDeath)}`;
    await desk.publish(desk.door.names.dlx, 'forged', 'x', { messageId, headers: { 'x-death': xDeath } });
    const letter = await desk.letter(`properties->>'messageId' = $m$${messageId}$m$`);
    expect(letter).toMatchObject({ kind: 'foreign', reason: 'unknown' });
    expect(letter.x_death).not.toBeNull();
  });

  test('a forged x-death that calls a message an invitation changes no task', async () => {
    const taskId = await addTask(db(), { state: 'retrying', runAt: `clock_timestamp() + interval '1 hour'` });
    const before = await readTask(db(), taskId);
    const headers = {
      'x-death': [{ exchange: desk.door.names.work, queue: 'q', reason: 'rejected', 'routing-keys': [] }],
    };
    const body = JSON.stringify({ taskId, type: 'test.noop', generation: 1 });
    await desk.publish(desk.door.names.dlx, 'default', body, { headers });
    await desk.publish(desk.door.names.dlx, 'mark', body, { messageId: 'after the forged one' });
    await desk.letter(`properties->>'messageId' = 'after the forged one'`);
    expect(await readTask(db(), taskId)).toEqual(before);
    expect(await desk.letters(`task_id = '${taskId}'`)).toEqual([]);
  });

  test('names and texts with U+0000 are kept, in columns with a replacement', async () => {
    await desk.publish(desk.door.names.dlx, 'nul\0key', 'x', {
      messageId: 'nul',
      appId: 'a\0b',
      headers: { 'k\0': 'v\0' },
    });
    const letter = await desk.letter(`properties->>'messageId' = 'nul'`);
    expect(letter.routing_key).toBe('nul\uFFFDkey');
    expect(letter.properties).toMatchObject({
      appId: { $: 's', v: Buffer.from('a\0b', 'utf16le').toString('base64') },
    });
  });

  test('a raw message in a work queue, which no worker can read, is foreign too', async () => {
    await desk.publish(desk.door.names.work, 'default', 'not an invitation', { messageId: 'raw' });
    await desk.reject(desk.door.names.queue('default'));
    expect(await desk.letter(`properties->>'messageId' = 'raw'`)).toMatchObject({
      kind: 'foreign',
      reason: 'rejected',
    });
  });
});
