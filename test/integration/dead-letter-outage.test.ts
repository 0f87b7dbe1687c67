/** Nothing that died is lost, and nothing is recorded twice, whatever fails around the handler. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { createBookkeeping } from '../../services/dead-letter-handler/bookkeeping.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { AMQP_URL } from '../support/broker.ts';
import { count, partDeps, rows } from '../support/core.ts';
import { openDesk } from '../support/dead-letters.ts';
import type { DeadLetterDesk, TestHandler } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';

let desk: DeadLetterDesk;
let broker: FaultyProxy;
let postgres: FaultyProxy;
beforeAll(async () => {
  desk = await openDesk();
  broker = await FaultyProxy.open(AMQP_URL);
  postgres = await FaultyProxy.open(desk.door.db.url);
});
afterEach(async () => {
  broker.resume();
  broker.accept();
  postgres.resume();
  postgres.accept();
  // Whatever a test left behind is recorded by a handler without faults.
  const handler = await desk.handler();
  await desk.emptied();
  await handler[Symbol.asyncDispose]();
  await desk.drained();
});
afterAll(async () => {
  await desk[Symbol.asyncDispose]();
  await broker[Symbol.asyncDispose]();
  await postgres[Symbol.asyncDispose]();
});

const db = (): DeadLetterDesk['door']['db']['database'] => desk.door.db.database;

async function faultyHandler(): Promise<TestHandler> {
  return await desk.handler({ AMQP_URL: broker.urlOf(AMQP_URL), DATABASE_URL: postgres.urlOf(desk.door.db.url) });
}

async function die(name: string, amount: number): Promise<void> {
  await Promise.all(
    Array.from(
      { length: amount },
      async (_, index) => await desk.publish(desk.door.names.dlx, name, `${index}`, { messageId: `${name} ${index}` }),
    ),
  );
}

const recorded = async (name: string): Promise<number> => await count(db(), 'dead_letters', `routing_key = '${name}'`);

describe('no second letter', () => {
  test('for deliveries whose ack was lost after the commit', async () => {
    await using handler = await faultyHandler();
    const taskId = await desk.deadTask();
    broker.drop('to-server');
    await die('unacked', 20);
    await desk.rejectInvitation(taskId);
    await eventually(async () => {
      expect(await recorded('unacked')).toBe(20);
      expect(await count(db(), 'dead_letters', `task_id = '${taskId}' and recorded_at is not null`)).toBe(1);
    });
    broker.cut();
    broker.resume();
    await eventually(async () => expect((await handler.get('/readyz')).status).toBe(200));
    await desk.emptied();
    await handler[Symbol.asyncDispose]();
    expect(await recorded('unacked')).toBe(20);
    expect(await desk.letters(`task_id = '${taskId}'`)).toHaveLength(1);
  });

  test('and none missing, when handlers are stopped in the middle', async () => {
    await using other = await desk.handler({ WARREN_DEAD_LETTERS_PREFETCH: '7' });
    await using handler = await desk.handler({ WARREN_DEAD_LETTERS_PREFETCH: '20' });
    const dying = die('mid-way', 400);
    await eventually(async () => expect(await recorded('mid-way')).toBeGreaterThan(0), { everyMs: 1 });
    await handler[Symbol.asyncDispose]();
    await dying;
    await eventually(async () => expect(await recorded('mid-way')).toBe(400));
    await other[Symbol.asyncDispose]();
    expect(await recorded('mid-way')).toBe(400);
  });
});

test('while Postgres is away letters wait in RabbitMQ and the handler is not ready; then all are recorded', async () => {
  await using handler = await faultyHandler();
  postgres.refuse();
  postgres.cut();
  await die('away', 50);
  await eventually(async () => {
    const { status, json } = await handler.get('/readyz');
    expect(status).toBe(503);
    expect(json['checks']).toMatchObject({ postgres: { status: 'failing' } });
  });
  expect(await recorded('away')).toBe(0);
  expect((await handler.get('/v1/dead-letters')).json).toMatchObject({ type: 'database-unavailable', status: 503 });
  postgres.accept();
  await eventually(async () => expect(await recorded('away')).toBe(50));
  await eventually(async () => expect((await handler.get('/readyz')).status).toBe(200));
});

test('a dead-letter queue that was deleted is declared anew and consumed', async () => {
  await using handler = await desk.handler();
  await desk.door.broker.raw.deleteQueue(desk.door.names.dead);
  await eventually(async () => {
    await die('anew', 1);
    expect(await recorded('anew')).toBeGreaterThan(0);
  });
  expect((await handler.get('/readyz')).status).toBe(200);
});

test('a task whose message never came has a whole letter all the same', async () => {
  const taskId = await desk.deadTask();
  const metrics = createMetrics({ service: 'test', version: '', withProcess: false });
  const bookkeeping = createBookkeeping({ ...partDeps, db: db(), metrics }, { intervalMs: 10, giveUpAfterMs: 0 });
  await bookkeeping.start();
  await eventually(async () => expect((await desk.letters(`task_id = '${taskId}'`))[0]?.recorded_at).not.toBeNull());
  // A round sets this one last.
  await eventually(async () => expect(await metrics.render()).toContain('warren_replays_open{state="stopped"} 0\n'));
  await bookkeeping.stop(0);
  expect(await metrics.render()).toMatch(/^warren_dead_letters_open [1-9]/m);
  expect(await metrics.render()).toMatch(/^warren_dead_letters_total\{reason="non_retryable"\} 1$/m);
  expect(await metrics.render()).toMatch(/^warren_dead_letters_oldest_seconds \d/m);
  // Evidence that comes late is welcome, and not counted again.
  await using handler = await desk.handler();
  await desk.rejectInvitation(taskId);
  await desk.letter(`task_id = '${taskId}' and evidence_key is not null`);
  expect((await handler.get('/metrics')).text).not.toContain('warren_dead_letters_total{');
});

test('replays that have not ended are counted by state', async () => {
  for (const [state, finished] of [
    ['stopped', 'null'],
    ['stopped', 'null'],
    ['running', 'null'],
    ['finished', 'now()'],
  ]) {
    await rows(
      db(),
      `insert into replays (id, state, created_by, role, selection, items, waves, finished_at, look_at)
       values (gen_random_uuid(), '${state}', 'anna', 'operator', '{}', 0, '[]', ${finished}, null)`,
    );
  }
  const metrics = createMetrics({ service: 'test', version: '', withProcess: false });
  const bookkeeping = createBookkeeping({ ...partDeps, db: db(), metrics }, { intervalMs: 10, giveUpAfterMs: 60_000 });
  await bookkeeping.start();
  const open = async (): Promise<readonly string[]> =>
    (await metrics.render()).split('\n').filter((line) => line.startsWith('warren_replays_open{'));
  await eventually(async () =>
    expect(await open()).toEqual([
      'warren_replays_open{state="waiting"} 0',
      'warren_replays_open{state="running"} 1',
      'warren_replays_open{state="paused"} 0',
      'warren_replays_open{state="stopped"} 2',
    ]),
  );
  await bookkeeping.stop(0);
  await rows(db(), 'delete from replays');
});

describe('a letter that Postgres refuses', () => {
  afterEach(async () => {
    await rows(db(), 'drop trigger if exists refuse on dead_letters');
  });

  async function refuseWhere(condition: string): Promise<void> {
    await rows(
      db(),
      `create or replace function refuse() returns trigger language plpgsql as $$
       begin raise exception 'refused by the test' using errcode = '22023'; end $$`,
    );
    await rows(
      db(),
      `create trigger refuse before insert on dead_letters for each row when (${condition}) execute function refuse()`,
    );
  }

  test('is parked once in a reduced form, and its neighbours are whole', async () => {
    await refuseWhere(`new.headers ? 'poison'`);
    await die('neighbours', 30);
    await desk.publish(desk.door.names.dlx, 'neighbours', 'the bad one', { headers: { poison: true } });
    await using handler = await desk.handler();
    await eventually(async () => expect(await recorded('neighbours')).toBe(31));
    const [bad, ...others] = await desk.letters(`routing_key = 'neighbours' and reason = 'unstorable'`);
    expect(others).toEqual([]);
    expect(bad).toMatchObject({ kind: 'foreign', state: 'open', properties: null, headers: null });
    expect(bad?.body?.toString()).toBe('the bad one');
    expect(bad?.error_message).toContain('refused by the test');
    expect(await handler.post(`/v1/dead-letters/${bad?.id ?? ''}/replay`, {})).toMatchObject({
      status: 400,
      json: { reason: 'only a part of this message was kept' },
    });
    expect((await handler.get(`/v1/dead-letters/${bad?.id ?? ''}`)).json).toMatchObject({ text: 'the bad one' });
  });

  test('in every form stays in the queue and holds up nobody', async () => {
    await refuseWhere(`new.routing_key = 'hopeless'`);
    await desk.publish(desk.door.names.dlx, 'hopeless', 'x');
    await using handler = await desk.handler();
    await die('behind', 10);
    await eventually(async () => expect(await recorded('behind')).toBe(10));
    expect(await recorded('hopeless')).toBe(0);
    await rows(db(), 'drop trigger refuse on dead_letters');
    await eventually(async () => expect(await recorded('hopeless')).toBe(1));
    expect((await handler.get('/readyz')).status).toBe(200);
  });
});

test('a message beyond the limit of the front door is kept whole', async () => {
  await using handler = await desk.handler();
  const body = Buffer.alloc(1_048_576, 'x');
  await desk.door.publish('test.noop', body, { messageId: 'large' });
  const letter = await desk.letter(`properties->>'messageId' = 'large'`);
  expect(letter).toMatchObject({ kind: 'refused', reason: 'invalid_message', error_code: 'body-too-large' });
  expect(letter.body?.equals(body)).toBe(true);
  expect((await handler.get(`/v1/dead-letters/${letter.id}`)).json).toMatchObject({ bodyBytes: 1_048_576 });
});
