/** Schedules through real processes: each instant once, whatever is killed and whatever clocks say; and what may run beside what. */
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { findRoot } from '../../deploy/local-stack/stack.ts';
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

type Json = Readonly<Record<string, unknown>>;
type Occurrence = Json & {
  readonly at: string;
  readonly from?: string;
  readonly state: string;
  readonly cause: string;
  readonly why?: string;
  readonly taskId?: string;
  readonly flowId?: string;
};

const QUICK = { WARREN_SCHEDULER_INTERVAL_MS: '100' };

const send = async (
  fleet: Fleet,
  method: Parameters<typeof call>[1],
  path: string,
  body?: Json,
): ReturnType<typeof call> =>
  await call(
    fleet.producer(fleet.all('producer').findIndex(({ exitCode }) => exitCode === undefined)).url,
    method,
    path,
    body,
  );

const create = async (fleet: Fleet, schedule: Json): Promise<Json> => {
  const task = schedule['flow'] === undefined ? { task: fleet.body({}) } : {};
  const { status, body } = await send(fleet, 'POST', '/v1/schedules', { name: 'test', ...task, ...schedule });
  expect([status, body]).toEqual([201, expect.objectContaining({ state: 'active' })]);
  return body;
};

const occurrencesOf = async (fleet: Fleet, name = 'test'): Promise<readonly Occurrence[]> => {
  const { body } = await send(fleet, 'GET', `/v1/schedules/${name}/occurrences?limit=200`);
  return (body['items'] as readonly Occurrence[]).toReversed();
};

/** Waits until so many instants have been decided about that fit, and gives them all. */
const decided = async (
  fleet: Fleet,
  count: number,
  fits: (occurrence: Occurrence) => boolean = () => true,
): Promise<readonly Occurrence[]> =>
  await eventually(
    async () => {
      const all = await occurrencesOf(fleet);
      if (all.filter((each) => fits(each)).length < count) throw new Error(`${JSON.stringify(all)}\n${fleet.tails()}`);
      return all;
    },
    { withinMs: 40_000 },
  );

/** Makes the schedule one that nobody has looked at since: time is moved by moving instants. */
const missedSince = async (fleet: Fleet, agoMs: number): Promise<void> => {
  await fleet.database.database.query({
    text: `update schedules set next_at = date_trunc('minute', clock_timestamp()) - $1 * interval '1 ms', wake_at = clock_timestamp()`,
    values: [agoMs],
  });
};

/** Each test takes its schedules away; one that failed did not. */
let shared: Fleet;
afterEach(async () => {
  const { body } = await send(shared, 'GET', '/v1/schedules');
  for (const { name } of body['items'] as readonly Json[])
    await send(shared, 'DELETE', `/v1/schedules/${String(name)}`);
});
beforeAll(async () => void (shared = await openFleet({ env: QUICK, tasks: ['well-behaved', 'steps'] })), 120_000);
afterAll(async () => await shared[Symbol.asyncDispose]());

test('three producers whose clocks differ by minutes, two of them killed: each instant is started once', async () => {
  await using fleet = await openFleet({ producers: 0, env: QUICK });
  const clock = join(findRoot(), 'test/support/shifted-clock.mjs');
  for (const shiftMs of [0, 300_000, -240_000]) {
    const env = { NODE_OPTIONS: `--import "${clock}"`, WARREN_TEST_CLOCK_SHIFT_MS: String(shiftMs) };
    await fleet.start('producer', env).ready();
  }
  await create(fleet, { everyMs: 1_000, overlap: 'allow' });
  await decided(fleet, 3);
  await fleet.producer(1).kill();
  await decided(fleet, 6);
  await fleet.producer(0).kill();
  const all = await decided(fleet, 12);

  const instants = all.map(({ at }) => Date.parse(at));
  expect(instants).toEqual(Array.from(instants, (_, index) => (instants[0] ?? 0) + index * 1_000));
  expect(new Set(all.map(({ state }) => state))).toEqual(new Set(['started']));
  expect(new Set(all.map(({ taskId }) => taskId)).size).toBe(all.length);
  await send(fleet, 'DELETE', '/v1/schedules/test');
  const { accepted } = await fleet.ended();
  const rows = await fleet.tasks();
  expect(rows).toHaveLength(accepted);
  expect(rows.length).toBeGreaterThanOrEqual(12);
  // By Postgres's clock, which is this machine's, and none before its time.
  for (const { at, taskId } of all) {
    const task = rows.find(({ id }) => id === taskId);
    expect((task?.accepted_at.getTime() ?? 0) - Date.parse(at)).toBeGreaterThanOrEqual(0);
  }
}, 120_000);

test('overlap: skip, queue, cancelRunning', async () => {
  const fleet = shared;
  const slow = fleet.body({ input: { ms: 2_500 } });

  await create(fleet, { everyMs: 1_000, task: slow });
  const skipped = await decided(fleet, 2, ({ state }) => state === 'started');
  // Two at least fall into the run: more where the machine is slow.
  expect(skipped.map(({ state, why }) => why ?? state).join(' ')).toMatch(/^started( overlap){2,} started/);
  const [, again] = skipped.filter(({ state }) => state === 'started');
  expect(Date.parse(String(again?.['decidedAt']))).toBeGreaterThanOrEqual(
    Date.parse(String(skipped[0]?.['finishedAt'])),
  );
  expect(skipped[0]).toMatchObject({ runState: 'succeeded', cause: 'due' });
  expect((await send(fleet, 'DELETE', '/v1/schedules/test')).body).toEqual({ name: 'test', removed: true });
  await fleet.ended();

  await create(fleet, { everyMs: 1_000, overlap: 'queue', task: slow });
  const queued = await decided(fleet, 2, ({ state }) => state === 'started');
  expect(queued.slice(0, 3).map(({ why, state }) => why ?? state)).toEqual(['started', 'started', 'full']);
  await send(fleet, 'DELETE', '/v1/schedules/test');
  await fleet.ended();

  const endless = fleet.body({ input: { ms: 50_000 } });
  await create(fleet, { everyMs: 2_000, overlap: 'cancelRunning', task: endless });
  const cancelled = await decided(fleet, 2, ({ state }) => state === 'started');
  const [first, second] = cancelled.filter(({ state }) => state === 'started');
  expect(first).toMatchObject({ runState: 'cancelled' });
  const [one, two] = await Promise.all([first, second].map(async (each) => await fleet.task(each?.taskId ?? '')));
  // Never two at once.
  expect(two?.started_at?.getTime() ?? Infinity).toBeGreaterThanOrEqual(one?.finished_at?.getTime() ?? Infinity);
  await send(fleet, 'DELETE', '/v1/schedules/test');
  for (const { id } of (await fleet.tasks()).filter(({ state }) => state === 'running')) {
    await send(fleet, 'POST', `/v1/tasks/${id}/cancel`);
  }
  await fleet.ended();
}, 120_000);

test('three hours without a producer: what is made up for is as the schedule says, one after another', async () => {
  const fleet = shared;
  for (const [catchUp, started, skipped] of [
    ['none', 0, 1],
    ['last', 1, 1],
    ['all', 3, 1],
  ] as const) {
    // Its instants are two and a half minutes away on both sides: none is due now, and none comes during the test.
    const from = new Date(systemClock.now().getTime() - (180 + 2.5) * 60_000).toISOString();
    const task = fleet.body({ input: { ms: 300 } });
    await create(fleet, { everyMs: 5 * 60_000, from, catchUp, catchUpMost: 3, task });
    await missedSince(fleet, 180 * 60_000);
    const all = await decided(fleet, started, ({ cause, runState }) => cause === 'catchUp' && runState === 'succeeded');
    await decided(fleet, skipped, ({ why }) => why === 'missed');
    const runs = all.filter(({ cause }) => cause === 'catchUp');
    expect(runs).toHaveLength(started);
    for (const [index, { decidedAt }] of runs.slice(1).entries()) {
      expect(Date.parse(String(decidedAt))).toBeGreaterThanOrEqual(Date.parse(String(runs[index]?.['finishedAt'])));
    }
    await fleet.ended();
    await send(fleet, 'DELETE', '/v1/schedules/test');
  }
}, 120_000);

test('paused nothing starts but what is asked for; resumed, what passed is skipped and named', async () => {
  const fleet = shared;
  await create(fleet, { everyMs: 1_000, overlap: 'allow' });
  await decided(fleet, 1);
  const { body: paused } = await send(fleet, 'POST', '/v1/schedules/test/pause', { reason: 'the bank is closed' });
  expect(paused).toMatchObject({ state: 'paused', pauseReason: 'the bank is closed', pausedBy: 'local' });
  const before = await occurrencesOf(fleet);
  const { status, body: asked } = await send(fleet, 'POST', '/v1/schedules/test/run', { reason: 'just once' });
  expect([status, asked]).toEqual([202, expect.objectContaining({ taskId: expect.any(String) })]);
  await fleet.pass(2_000);
  const meanwhile = await occurrencesOf(fleet);
  expect(meanwhile.slice(before.length)).toEqual([
    expect.objectContaining({ cause: 'manual', state: 'started', askedBy: 'local', taskId: asked['taskId'] }),
  ]);
  expect((await send(fleet, 'POST', '/v1/schedules/test/resume')).body).toMatchObject({ state: 'active' });
  const after = await decided(fleet, meanwhile.length + 3);
  const skip = after.find(({ why }) => why === 'paused');
  expect(skip).toMatchObject({ state: 'skipped', from: expect.any(String) });
  const instants = after
    .filter(({ cause }) => cause !== 'manual')
    .map(({ at, from }) => [Date.parse(from ?? at), Date.parse(at)]);
  for (const [index, [from = 0]] of instants.slice(1).entries()) expect(from - (instants[index]?.[1] ?? 0)).toBe(1_000);
  await send(fleet, 'DELETE', '/v1/schedules/test', { reason: 'done' });
  const { rows } = await fleet.database.database.query({
    text: `select action, actor, detail ->> 'reason' as reason from audit
            where target = 'test' and at >= (select max(at) from audit where target = 'test' and action = 'schedule.create')
            order by at, action`,
  });
  expect(rows).toEqual([
    { action: 'schedule.create', actor: 'local', reason: null },
    { action: 'schedule.pause', actor: 'local', reason: 'the bank is closed' },
    { action: 'schedule.run', actor: 'local', reason: 'just once' },
    { action: 'schedule.resume', actor: 'local', reason: null },
    { action: 'schedule.remove', actor: 'local', reason: 'done' },
  ]);
  await fleet.ended();
}, 60_000);

test('a run now beside one that has not ended is refused, and names it', async () => {
  const fleet = shared;
  await create(fleet, { cron: '0 0 1 1 *', task: fleet.body({ input: { ms: 3_000 } }) });
  const { body: first } = await send(fleet, 'POST', '/v1/schedules/test/run');
  const second = await send(fleet, 'POST', '/v1/schedules/test/run');
  expect([second.status, second.body]).toEqual([
    409,
    expect.objectContaining({ type: 'schedule-busy', runId: first['taskId'] }),
  ]);
  expect((await send(fleet, 'GET', '/v1/schedules/test')).body).toMatchObject({ running: 1, waiting: 0 });
  await fleet.ended();
  expect((await send(fleet, 'POST', '/v1/schedules/test/run')).status).toBe(202);
  await fleet.ended();
  await send(fleet, 'DELETE', '/v1/schedules/test');
}, 60_000);

test('the instant, its date and the name stand in the input; an edit counts from then on', async () => {
  const fleet = shared;
  const input = {
    at: { $schedule: 'at' },
    days: [{ $schedule: 'date' }],
    name: { $schedule: 'name' },
    n: 12345678901234,
  };
  await create(fleet, {
    name: 'test',
    cron: '* * * * * *',
    timeZone: 'Pacific/Kiritimati',
    task: { type: 'flow.step', input, tags: ['nightly'] },
  });
  const [first] = await decided(fleet, 1, ({ state }) => state === 'started');
  await fleet.ended();
  const { body: task } = await send(fleet, 'GET', `/v1/tasks/${first?.taskId ?? ''}`);
  const local = new Date(Date.parse(first?.at ?? '') + 14 * 3_600_000).toISOString().slice(0, 10);
  expect(task).toMatchObject({
    input: { at: first?.at, days: [local], name: 'test', n: 12345678901234 },
    tags: ['nightly'],
    publisher: 'schedule:test',
  });
  const { body: history } = await send(fleet, 'GET', `/v1/tasks/${first?.taskId ?? ''}/history`);
  expect((history['items'] as readonly Json[])[0]).toMatchObject({
    kind: 'accepted',
    by: 'schedule:test',
    door: 'schedule',
  });
  const edited = await send(fleet, 'PATCH', '/v1/schedules/test', {
    cron: '0 0 1 1 *',
    description: 'yearly',
    reason: 'too often',
  });
  expect([edited.status, edited.body]).toEqual([
    200,
    expect.objectContaining({
      cron: '0 0 1 1 *',
      description: 'yearly',
      timeZone: 'Pacific/Kiritimati',
      task: expect.objectContaining({ tags: ['nightly'] }),
    }),
  ]);
  const { body: next } = await send(fleet, 'GET', '/v1/schedules/test/next?count=2');
  expect(next['next']).toEqual([
    expect.stringMatching(/-12-31T10:00:00.000Z$/),
    expect.stringMatching(/-12-31T10:00:00.000Z$/),
  ]);
  const settled = await occurrencesOf(fleet);
  await fleet.pass(1_500);
  expect(await occurrencesOf(fleet)).toHaveLength(settled.length);
  // null takes a member away.
  const once = await send(fleet, 'PATCH', '/v1/schedules/test', {
    cron: null,
    at: new Date(systemClock.now().getTime() + 1_500).toISOString(),
  });
  expect(once.status).toBe(200);
  await decided(fleet, settled.length + 1);
  expect((await send(fleet, 'GET', '/v1/schedules/test')).body).toMatchObject({ state: 'finished', next: [] });
  await fleet.ended();
  await send(fleet, 'DELETE', '/v1/schedules/test');
}, 60_000);

test('a flow on a schedule: one at a time, with the date as its business key', async () => {
  const fleet = shared;
  const flow = {
    name: 'settlement',
    businessType: 'day',
    businessKey: { $schedule: 'date' },
    steps: {
      sum: { type: 'flow.step', input: { day: { $schedule: 'date' }, ms: 1_500 } },
      book: { type: 'flow.step', after: ['sum'] },
    },
  };
  await create(fleet, { cron: '* * * * * *', timeZone: 'Asia/Shanghai', flow });
  const all = await decided(fleet, 1, ({ why }) => why === 'unique');
  const started = all.filter(({ state }) => state === 'started');
  const { body } = await send(fleet, 'GET', `/v1/flows/${started[0]?.flowId ?? ''}`);
  expect(body).toMatchObject({ name: 'settlement', state: 'succeeded', createdBy: 'schedule:test' });
  expect(body['businessKey']).toMatch(/^\d{4}-\d\d-\d\d$/);
  expect(all.find(({ why }) => why === 'overlap')).toBeDefined();
  // Over midnight in Shanghai there are two days.
  expect(started.map(({ flowId }) => flowId)).toContain(all.find(({ why }) => why === 'unique')?.['detail']);
  await send(fleet, 'DELETE', '/v1/schedules/test');
  await fleet.ended();

  // Several at once about the same thing: one is started, and the others say so.
  const once = { ...flow, businessKey: 'only one', steps: { sum: flow.steps.sum } };
  await create(fleet, { everyMs: 60_000, catchUp: 'all', catchUpMost: 4, overlap: 'allow', flow: once });
  await missedSince(fleet, 600_000);
  const caughtUp = (await decided(fleet, 4, ({ cause }) => cause === 'catchUp')).filter(
    ({ cause }) => cause === 'catchUp',
  );
  expect(caughtUp.map(({ state, why }) => why ?? state)).toEqual(['started', 'unique', 'unique', 'unique']);
  await send(fleet, 'DELETE', '/v1/schedules/test');
  await fleet.ended();
}, 60_000);

test('what is not accepted any more is named in the history and stops nothing else', async () => {
  const fleet = shared;
  await create(fleet, { name: 'broken', everyMs: 1_000, overlap: 'allow' });
  await create(fleet, { everyMs: 1_000, overlap: 'allow' });
  await fleet.database.database.query({
    text: `update schedules set definition = replace(definition, 'fault.step', 'no.such.type') where name = 'broken'`,
  });
  await decided(fleet, 3);
  const broken = await occurrencesOf(fleet, 'broken');
  expect(broken.at(-1)).toMatchObject({
    state: 'skipped',
    why: 'refused',
    detail: 'task.type names no announced task type',
  });
  const refused = await send(fleet, 'POST', '/v1/schedules/broken/run');
  expect([refused.status, refused.body]).toEqual([422, expect.objectContaining({ type: 'schedule-refused' })]);
  // One that cannot even be read is put off, and mended by an edit.
  await fleet.database.database.query({ text: `update schedules set definition = '{}' where name = 'broken'` });
  const seen = (await occurrencesOf(fleet)).length;
  await decided(fleet, seen + 2);
  fleet.expectErrors('schedule cannot be read');
  const { body: all } = await send(fleet, 'GET', '/v1/schedules');
  expect((all['items'] as readonly Json[]).map(({ state }) => state)).toEqual(['unreadable', 'active']);
  const mend = { everyMs: 60_000, task: fleet.body({}) };
  const mended = await send(fleet, 'PATCH', '/v1/schedules/broken', mend);
  expect([mended.status, mended.body]).toEqual([200, expect.objectContaining({ state: 'active', everyMs: 60_000 })]);
  await send(fleet, 'DELETE', '/v1/schedules/broken');
  await send(fleet, 'DELETE', '/v1/schedules/test');
  await fleet.ended();
}, 60_000);
