/** Replay and discard: exactly one new run per letter, whoever presses how often and whatever crashes. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { addTask, count, openWorker, readTask, rows, aDeath } from '../support/core.ts';
import { openDesk } from '../support/dead-letters.ts';
import type { ApiAnswer, DeadLetterDesk, LetterRow, TestHandler } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';
import { publishRawHeaders, rawField, rawTable } from '../support/raw-headers.ts';
import { aType } from '../support/task-api.ts';

let desk: DeadLetterDesk;
let handler: TestHandler;
let second: TestHandler;
let target: string;
beforeAll(async () => {
  desk = await openDesk();
  target = await desk.door.broker.queue();
  const gone = `${desk.door.broker.prefix}.gone`;
  const env = { WARREN_DEAD_LETTERS_REPLAY_DESTINATIONS: [`/${target}`, `${gone}/key`, '/no.such.queue'].join(',') };
  handler = await desk.handler(env);
  second = await desk.handler(env);
});
afterAll(async () => {
  await desk.drained();
  await desk[Symbol.asyncDispose]();
});

const db = (): DeadLetterDesk['door']['db']['database'] => desk.door.db.database;

/** Presses the button as often on two handlers at once; gives what was answered, sorted by status. */
async function press(letterId: string, times: number): Promise<readonly ApiAnswer[]> {
  const answers = await Promise.all(
    Array.from(
      { length: times },
      async (_, index) =>
        await (index % 2 === 0 ? handler : second).post(`/v1/dead-letters/${letterId}/replay`, { reason: 'again' }),
    ),
  );
  return answers.toSorted((a, b) => a.status - b.status);
}

/** Publishes what the front door refuses, and gives its letter. */
async function refused(type: string, body = '{"a":1}', messageId = newId() as string): Promise<LetterRow> {
  await desk.door.publish(type, body, { messageId, headers: { 'x-request-id': 'r1', other: 'kept' } });
  return await desk.letter(`properties->>'messageId' = '${messageId}'`);
}

async function foreign(headers: Record<string, unknown> = {}): Promise<LetterRow> {
  const appId = newId() as string;
  await desk.publish('', desk.door.names.dead, 'bytes', { appId, headers, expiration: '600000' });
  return await desk.letter(`properties->>'appId' = '${appId}'`);
}

describe('a dead task', () => {
  test('invariant 5: pressed 20 times at once, it runs exactly once more', async () => {
    const taskId = await addTask(db(), {
      deadline: `clock_timestamp() + interval '1 hour'`,
      lostAttempts: 2,
      lostAlone: 1,
    });
    await desk.kill(taskId);
    const { id } = await desk.letter(`task_id = '${taskId}'`);
    const [first, ...others] = await press(id, 20);
    expect(first).toMatchObject({ status: 200, json: { id, kind: 'task', state: 'replayed', taskId } });
    // A busy machine may let one wait too long for the letter: it is told to ask again.
    const [refused, ...unanswered] = [409, 503].map((wanted) => others.filter(({ status }) => status === wanted));
    expect((refused?.length ?? 0) + (unanswered[0]?.length ?? 0)).toBe(19);
    expect(refused?.[0]).toMatchObject({
      type: 'application/problem+json; charset=utf-8',
      json: { type: 'dead-letter-closed', state: 'replayed', closedBy: 'local' },
    });
    expect(await readTask(db(), taskId)).toMatchObject({
      state: 'pending',
      generation: 2,
      attempt: 1,
      failures: 0,
      lost_attempts: 0,
      lost_alone: 0,
      deadline: null,
      finished_at: null,
      result: null,
    });
    const invitation = await desk.nextInvitation();
    expect(JSON.parse(invitation.content.toString())).toEqual({ taskId, type: 'test.noop', generation: 2 });
    await eventually(async () => expect(await count(db(), 'outbox')).toBe(0));
    expect((await desk.door.broker.raw.checkQueue(desk.door.names.queue('default'))).messageCount).toBe(0);
    expect(await rows(db(), 'select actor, role, address, action, detail from audit where target = $1', id)).toEqual([
      {
        actor: 'local',
        role: 'admin',
        address: '127.0.0.1',
        action: 'dead-letter.replay',
        detail: { kind: 'task', taskId, generation: 2, reason: 'again' },
      },
    ]);
  });

  test('dies and is replayed five times, each with a letter of its own and the whole history', async () => {
    const taskId = await addTask(db());
    for (let round = 1; round <= 5; round += 1) {
      await desk.kill(taskId);
      await desk.rejectInvitation(taskId, round);
      const letter = await desk.letter(`task_id = '${taskId}' and state = 'open' and recorded_at is not null`);
      expect(letter).toMatchObject({ attempt: round, exchange: desk.door.names.work, routing_key: 'default' });
      expect((await handler.post(`/v1/dead-letters/${letter.id}/replay`, {})).status).toBe(200);
      await desk.nextInvitation();
    }
    const letters = await desk.letters(`task_id = '${taskId}'`);
    expect(letters.map(({ state }) => state)).toEqual(Array(5).fill('replayed'));
    const { json } = await handler.get(`/v1/dead-letters/${letters[4]?.id ?? ''}`);
    expect(json['attempts']).toMatchObject([5, 4, 3, 2, 1].map((attempt) => ({ attempt, outcome: 'failed' })));
    expect(json['letters']).toMatchObject(
      letters.toReversed().map(({ id, attempt }) => ({ id, attempt, state: 'replayed', closedBy: 'local' })),
    );
    expect(await readTask(db(), taskId)).toMatchObject({ state: 'pending', generation: 6, attempt: 5, failures: 0 });
  });

  test('the late success of the attempt that died changes nothing after the replay', async () => {
    const taskId = await addTask(db());
    const worker = await openWorker(db());
    const claim = await worker.win(taskId);
    await worker.settles.settle(claim, aDeath());
    const { id } = await desk.letter(`task_id = '${taskId}'`);
    expect((await handler.post(`/v1/dead-letters/${id}/replay`, {})).status).toBe(200);
    expect(await worker.settles.succeed(claim, Buffer.from('{}'))).toBe('fenced');
    expect(await readTask(db(), taskId)).toMatchObject({ state: 'pending', generation: 2 });
    expect((await desk.letter(`task_id = '${taskId}'`)).state).toBe('replayed');
    await desk.nextInvitation();
  });

  test('evidence of an earlier death does not go to the letter of a later one', async () => {
    const taskId = await addTask(db());
    await desk.kill(taskId);
    const first = await desk.letter(`task_id = '${taskId}'`);
    await handler.post(`/v1/dead-letters/${first.id}/replay`, {});
    await desk.nextInvitation();
    await desk.kill(taskId);
    await desk.rejectInvitation(taskId, 1);
    await desk.rejectInvitation(taskId, 2);
    const letter = await desk.letter(`task_id = '${taskId}' and state = 'open' and recorded_at is not null`);
    expect((await handler.get(`/v1/dead-letters/${letter.id}`)).json['evidence']).toMatchObject({
      routingKey: 'default',
    });
    expect(await desk.letters(`task_id = '${taskId}'`)).toHaveLength(2);
  });

  test('that was discarded stays dead, with who and why', async () => {
    const taskId = await desk.deadTask();
    const { id } = await desk.letter(`task_id = '${taskId}'`);
    expect((await handler.post(`/v1/dead-letters/${id}/discard`, { reason: 'the order was cancelled' })).json).toEqual({
      id,
      state: 'discarded',
    });
    expect((await handler.post(`/v1/dead-letters/${id}/replay`, {})).json).toMatchObject({
      type: 'dead-letter-closed',
      state: 'discarded',
    });
    expect((await handler.post(`/v1/dead-letters/${id}/discard`, { reason: 'again' })).status).toBe(409);
    expect((await readTask(db(), taskId)).state).toBe('dead');
    expect((await handler.get(`/v1/dead-letters/${id}`)).json).toMatchObject({
      state: 'discarded',
      closedBy: 'local',
      closeReason: 'the order was cancelled',
      audit: [{ actor: 'local', action: 'dead-letter.discard', detail: { reason: 'the order was cancelled' } }],
    });
  });
});

describe('what the front door refused', () => {
  test('goes through it again, once, and becomes a task when its cause is gone', async () => {
    const letter = await refused('later.known', '{"k":"v"}');
    expect(letter.reason).toBe('unknown_type');
    await announceTypes(db(), [aType('later.known')], 'test');
    const [first, ...others] = await press(letter.id, 20);
    expect(first).toMatchObject({ status: 200, json: { kind: 'refused', state: 'replayed' } });
    expect(new Set(others.map(({ status }) => status))).toEqual(new Set([409]));
    const messageId = letter.properties?.['messageId'] as string;
    const tasks = await eventually(async () => {
      const found = await rows<{ id: string; input: Buffer; headers: unknown }>(
        db(),
        'select t.id, t.input, o.headers from tasks t left join origins o on o.task_id = t.id where external_id = $1',
        messageId,
      );
      expect(found).toHaveLength(1);
      return found;
    });
    expect(tasks[0]?.input.toString()).toBe('{"k":"v"}');
    expect(tasks[0]?.headers).toEqual({ 'x-request-id': 'r1', other: 'kept', 'x-replay-of': letter.id });
  });

  test('and is refused again at once is a second letter, with the first one named', async () => {
    const first = await refused('never.known');
    expect((await handler.post(`/v1/dead-letters/${first.id}/replay`, {})).status).toBe(200);
    const again = await desk.letter(`type = 'never.known' and state = 'open'`);
    expect(again).toMatchObject({ kind: 'refused', reason: 'unknown_type', headers: { 'x-replay-of': first.id } });
    expect(await desk.letters(`type = 'never.known'`)).toHaveLength(2);
  });

  test('a replay that a crash cut off before the publish is finished', async () => {
    const letter = await refused('cut.before');
    await announceTypes(db(), [aType('cut.before')], 'test');
    await cutOff(letter);
    await eventually(async () => expect(await count(db(), 'tasks', `type = 'cut.before'`)).toBe(1));
    await desk.letter(`id = '${letter.id}' and state = 'replayed' and closed_by = 'ann'`);
  });

  test('invariant 5: a replay that a crash cut off after the publish makes no second task', async () => {
    const letter = await refused('cut.after');
    await announceTypes(db(), [aType('cut.after')], 'test');
    const messageId = letter.properties?.['messageId'] as string;
    await desk.door.publish('cut.after', '{"a":1}', { messageId });
    await eventually(async () => expect(await count(db(), 'tasks', `type = 'cut.after'`)).toBe(1));
    await cutOff(letter);
    await desk.letter(`id = '${letter.id}' and state = 'replayed'`);
    await eventually(async () => {
      expect((await desk.door.broker.raw.checkQueue(desk.door.names.ingress)).messageCount).toBe(0);
    });
    expect(await count(db(), 'tasks', `type = 'cut.after'`)).toBe(1);
    expect(await desk.letters(`type = 'cut.after'`)).toHaveLength(1);
  });

  test('takes no destination', async () => {
    const letter = await refused('no.destination');
    const answer = await handler.post(`/v1/dead-letters/${letter.id}/replay`, {
      destination: { exchange: '', routingKey: target },
    });
    expect(answer).toMatchObject({ status: 400, json: { type: 'field-invalid', field: 'destination' } });
    expect((await desk.letter(`id = '${letter.id}'`)).state).toBe('open');
  });
});

/** As a handler leaves it that dies between its two commits. */
async function cutOff({ id, type }: LetterRow): Promise<void> {
  await rows(
    db(),
    `update dead_letters set state = 'replaying', replay_at = clock_timestamp() - interval '1 hour', replay_exchange = $2,
            replay_routing_key = $3, closed_by = 'ann' where id = $1`,
    id,
    desk.door.names.tasks,
    type,
  );
}

describe('a foreign letter', () => {
  const to = (routingKey: string, exchange = ''): unknown => ({ destination: { exchange, routingKey } });

  test('goes only where the configuration lets it', async () => {
    const { id } = await foreign();
    for (const body of [{}, to('elsewhere'), to(target, 'amq.direct')]) {
      const answer = await handler.post(`/v1/dead-letters/${id}/replay`, body);
      expect(answer).toMatchObject({ status: 403, json: { type: 'destination-not-allowed' } });
    }
    expect((await desk.letter(`id = '${id}'`)).state).toBe('open');
    expect(await count(db(), 'audit', `target = '${id}'`)).toBe(0);
  });

  test("arrives once, without the broker's evidence, its expiration and a foreign user_id", async () => {
    const { id } = await foreign({ 'x-death': [{ reason: 'rejected' }], 'x-delivery-count': 9, 'x-trace': 't', n: 1 });
    await rows(db(), `update dead_letters set properties = properties || '{"userId":"somebody"}' where id = $1`, id);
    const answers = await Promise.all(
      Array.from({ length: 20 }, async () => await handler.post(`/v1/dead-letters/${id}/replay`, to(target))),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    const { content, properties } = await desk.door.next(target);
    expect(content.toString()).toBe('bytes');
    expect(properties.headers).toEqual({ 'x-trace': 't', n: 1, 'x-replay-of': id });
    expect(properties).toMatchObject({ messageId: id, userId: undefined, expiration: undefined, deliveryMode: 2 });
    expect((await desk.door.broker.raw.checkQueue(target)).messageCount).toBe(0);
    expect((await handler.get(`/v1/dead-letters/${id}`)).json).toMatchObject({
      state: 'replayed',
      replayedTo: { exchange: '', routingKey: target },
    });
  });

  test.each([
    ['queue', (): unknown => to('no.such.queue')],
    ['exchange', (): unknown => to('key', `${desk.door.broker.prefix}.gone`)],
  ])('whose %s is gone is open again, and other publishes do not suffer', async (_what, body) => {
    const { id } = await foreign();
    const answer = await handler.post(`/v1/dead-letters/${id}/replay`, body());
    expect(answer).toMatchObject({ status: 500, json: { type: 'unroutable' } });
    expect((await desk.letter(`id = '${id}'`)).state).toBe('open');
    const actions = await rows<{ action: string }>(db(), 'select action from audit where target = $1 order by id', id);
    expect(actions.map(({ action }) => action)).toEqual(['dead-letter.replay', 'dead-letter.reopen']);
    expect((await handler.post(`/v1/dead-letters/${id}/replay`, to(target))).status).toBe(200);
    await desk.door.next(target);
  });

  test('headers of every AMQP type come out of a replay as they went in', async () => {
    const eight = Buffer.alloc(8);
    eight.writeDoubleBE(1.5);
    const fields = Buffer.concat([
      rawField('bool', 't', Buffer.from([1])),
      rawField('byte', 'b', Buffer.from([0xff])),
      rawField('short', 's', Buffer.from([0xff, 0xfe])),
      rawField('int', 'I', Buffer.from([0xff, 0xff, 0xff, 0xfd])),
      rawField('long', 'l', Buffer.from([0, 0, 0, 1, 0, 0, 0, 0])),
      rawField('float', 'f', Buffer.from([0x3f, 0x80, 0, 0])),
      rawField('double', 'd', eight),
      rawField('decimal', 'D', Buffer.from([2, 0, 0, 1, 0])),
      rawField('text', 'S', Buffer.from([0, 0, 0, 2, 0xc3, 0xa4])),
      rawField('bytes', 'x', Buffer.from([0, 0, 0, 2, 0, 255])),
      rawField('time', 'T', Buffer.from([0, 0, 0, 0, 0x60, 0, 0, 0])),
      rawField('void', 'V', Buffer.alloc(0)),
      rawField('list', 'A', Buffer.from([0, 0, 0, 3, 0x56, 0x74, 0])),
      rawTable('__proto__', rawField('isAdmin', 't', Buffer.from([1]))),
      rawTable('table', rawField('constructor', 'S', Buffer.from([0, 0, 0, 1, 0x78]))),
    ]);
    const control = await desk.door.broker.queue();
    await publishRawHeaders(desk.door.broker.raw, control, fields);
    await publishRawHeaders(desk.door.broker.raw, desk.door.names.dead, fields);
    const sent = await desk.door.next(control);
    const letter = await desk.letter(`headers->>'$' = 't' and convert_from(body, 'UTF8') = 'x'`);
    expect((await handler.post(`/v1/dead-letters/${letter.id}/replay`, to(target))).status).toBe(200);
    const { properties } = await desk.door.next(target);
    const { 'x-replay-of': mark, ...headers } = properties.headers ?? {};
    expect(mark).toBe(letter.id);
    expect(headers).toEqual(sent.properties.headers);
    expect(Object.getPrototypeOf(properties.headers)).toEqual({ isAdmin: true });
    expect(({} as Record<string, unknown>)['isAdmin']).toBeUndefined();
  });
});
