/** Following tasks over HTTP: server-sent events, and answers that wait. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { parsePoint, renderPoint } from '../../services/producer/follow-point.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addTask, rows } from '../support/core.ts';
import { openEvents } from '../support/event-stream.ts';
import type { ReadStream } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

let api: TestTaskApi;
let db: TestTaskApi['db']['database'];
beforeAll(async () => {
  api = await openTaskApi([aType('report.csv')], {
    streams: { heartbeatMs: 100, stalledMs: 1_000, retryMs: 1_234 },
  });
  db = api.db.database;
});
afterAll(async () => await api[Symbol.asyncDispose]());

const follow = async (id: string, lastEventId?: string): Promise<ReadStream> =>
  await openEvents(
    `${api.url}/v1/tasks/${id}/events`,
    lastEventId === undefined ? {} : { 'last-event-id': lastEventId },
  );

async function claim(id: string): Promise<void> {
  await db.query({
    text: `update tasks set state = 'running', attempt = attempt + 1, claim_id = gen_random_uuid(), worker = gen_random_uuid(),
                            started_at = clock_timestamp() where id = $1`,
    values: [id],
  });
}

/** Ends the running attempt, as a settle does: in one transaction with its history. */
async function settle(id: string, state: 'succeeded' | 'retrying' | 'dead', message = 'no luck'): Promise<void> {
  await db.query({
    text: `with settled as (
             update tasks set state = $2::task_state, run_at = case when $2 = 'retrying' then now() end,
                              finished_at = case when $2 <> 'retrying' then now() end
              where id = $1 returning id, attempt, worker, started_at
           )
           insert into attempts (task_id, attempt, worker, started_at, finished_at, outcome, error_type, error_message)
           select id, attempt, worker, started_at, now(), 'failed', 'Error', $3 from settled where $2 <> 'succeeded'`,
    values: [id, state, message],
  });
}

async function say(id: string, attempt: number, fraction: number): Promise<void> {
  await db.query({
    text: `insert into progress (task_id, attempt, fraction, step) values ($1, $2, $3, 'reading')
           on conflict (task_id) do update set attempt = excluded.attempt, fraction = excluded.fraction, updated_at = clock_timestamp()`,
    values: [id, attempt, fraction],
  });
}

const statesOf = (stream: ReadStream): unknown[] =>
  stream.events.filter(({ event }) => event === 'state').map(({ data }) => data['state']);
const kindsOf = (stream: ReadStream): string[] => stream.events.map(({ event }) => event);

describe('a stream', () => {
  test('tells states, progress and attempts as they come, and ends with the task', async () => {
    const id = await addTask(db, { type: 'report.csv' });
    const stream = await follow(id);
    expect(stream.status).toBe(200);
    expect(stream.headers['content-type']).toMatch(/^text\/event-stream/);
    await eventually(() => expect(statesOf(stream)).toEqual(['pending']));
    await claim(id);
    await eventually(() => expect(statesOf(stream)).toEqual(['pending', 'running']));
    await say(id, 1, 0.5);
    await eventually(() =>
      expect(stream.events.at(-1)?.data).toMatchObject({ fraction: 0.5, step: 'reading', attempt: 1 }),
    );
    await settle(id, 'retrying');
    await eventually(() => expect(kindsOf(stream)).toEqual(['state', 'state', 'progress', 'attempt', 'state']));
    expect(stream.events[3]?.data).toMatchObject({ id, attempt: 1, outcome: 'failed', error: { message: 'no luck' } });
    await claim(id);
    await settle(id, 'succeeded');
    await stream.ended;
    expect(stream.events.at(-1)).toMatchObject({ event: 'state', data: { id, state: 'succeeded', attempt: 2 } });
    expect(stream.comments.at(-1)).toBe('the task has ended');
    expect(stream.retryMs()).toBe(1_234);
    expect(api.follower.watchers).toBe(0);
  });

  test('goes on after the last event that a client has seen, with every attempt that ended meanwhile', async () => {
    const id = await addTask(db, { type: 'report.csv', maxAttempts: 5 });
    const first = await follow(id);
    await claim(id);
    await eventually(() => expect(statesOf(first)).toContain('running'));
    const seen = first.events.at(-1)?.id ?? '';
    first.close();
    await first.ended;
    for (const message of ['first', 'second']) {
      await settle(id, 'retrying', message);
      await claim(id);
    }
    await settle(id, 'dead', 'third');
    const second = await follow(id, seen);
    await second.ended;
    expect(second.events.map(({ event, data }) => [event, data['attempt'], data['state']])).toEqual([
      ['attempt', 1, undefined],
      ['attempt', 2, undefined],
      ['attempt', 3, undefined],
      ['state', 3, 'dead'],
    ]);
    // each event is a place to go on from: what comes after it is told, and nothing twice
    const third = await follow(id, second.events[1]?.id);
    await third.ended;
    expect(third.events.map(({ data }) => data['attempt'])).toEqual([3, 3]);
    // all was told: a browser would come again for ever, were it not told so
    const over = await follow(id, second.events.at(-1)?.id);
    expect([over.status, over.events]).toEqual([204, []]);
    over.close();
  });

  test('is kept alive by comments while nothing happens', async () => {
    const stream = await follow(await addTask(db, { type: 'report.csv' }));
    await eventually(() => expect(stream.comments.filter((each) => each === 'still here').length).toBeGreaterThan(2));
    expect(kindsOf(stream)).toEqual(['state']);
    stream.close();
    await eventually(() => expect(api.follower.watchers).toBe(0));
  });

  test('of a task whose row goes away ends, and says why', async () => {
    const id = await addTask(db, { type: 'report.csv' });
    const stream = await follow(id);
    await eventually(() => expect(statesOf(stream)).toEqual(['pending']));
    await db.query({ text: 'delete from tasks where id = $1', values: [id] });
    await stream.ended;
    expect(stream.comments.at(-1)).toBe('the task is no longer kept');
  });

  test('two hundred at once each hear of their task, by few statements', async () => {
    const ids = await Promise.all(Array.from({ length: 200 }, async () => await addTask(db, { type: 'report.csv' })));
    const streams = await Promise.all(ids.map(async (id) => await follow(id)));
    await eventually(() => expect(streams.every((stream) => statesOf(stream).length === 1)).toBe(true));
    await db.query({
      text: `update tasks set state = 'cancelled', finished_at = now() where id = any($1::uuid[])`,
      values: [ids],
    });
    await Promise.all(streams.map(async (stream) => await stream.ended));
    expect(streams.map((stream) => statesOf(stream).join())).toEqual(ids.map(() => 'pending,cancelled'));
    expect(api.follower.watchers).toBe(0);
  });

  test.each([
    ['no-uuid', undefined, 400, 'field-invalid'],
    [newId(), undefined, 404, 'task-not-found'],
    ['task', 'nonsense', 400, 'field-invalid'],
    ['task', 'running-1-1-99999999999-0', 400, 'field-invalid'],
  ])('of %s after event %s is answered %i', async (name, lastEventId, status, type) => {
    const id = name === 'task' ? await addTask(db, { type: 'report.csv' }) : name;
    const headers = lastEventId === undefined ? {} : { 'last-event-id': lastEventId };
    const answer = await api.get(`/v1/tasks/${id}/events`, headers as Record<string, string>);
    expect([answer.status, answer.json['type']]).toEqual([status, type]);
  });
});

test('the id of an event is read as it was written', () => {
  const point = {
    state: 'retrying',
    attempt: 3,
    generation: 2,
    endedAttempt: 3,
    progressMs: 1_767_268_800_000,
  } as const;
  expect(parsePoint(renderPoint(point))).toEqual(point);
});

test('no more may follow than the limit allows, and whoever leaves makes room', async () => {
  await using small = await openTaskApi([aType('report.csv')], { maxFollowers: 2 });
  const id = await addTask(small.db.database, { type: 'report.csv' });
  const url = `${small.url}/v1/tasks/${id}/events`;
  const streams = [await openEvents(url), await openEvents(url)];
  const refused = await small.get(`/v1/tasks/${id}/events`);
  expect([refused.status, refused.json['type'], refused.headers.get('retry-after')]).toEqual([
    503,
    'followers-full',
    '5',
  ]);
  // a look that prefers to wait is not refused: it is answered at once
  const look = await small.get(`/v1/tasks/${id}`, { prefer: 'wait=5' });
  expect([look.status, look.headers.get('preference-applied')]).toEqual([200, null]);
  for (const stream of streams) stream.close();
  await eventually(() => expect(small.follower.watchers).toBe(0));
  const again = await openEvents(url);
  expect(again.status).toBe(200);
  again.close();
});

test('a server that stops ends every stream at once, with when to come again', async () => {
  await using stopping = await openTaskApi([aType('report.csv')]);
  const id = await addTask(stopping.db.database, { type: 'report.csv' });
  const stream = await openEvents(`${stopping.url}/v1/tasks/${id}/events`);
  await eventually(() => expect(statesOf(stream)).toEqual(['pending']));
  const startedMs = systemClock.monotonicMs();
  await stopping.stopHttp();
  await stream.ended;
  expect(systemClock.monotonicMs() - startedMs).toBeLessThan(3_000);
  expect(stream.comments.at(-1)).toMatch(/come again/);
  expect(stream.retryMs()).toBe(2_000);
});

describe('an answer that is preferred to wait', () => {
  test('to a submission comes with the result once the task has ended', async () => {
    const asked = api.post('/v1/tasks', JSON.stringify({ type: 'report.csv', input: { n: 1 } }), { prefer: 'wait=5' });
    const id = await eventually(async () => {
      const [row] = await rows<{ id: string }>(
        db,
        `select id from tasks where input = '{ "n": 1 }' or input = '{"n":1}'`,
      );
      if (row === undefined) throw new Error('not accepted yet');
      return row.id;
    });
    await claim(id);
    await db.query({ text: `update tasks set result = '{"done":true}' where id = $1`, values: [id] });
    await settle(id, 'succeeded');
    const answer = await asked;
    expect(answer.status).toBe(200);
    expect(answer.headers.get('preference-applied')).toBe('wait=5');
    expect(answer.headers.get('location')).toBe(`/v1/tasks/${id}`);
    expect(answer.json).toMatchObject({ id, state: 'succeeded', result: { done: true } });
  });

  test('to a submission is the usual one when the time is over', async () => {
    const answer = await api.post('/v1/tasks', JSON.stringify({ type: 'report.csv', input: {} }), { prefer: 'wait=1' });
    expect([answer.status, answer.json['state']]).toEqual([202, 'pending']);
    expect(answer.headers.get('preference-applied')).toBe('wait=1');
  });

  test('to a look comes as soon as the task has ended, and no later than the limit', async () => {
    const id = await addTask(db, { type: 'report.csv' });
    const startedMs = systemClock.monotonicMs();
    const asked = api.get(`/v1/tasks/${id}`, { prefer: 'respond-async, WAIT = 600' });
    await claim(id);
    await settle(id, 'succeeded');
    const answer = await asked;
    expect(answer.json['state']).toBe('succeeded');
    expect(answer.headers.get('preference-applied')).toBe('wait=5'); // as far as this server allows
    expect(systemClock.monotonicMs() - startedMs).toBeLessThan(4_000);
  });

  test.each(['wait=soon', 'handling=lenient', 'wait=-1', 'wait=0', ''])(
    'Prefer: %s is answered at once',
    async (prefer) => {
      const answer = await api.get(`/v1/tasks/${await addTask(db, { type: 'report.csv' })}`, { prefer });
      expect([answer.status, answer.headers.get('preference-applied')]).toEqual([200, null]);
    },
  );

  test('nobody waits for a caller that has left', async () => {
    const id = await addTask(db, { type: 'report.csv' });
    const leaving = new AbortController();
    const asked = fetch(`${api.url}/v1/tasks/${id}`, { headers: { prefer: 'wait=5' }, signal: leaving.signal });
    await eventually(() => expect(api.follower.watchers).toBe(1));
    leaving.abort();
    await expect(asked).rejects.toThrow(/abort/);
    await eventually(() => expect(api.follower.watchers).toBe(0), { withinMs: 2_000 });
  });
});
