/** What workers measure, and what producers tell from it. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Estimates } from '../../services/producer/estimates.ts';
import { Measures } from '../../services/worker/measures.ts';
import type { Starts } from '../../services/worker/measures.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import { addTask, partDeps, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

let api: TestTaskApi;
let db: TestTaskApi['db']['database'];
beforeAll(async () => {
  api = await openTaskApi([aType('report.csv')]);
  db = api.db.database;
});
afterAll(async () => await api[Symbol.asyncDispose]());
beforeEach(async () => {
  await db.query({ text: 'truncate tasks, progress, run_times, queue_starts' });
});

const measuresOf = (started: () => readonly Starts[] = () => []): Measures =>
  new Measures({ ...partDeps, db, started });

async function run(seconds: number, type = 'report.csv'): Promise<string> {
  const id = await addTask(db, { type });
  await db.query({
    text: `update tasks set state = 'running', attempt = 1, claim_id = gen_random_uuid(), worker = gen_random_uuid(),
                            started_at = clock_timestamp() - $2::float8 * interval '1 s' where id = $1`,
    values: [id, seconds],
  });
  return id;
}

test('the end of a running task is estimated from how long others took, and its look is to be repeated', async () => {
  const measures = measuresOf();
  for (let n = 0; n < 20; n += 1) measures.ran('report.csv', 60_000);
  await measures.store();
  const id = await run(20);
  await eventually(async () => {
    const { json, headers } = await api.get(`/v1/tasks/${id}`);
    const finish = json['estimatedFinish'] as { secondsLeft: number; at: string; from: string };
    expect(finish.from).toBe('history');
    expect(finish.secondsLeft).toBeGreaterThan(20);
    expect(finish.secondsLeft).toBeLessThan(60);
    expect(headers.get('retry-after')).toBe('5');
  });
});

test('progress is shown with its message, and its pace tells the end', async () => {
  const id = await run(30, 'of.nobody');
  await db.query({
    text: `insert into progress (task_id, attempt, fraction, step, message) values ($1, 1, 0.5, 'reading', '17 of 34')`,
    values: [id],
  });
  const { json, headers } = await api.get(`/v1/tasks/${id}`);
  expect(json['progress']).toMatchObject({ fraction: 0.5, step: 'reading', message: '17 of 34' });
  const { secondsLeft, from } = json['estimatedFinish'] as { secondsLeft: number; from: string };
  expect(from).toBe('pace');
  expect(Math.abs(secondsLeft - 30)).toBeLessThan(3);
  expect(headers.get('retry-after')).toBe('5');
});

test('a task that has ended is not to be looked at again', async () => {
  const id = await addTask(db, { type: 'report.csv' });
  expect((await api.get(`/v1/tasks/${id}`)).headers.get('retry-after')).toBe('2');
  await db.query({ text: `update tasks set state = 'cancelled', finished_at = now() where id = $1`, values: [id] });
  const ended = await api.get(`/v1/tasks/${id}`);
  expect(ended.headers.get('retry-after')).toBeNull();
  expect(ended.json['estimatedFinish']).toBeUndefined();
});

test('what several workers measure adds up, and what is old weighs less', async () => {
  for (const measures of [measuresOf(), measuresOf()]) {
    measures.ran('a.type', 100);
    measures.ran('b.type', 100);
    await measures.store();
  }
  const total = async (type: string): Promise<number> => {
    const [row] = await rows<{ total: number }>(
      db,
      'select (select sum(w) from unnest(weights) w)::float8 as total from run_times where type = $1',
      type,
    );
    return row?.total ?? 0;
  };
  expect(await total('a.type')).toBeCloseTo(2, 2);
  await db.query({ text: `update run_times set weighed_at = weighed_at - interval '1 hour'` });
  const later = measuresOf();
  later.ran('a.type', 5);
  await later.store();
  expect(await total('a.type')).toBeCloseTo(2, 2); // two of an hour ago weigh one
  await db.query({ text: `update run_times set weighed_at = weighed_at - interval '90 days'` });
  later.ran('a.type', 5);
  await later.store();
  expect(await total('a.type')).toBeCloseTo(1, 2);
});

const idAt = (second: number): string => idAtLeast(new Date(Date.UTC(2030, 0, 1, 0, 0, second)));

test('starts are counted per queue and priority, with the newest of them, and forgotten after ten minutes', async () => {
  let started = 7;
  let newest = idAt(7);
  const measures = measuresOf(() => [
    { queue: 'default', priority: 4, started, newest },
    { queue: 'idle', priority: 4, started: 0, newest: '' },
  ]);
  await db.query({
    text: `insert into queue_starts (queue, priority, slot, attempts, newest)
           values ('default', 4, floor(extract(epoch from now()) / 5)::int8 - 125, 3, $1)`,
    values: [idAt(1)],
  });
  await measures.store();
  started = 10;
  newest = idAt(10);
  await measures.store();
  await measures.store();
  const counted = await rows<object>(
    db,
    `select queue, priority, sum(attempts)::text as attempts, max(newest::text) as newest
       from queue_starts group by queue, priority`,
  );
  expect(counted).toEqual([{ queue: 'default', priority: 4, attempts: '10', newest: idAt(10) }]);
});

describe('a task that waits', () => {
  /** As if so many of a priority had been started in each of the last slots, up to the task of `newest`. */
  async function drained(priority: number, perSlot: number, newest: string): Promise<void> {
    await db.query({
      text: `insert into queue_starts (queue, priority, slot, attempts, newest)
             select 'default', $1, floor(extract(epoch from now()) / 5)::int8 - n, $2, $3 from generate_series(1, 6) n`,
      values: [priority, perSlot, newest],
    });
  }

  test('tells its place among those that go first, and when half and nine of ten of such tasks have started', async () => {
    await drained(4, 50, idAt(10));
    await addTask(db, { id: idAt(5) }); // older than what was started: it is on its way already
    for (const second of [11, 12, 13]) await addTask(db, { id: idAt(second) });
    await addTask(db, { id: idAt(14), priority: 9 });
    await addTask(db, { id: idAt(15), priority: 1 });
    await addTask(db, { id: idAt(16), queue: 'other' });
    const mine = await addTask(db, { id: idAt(20) });
    await addTask(db, { id: idAt(21) });
    await eventually(async () => {
      const { json, headers } = await api.get(`/v1/tasks/${mine}`);
      expect(json['estimatedStart']).toMatchObject({ position: 5, secondsP50: 0.4, secondsP90: 0.4, from: 'rates' });
      expect(headers.get('retry-after')).toBe('2');
    });
  });

  test('far behind is told a place that is reckoned, by a bounded look', async () => {
    await drained(4, 500, idAt(0));
    await db.query({
      text: `insert into tasks (id, state, max_attempts, priority, type, queue, input, invited_at)
             select (lpad(to_hex(extract(epoch from timestamptz '2030-01-01')::int8 * 1000 + n), 12, '0')
                     || '7' || lpad(to_hex(n), 3, '0') || '8000000000000000')::uuid,
                    'pending', 1, 4, 't', 'default', '{}', now()
               from generate_series(1, 4000) n`,
    });
    const mine = await addTask(db, { id: idAt(5) });
    await eventually(async () => {
      const start = (await api.get(`/v1/tasks/${mine}`)).json['estimatedStart'] as Record<string, number>;
      expect(start['position']).toBeGreaterThan(2_000);
      expect(start['position']).toBeLessThan(6_000);
      expect(start['secondsP50']).toBeGreaterThan(20);
    });
  });

  test('for an instant is told that', async () => {
    const id = await addTask(db, { state: 'scheduled', runAt: `now() + interval '1 hour'` });
    const { json, headers } = await api.get(`/v1/tasks/${id}`);
    const { secondsP50, from } = json['estimatedStart'] as { secondsP50: number; from: string };
    expect(from).toBe('run-at');
    expect(Math.abs(secondsP50 - 3_600)).toBeLessThan(5);
    expect(headers.get('retry-after')).toBe('5');
  });

  test.each([
    ['is paused', `mode = 'paused'`],
    ['is fair', `fair_by = 'input.tenant'`],
  ])('is told no place in a queue that %s, where it would be wrong', async (_how, change) => {
    const id = await addTask(db);
    await db.query({ text: `update queues set ${change} where name = 'default'` });
    await eventually(async () => expect((await api.get(`/v1/tasks/${id}`)).json).not.toHaveProperty('estimatedStart'));
    await db.query({ text: `update queues set mode = 'open', fair_by = null where name = 'default'` });
    await eventually(async () => expect((await api.get(`/v1/tasks/${id}`)).json).toHaveProperty('estimatedStart'));
  });

  test('is told no place where too many ask within a second, so that a look at it stays cheap', async () => {
    const clock = { ...partDeps.clock, monotonicMs: () => 5_000 };
    const estimates = new Estimates({ ...partDeps, clock, db, startsInOrder: () => true });
    const id = await addTask(db);
    const waiting = { state: 'pending', now: new Date(), runAt: undefined, startedAt: undefined } as const;
    const ask = async (): Promise<unknown> =>
      await estimates.startOf({ ...waiting, progress: undefined, id, queue: 'default', priority: 4 });
    const told = await Promise.all(Array.from({ length: 150 }, ask));
    expect(told.filter((start) => start !== undefined)).toHaveLength(100);
  });
});
