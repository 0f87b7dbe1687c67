/** What a queue is scaled by, read from a real database, and what an autoscaler is answered. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { Scaling } from '../../services/producer/scaling.ts';
import type { ScalingAnswer, ScalingDeps } from '../../services/producer/scaling.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addTask, partDeps } from '../support/core.ts';
import { aType, DEFAULT_SCALING, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

const VIEWER = { name: 'keda', role: 'viewer', token: 'token-of-the-autoscaler' } as const;
const AS_VIEWER = { authorization: `Bearer ${VIEWER.token}` };

let ready: number | undefined = 0;
let api: TestTaskApi;
let db: TestTaskApi['db']['database'];
beforeAll(async () => {
  api = await openTaskApi([aType('report.csv')], { tokens: [VIEWER], readyOf: () => ready });
  db = api.db.database;
});
afterAll(async () => await api[Symbol.asyncDispose]());
beforeEach(async () => {
  ready = 0;
  await db.query({ text: 'truncate tasks, leases, held_back' });
  await db.query({ text: `update queues set mode = 'open', fair_by = null` });
});

const SECOND = { meanMs: 1_000, runs: 10 };

async function ask(deps: Partial<ScalingDeps> = {}): Promise<ScalingAnswer> {
  const usual: ScalingDeps = {
    db,
    clock: systemClock,
    types: () => [{ name: 'report.csv', queue: 'default', concurrency: undefined, rate: undefined }],
    runsOf: () => SECOND,
    readyOf: async () => await Promise.resolve(ready),
  };
  const scaling = new Scaling({ ...usual, ...deps }, DEFAULT_SCALING);
  return await scaling.answer({ queue: 'default', sloSeconds: 30, min: 0, max: 100, slotsPerWorker: 10 });
}

interface WorkerSays {
  readonly slots?: number;
  readonly running?: number;
  readonly waiting?: number;
  readonly isDraining?: boolean;
  /** An older one says nothing of its queues. */
  readonly isOlder?: boolean;
}

async function addWorker({
  slots = 4,
  running = 0,
  waiting = 0,
  isDraining = false,
  isOlder = false,
}: WorkerSays): Promise<void> {
  const loads = isOlder ? {} : { default: { running, waiting }, other: { running: 50, waiting: 50 } };
  await db.query({
    text: `insert into leases (worker, host, pid, code_version, queues, task_types, slots, loads, is_draining)
           values (gen_random_uuid(), 'test', 1, '', $1::jsonb, '{}', 99, $2::jsonb, $3)`,
    values: [JSON.stringify({ default: slots, other: 95 }), JSON.stringify(loads), isDraining],
  });
}

/** Tasks that came in one after the other within the last `seconds`. */
async function came(tasks: number, seconds: number, columns = { queue: 'default', type: 'report.csv' }): Promise<void> {
  const nowMs = systemClock.now().getTime();
  const ids = Array.from({ length: tasks }, (_, n) => {
    const id = idAtLeast(new Date(nowMs - ((n + 0.5) / tasks) * seconds * 1_000));
    return id.slice(0, -6) + n.toString(16).padStart(6, '0');
  });
  await db.query({
    text: `insert into tasks (id, state, max_attempts, priority, type, queue, input, finished_at)
           select id, 'succeeded', 3, 4, $2, $3, '{}', now() from unnest($1::uuid[]) id on conflict do nothing`,
    values: [`{${ids.join(',')}}`, columns.type, columns.queue],
  });
}

test('what waits is what RabbitMQ has ready, what workers hold unstarted, and what waits for its turn', async () => {
  ready = 5;
  await addWorker({ running: 4, waiting: 8 });
  await addWorker({ running: 3 });
  await db.query({ text: `update queues set fair_by = 'input.tenant' where name = 'default'` });
  const id = await addTask(db);
  await db.query({
    text: `insert into held_back (task_id, reason, scope, key, priority, held_at) values ($1, 'turn', 'default', 'a', 4, now())`,
    values: [id],
  });
  const { figures, ready: inBroker, held, turns } = await ask();
  expect({ inBroker, held, turns }).toEqual({ inBroker: 5, held: 8, turns: 1 });
  expect(figures).toMatchObject({ waiting: 14, running: 7, workers: 2, slotsPerWorker: 4 });
});

test('a worker on its way out is no capacity, and what it still runs wants no other slot', async () => {
  await addWorker({ running: 4 });
  await addWorker({ running: 4, waiting: 3, isDraining: true });
  const { figures, draining, ending, held } = await ask();
  expect(figures).toMatchObject({ running: 4, workers: 1, slotsPerWorker: 4 });
  expect({ draining, ending, held }).toEqual({ draining: 1, ending: 4, held: 0 });
});

test('a worker of an older version counts by its slots', async () => {
  await addWorker({ slots: 6, isOlder: true });
  expect((await ask()).figures).toMatchObject({ running: 0, workers: 1, slotsPerWorker: 6 });
});

test('arrivals are told of the queue alone, however many come in, with the mean of the types that came', async () => {
  await came(240, 120);
  await came(1_200, 120, { queue: 'other', type: 'other.type' });
  const few = (await ask({ runsOf: (type) => (type === 'report.csv' ? { meanMs: 250, runs: 1 } : SECOND) })).figures;
  expect(few.meanRunSeconds).toBeCloseTo(0.25);
  expect(Math.abs(few.arrivalPerSecond - 2)).toBeLessThan(0.5);
  await came(120_000, 120);
  expect(Math.abs((await ask()).figures.arrivalPerSecond - 1_000)).toBeLessThan(100);
});

test('what waits for an instant has not arrived yet', async () => {
  for (let n = 0; n < 50; n += 1)
    await addTask(db, { type: 'report.csv', state: 'scheduled', runAt: `now() + interval '1 h'` });
  expect((await ask()).figures.arrivalPerSecond).toBe(0);
});

test('where nothing came in lately the types of the queue tell how long runs take, and otherwise nobody does', async () => {
  expect((await ask()).figures.meanRunSeconds).toBe(1);
  expect((await ask({ runsOf: () => undefined })).figures.meanRunSeconds).toBeUndefined();
});

test('limits over all tasks of each type bound what can run; a limit per key, or a type without one, does not', async () => {
  const limited = (concurrency: { limit: number; key?: string } | undefined): Partial<ScalingDeps> => ({
    types: () => [
      { name: 'report.csv', queue: 'default', concurrency, rate: undefined },
      // 60 a minute of a second each: one at a time
      { name: 'mail.send', queue: 'default', concurrency: undefined, rate: { limit: 60, perMs: 60_000 } },
    ],
  });
  expect((await ask(limited({ limit: 3 }))).figures.mostRunning).toBe(4);
  expect((await ask(limited({ limit: 3, key: 'input.tenant' }))).figures.mostRunning).toBeUndefined();
  expect((await ask(limited(undefined))).figures.mostRunning).toBeUndefined();
  // a task of a type of another queue was sent here
  await came(10, 10, { queue: 'default', type: 'guest.type' });
  expect((await ask(limited({ limit: 3 }))).figures.mostRunning).toBeUndefined();
});

test('a paused queue starts nothing, and what comes into a drained one is no load', async () => {
  await came(240, 120);
  await db.query({ text: `update queues set mode = 'paused' where name = 'default'` });
  expect((await ask()).figures).toMatchObject({ starts: false, arrivalPerSecond: 0 });
  await db.query({ text: `update queues set mode = 'draining' where name = 'default'` });
  expect((await ask()).figures).toMatchObject({ starts: true, arrivalPerSecond: 0 });
});

test('many that ask at once are read for once', async () => {
  let asked = 0;
  const readyOf = async (): Promise<number> => await Promise.resolve((asked += 1));
  const nothing = { types: () => [], runsOf: () => undefined };
  const scaling = new Scaling({ ...partDeps, ...nothing, db, readyOf }, DEFAULT_SCALING);
  const question = { queue: 'default', sloSeconds: 30, min: 0, max: 10, slotsPerWorker: 10 };
  const answers = await Promise.all(Array.from({ length: 20 }, async () => await scaling.answer(question)));
  expect([asked, answers.every(({ ready: each }) => each === 1)]).toEqual([1, true]);
});

test('an autoscaler with the token of a viewer is answered a number at workersWanted, and what it came from', async () => {
  ready = 200;
  await addWorker({ slots: 10, running: 10, waiting: 20 });
  const { status, json } = await api.get('/v1/scaling/default?slo=1m&min=1&max=7', AS_VIEWER);
  expect(status).toBe(200);
  expect(json).toMatchObject({
    queue: 'default',
    workersWanted: 7,
    why: 'nobody knows how long runs take: a slot for each of 230 tasks; at most 7',
    sloSeconds: 60,
    min: 1,
    max: 7,
    mode: 'open',
    slotsWanted: 230,
    waiting: 220,
    ready: 200,
    held: 20,
    running: 10,
    slotsPerWorker: 10,
    workers: 1,
  });
  expect(json['meanRunSeconds']).toBeUndefined();
});

test('where nobody runs, the slots of a worker are what the autoscaler says, or the configuration', async () => {
  await db.query({ text: `insert into queues (name) values ('unseen') on conflict do nothing` });
  ready = 100;
  const wanted = async (query: string): Promise<unknown> =>
    (await api.get(`/v1/scaling/unseen${query}`, AS_VIEWER)).json['workersWanted'];
  expect([await wanted(''), await wanted('?slots=50')]).toEqual([10, 2]);
});

test('while RabbitMQ does not say what waits, the answer says so and keeps who is there', async () => {
  await db.query({ text: `insert into queues (name) values ('unread') on conflict do nothing` });
  ready = undefined;
  const { status, json } = await api.get('/v1/scaling/unread?min=2', AS_VIEWER);
  expect([status, json['workersWanted'], json['waiting']]).toEqual([200, 2, undefined]);
  expect(json['why']).toMatch(/^RabbitMQ does not say what waits/);
});

test('what cannot be asked is told in plain words', async () => {
  const problem = async (path: string, headers: Record<string, string> = AS_VIEWER): Promise<unknown> => {
    const { status, json } = await api.get(path, headers);
    return [status, json['type']];
  };
  expect(await problem('/v1/scaling/nowhere')).toEqual([404, 'queue-not-found']);
  expect(await problem('/v1/scaling/default?slo=soon')).toEqual([400, 'field-invalid']);
  expect(await problem('/v1/scaling/default?slo=1ms')).toEqual([400, 'field-invalid']);
  expect(await problem('/v1/scaling/default?min=5&max=4')).toEqual([400, 'field-invalid']);
  expect((await api.get('/v1/scaling/default?maximum=4', AS_VIEWER)).status).toBe(400);
  const stranger = { authorization: 'Bearer token-of-somebody-else' };
  expect(await problem('/v1/scaling/default', stranger)).toEqual([401, 'token-invalid']);
});
