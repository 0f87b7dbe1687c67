/** The way of one delivery: each exit answers the broker, once. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addTask, count, readTask, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { inviteAnew, inviteTask, openIntake, succeeded } from '../support/intake.ts';
import type { Handler } from '../support/intake.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

const failed = (more: object = {}): Outcome => ({
  kind: 'failed',
  reason: 'error',
  retryable: true,
  error: { type: 'Error', message: 'no', causes: [] },
  ...more,
});

const handlers: Record<string, Handler> = {
  'test.noop': () => succeeded,
  'test.fails': () => failed(),
  'test.dies': () => failed({ retryable: false }),
  'test.defers': () => ({ kind: 'deferred', delayMs: 60_000, why: 'handler' }),
  'test.cut': () => ({ kind: 'interrupted', by: 'cancel' }),
};

let work: TestWork;
beforeAll(async () => {
  work = await openWork();
});
afterEach(async () => {
  await work.broker.raw.purgeQueue(work.backbone.names.dead);
});
afterAll(async () => await work[Symbol.asyncDispose]());

const deadBodies = async (): Promise<string[]> => {
  const bodies: string[] = [];
  for (;;) {
    const message = await work.broker.raw.get(work.backbone.names.dead, { noAck: true });
    if (message === false) return bodies;
    bodies.push(message.content.toString());
  }
};

test.each([
  ['test.noop', 'succeeded'],
  ['test.fails', 'retrying'],
  ['test.defers', 'scheduled'],
  ['test.cut', 'cancelled'],
])('a delivery whose task %s ends as %s is acked', async (type, state) => {
  const open = await openIntake(work, { handlers });
  const taskId = await inviteTask(work, { type });
  await eventually(() => expect(open.settled.get(taskId)).toBe(state));
  expect((await readTask(work.db, taskId)).state).toBe(state);
  await open[Symbol.asyncDispose](); // what was not answered would go back to the queue
  expect(await work.take()).toEqual([]);
  expect(await deadBodies()).toEqual([]);
});

test('a delivery whose task died is rejected after its death was written, so that the broker brings its evidence', async () => {
  const open = await openIntake(work, { handlers });
  const taskId = await inviteTask(work, { type: 'test.dies' });
  const bodies: string[] = [];
  await eventually(async () => {
    bodies.push(...(await deadBodies()));
    expect(bodies).toHaveLength(1);
  });
  expect(JSON.parse(String(bodies[0]))).toMatchObject({ taskId });
  expect(await count(work.db, 'dead_letters', `task_id = '${taskId}'`)).toBe(1);
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]);
});

test('a second delivery of a task is acked and runs nothing, whatever became of the first', async () => {
  const open = await openIntake(work, { handlers });
  for (const type of ['test.noop', 'test.fails', 'test.dies']) {
    const taskId = await inviteTask(work, { type });
    await eventually(() => expect(open.settled.has(taskId)).toBe(true));
    const lost = open.lost();
    await inviteAnew(work, taskId);
    await eventually(() => expect(open.lost()).toBe(lost + 1));
  }
  expect(open.started).toHaveLength(3);
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]);
});

test('a stale delivery is acked and runs nothing', async () => {
  const open = await openIntake(work, { handlers });
  const taskId = await inviteTask(work, { type: 'test.unknown-here', generation: 5 });
  await eventually(async () => expect((await readTask(work.db, taskId)).state).toBe('scheduled'));
  await work.db.query({
    text: `update tasks set type = 'test.noop', state = 'pending', run_at = null where id = $1`,
    values: [taskId],
  });
  await inviteAnew(work, taskId, 4);
  await eventually(() => expect(open.lost()).toBe(1));
  expect(open.started).toEqual([]);
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]);
});

test('a task of a type that is unknown here is put off without an attempt, and its delivery acked', async () => {
  const open = await openIntake(work, { handlers });
  const taskId = await inviteTask(work, { type: 'test.unknown' });
  await eventually(async () => expect((await readTask(work.db, taskId)).state).toBe('scheduled'));
  expect(await readTask(work.db, taskId)).toMatchObject({ attempt: 0, failures: 0, invited_at: null });
  expect(await count(work.db, 'attempts', `task_id = '${taskId}'`)).toBe(0);
  const [due] = await rows<{ ms: number }>(
    work.db,
    'select (extract(epoch from at - clock_timestamp()) * 1000)::float8 as ms from due where task_id = $1',
    taskId,
  );
  expect(due?.ms).toBeGreaterThan(1_000);
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]);
  expect(await deadBodies()).toEqual([]);
});

test('a message that is no invitation goes to the dead-letter exchange, and its neighbours run', async () => {
  const open = await openIntake(work, { handlers });
  const bad = ['', 'null', '{}', '{"taskId":"x","type":"test.noop","generation":1}', '\u0000\u0001', '[1'];
  const queue = work.backbone.names.queue('default');
  for (const body of bad) work.broker.raw.sendToQueue(queue, Buffer.from(body));
  const taskId = await inviteTask(work);
  await eventually(() => expect(open.settled.get(taskId)).toBe('succeeded'));
  const bodies: string[] = [];
  await eventually(async () => {
    bodies.push(...(await deadBodies()));
    expect(bodies.toSorted()).toEqual(bad.toSorted());
  });
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]);
});

test('invariant 2: a delivery whose settle was given up comes again and runs nothing: the reaper decides', async () => {
  let finish: (outcome: Outcome) => void = () => undefined;
  const open = await openIntake(work, {
    handlers: { 'test.noop': async () => await new Promise<Outcome>((resolve) => (finish = resolve)) },
  });
  const taskId = await inviteTask(work);
  await eventually(() => expect(open.started).toEqual([taskId]));
  open.worker.settles.giveUp();
  // Postgres refuses this settle, and the worker does not wait for it any more.
  await work.db.query({ text: `alter table tasks rename column result to away` });
  finish(succeeded);
  await eventually(() => expect(open.lost()).toBe(1)); // it came again, and is still claimed
  await work.db.query({ text: `alter table tasks rename column away to result` });
  expect(open.started).toEqual([taskId]);
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]);
  expect((await readTask(work.db, taskId)).state).toBe('running'); // the reaper's, once the lease has lapsed
});

test('an invitation that names another type than the task has chooses no code', async () => {
  const ran: string[] = [];
  const open = await openIntake(work, {
    handlers: {
      'test.noop': (claim) => {
        ran.push(`test.noop for ${claim.type}`);
        return succeeded;
      },
      'test.other': (claim) => {
        ran.push(`test.other for ${claim.type}`);
        return succeeded;
      },
    },
  });
  const known = await addTask(work.db, { type: 'test.noop' });
  const strange = await addTask(work.db, { type: 'test.nobody-has-it' });
  for (const taskId of [known, strange]) {
    await work.backbone.invite({ taskId, type: 'test.other', queue: 'default', priority: 4, generation: 1 });
  }
  await eventually(() => expect([...open.settled.values()]).toHaveLength(2));
  expect(ran).toEqual(['test.noop for test.noop']);
  expect((await readTask(work.db, strange)).state).toBe('scheduled');
  await open[Symbol.asyncDispose]();
});

describe('a task that may run longer than RabbitMQ waits for an answer', () => {
  test.each([
    ['succeeds', succeeded, 'succeeded', 0],
    ['dies', failed({ retryable: false }), 'dead', 1],
    ['fails', failed(), 'retrying', 0],
  ])('is acked at its claim; then it %s', async (_name, outcome, state, letters) => {
    let finish: (outcome: Outcome) => void = () => undefined;
    const open = await openIntake(work, {
      handlers: { 'test.noop': async () => await new Promise<Outcome>((resolve) => (finish = resolve)) },
      mostUnansweredMs: 1_000,
    });
    const taskId = await inviteTask(work);
    await eventually(() => expect(open.started).toEqual([taskId]));
    // The broker holds nothing of it any more: the channel's end brings nothing back.
    await open.intake.drain(systemClock.monotonicMs() + 2_000);
    await eventually(() => expect(open.unanswered()).toBe(0));
    finish(outcome);
    await eventually(() => expect(open.settled.get(taskId)).toBe(state));
    await open[Symbol.asyncDispose]();
    expect((await readTask(work.db, taskId)).state).toBe(state);
    expect(await count(work.db, 'dead_letters', `task_id = '${taskId}'`)).toBe(letters);
    expect(await work.take()).toEqual([]);
    expect(await deadBodies()).toEqual([]);
  });
});
