/** Flows through real processes: each step starts when what it waits for has ended, with what that gave. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createClient, defineFlow } from '../../client/src/client.ts';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { deadlocks, ended, get, replay, resultOf, since, start, statesOf, stepOf } from '../support/flows.ts';
import type { Json, Step } from '../support/flows.ts';
import { step } from '../support/tasks/steps.ts';

const open = async (): Promise<Fleet> => await openFleet({ tasks: ['steps'], deadLetterHandlers: 1, workers: 2 });

/** Of the tests that change nothing but flows of their own. */
let shared: Fleet;
beforeAll(async () => void (shared = await open()), 120_000);
afterAll(async () => await shared[Symbol.asyncDispose]());

test('results go on as inputs through a chain, a group and the step that joins it, with exact bytes', async () => {
  const fleet = shared;
  const give = { user: { id: 7, 'odd/key': [1.5] }, n: 12345678901234 };
  const id = await start(fleet, {
    steps: {
      check: { type: 'flow.step', input: { give } },
      chained: { type: 'flow.step', after: ['check'] },
      picked: {
        type: 'flow.step',
        input: {
          user: { $result: 'check', path: '/user' },
          odd: [{ $result: 'check', path: '/user/odd~1key/0' }],
          none: { $result: 'check', path: '/no' },
        },
      },
      many: {
        type: 'flow.step',
        after: ['chained'],
        inputs: [{ give: 'a' }, { give: 2 }, { give: null }, { give: { n: { $result: 'check', path: '/n' } } }],
      },
      none: { type: 'flow.step', after: ['many'], inputs: [] },
      joined: { type: 'flow.step', after: ['none', 'picked'] },
      last: { type: 'flow.step', input: { all: { $result: 'many' }, no: { $result: 'none' } }, after: ['joined'] },
    },
  });
  expect(await ended(fleet, id)).toMatchObject({
    state: 'succeeded',
    steps: { total: 9, open: 0, failed: 0 },
    result: { all: ['a', 2, null, { n: 12345678901234 }], no: [] },
  });
  expect(await resultOf(fleet, id, 'chained')).toEqual(give);
  expect(await resultOf(fleet, id, 'picked')).toEqual({ user: give.user, odd: [1.5], none: null });
  expect(await resultOf(fleet, id, 'joined')).toEqual({
    many: ['a', 2, null, { n: 12345678901234 }],
    picked: { user: give.user, odd: [1.5], none: null },
  });
  // Empty ones: no step at all, and a group of none alone.
  expect(await ended(fleet, await start(fleet, { steps: {} }))).toMatchObject({
    state: 'succeeded',
    steps: { total: 0 },
  });
  expect(
    await ended(
      fleet,
      await start(fleet, {
        steps: { none: { type: 'flow.step', inputs: [] }, after: { type: 'flow.step', after: ['none'] } },
      }),
    ),
  ).toMatchObject({
    state: 'succeeded',
    result: {},
  });
}, 120_000);

test('a step that dies stops its flow; its replay makes what was cancelled anew, and the flow goes on', async () => {
  const fleet = shared;
  const before = await fleet.books();
  const id = await start(fleet, {
    steps: {
      a: { type: 'flow.step', input: { failures: 2, give: { n: 1 } } },
      b: { type: 'flow.step', after: ['a'] },
      c: { type: 'flow.step', after: ['b'] },
      beside: { type: 'flow.step', input: { ms: 200 } },
    },
    failureStep: { type: 'flow.step' },
  });
  const failed = await ended(fleet, id);
  expect(failed).toMatchObject({ state: 'failed', steps: { total: 4, open: 0, failed: 1 } });
  expect(statesOf(failed)).toEqual({
    a: 'dead',
    b: 'cancelled',
    c: 'cancelled',
    beside: 'succeeded',
    failureStep: 'succeeded',
  });
  const { deadLetterId, taskId } = failed.graph[0] as Step;
  expect(failed.graph[1]).toMatchObject({ why: 'a is dead' });
  const { body: cancelled } = await call(fleet.producer().url, 'GET', `/v1/tasks/${String(failed.graph[1]?.taskId)}`);
  expect(cancelled).toMatchObject({ state: 'cancelled', flow: { id, step: 'b', why: 'a is dead' } });
  const historyOf = async (step: Step | undefined): Promise<unknown> =>
    (await call(fleet.producer().url, 'GET', `/v1/tasks/${step?.taskId ?? ''}/history`)).body['items'];
  expect(await historyOf(failed.graph[1])).toMatchObject([
    { kind: 'accepted', door: 'flow' },
    { kind: 'finished', state: 'cancelled', by: 'flow', reason: 'a is dead' },
  ]);
  expect(await resultOf(fleet, id, 'failureStep')).toEqual({
    flowId: id,
    name: 'test',
    failed: [{ step: 'a', taskId, state: 'dead' }],
  });

  expect(await replay(fleet, deadLetterId)).toBe(200);
  const mended = await ended(fleet, id);
  expect(mended).toMatchObject({ state: 'succeeded', steps: { total: 4, open: 0, failed: 0 } });
  expect(statesOf(mended)).toEqual({
    a: 'succeeded',
    b: 'succeeded',
    c: 'succeeded',
    beside: 'succeeded',
    failureStep: 'succeeded',
  });
  expect(await resultOf(fleet, id, 'c')).toEqual({ n: 1 });
  expect(await historyOf(mended.graph[2])).toMatchObject([
    { kind: 'accepted', door: 'flow' },
    { kind: 'invited', attempt: 1, by: 'flow' },
    { kind: 'started' },
    { kind: 'ended' },
    { kind: 'finished', state: 'succeeded' },
  ]);
  // Finished steps stay finished, the step for failures ran once, and the cancelled tasks are still to be seen.
  expect(since(before, await fleet.ended())).toMatchObject({ accepted: 7, succeeded: 5, dropped: 2, dead: 0 });
}, 120_000);

test('continue cancels what comes after alone, ignore goes on with null, and a rule of a step wins', async () => {
  const fleet = shared;
  const dies = { type: 'flow.step', input: { failures: 2 } };
  const id = await start(fleet, {
    onFailure: 'continue',
    steps: {
      dies,
      after: { type: 'flow.step', after: ['dies'] },
      further: { type: 'flow.step', after: ['after', 'other'] },
      other: { type: 'flow.step', input: { give: { ok: true } } },
      optional: { ...dies, onFailure: 'ignore' },
      anyway: { type: 'flow.step', after: ['optional', 'other'] },
    },
  });
  const partial = await ended(fleet, id);
  expect(partial).toMatchObject({ state: 'partial', steps: { failed: 1 } });
  expect(statesOf(partial)).toEqual({
    dies: 'dead',
    after: 'cancelled',
    further: 'cancelled',
    other: 'succeeded',
    optional: 'dead',
    anyway: 'succeeded',
  });
  expect(await resultOf(fleet, id, 'anyway')).toEqual({ optional: null, other: { ok: true } });

  // What was ignored runs by itself when it is replayed: its flow has gone on without it.
  expect(await replay(fleet, (await stepOf(fleet, id, 'optional')).deadLetterId)).toBe(200);
  await fleet.ended();
  expect(await get(fleet, id)).toMatchObject({ state: 'partial', steps: { failed: 1, open: 0 } });
  expect(await replay(fleet, (await stepOf(fleet, id, 'dies')).deadLetterId)).toBe(200);
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded', steps: { failed: 0 } });

  const strict = await start(fleet, {
    onFailure: 'continue',
    steps: {
      dies: { ...dies, onFailure: 'stop' },
      slow: { type: 'flow.step', input: { ms: 500 } },
      later: { type: 'flow.step', after: ['slow'], signal: { name: 'never' } },
    },
  });
  expect(statesOf(await ended(fleet, strict))).toEqual({ dies: 'dead', slow: 'succeeded', later: 'cancelled' });
  expect(await get(fleet, strict)).toMatchObject({ state: 'failed' });
}, 120_000);

test('compensate undoes what succeeded, the last first, and a dead undoing can be replayed', async () => {
  const fleet = shared;
  const { journal } = fleet;
  const id = await start(fleet, {
    onFailure: 'compensate',
    businessType: 'order',
    businessKey: '17',
    steps: {
      reserve: {
        type: 'flow.step',
        input: { give: { seat: 4 } },
        undo: {
          type: 'flow.step',
          input: { journal, name: 'undo reserve', seat: { $result: 'reserve', path: '/seat' } },
        },
      },
      pay: {
        type: 'flow.step',
        after: ['reserve'],
        undo: { type: 'flow.step', input: { journal, name: 'undo pay', failures: 2 } },
      },
      twice: {
        type: 'flow.step',
        after: ['reserve'],
        inputs: [{ give: 1 }, { give: 2 }],
        undo: { type: 'flow.step', input: { journal, name: 'undo one', it: { $result: 'twice' } } },
      },
      send: {
        type: 'flow.step',
        after: ['pay', 'twice'],
        input: { failures: 2 },
        undo: { type: 'flow.step', input: { journal, name: 'never' } },
      },
    },
    failureStep: { type: 'flow.step', input: { journal, name: 'told' } },
  });
  const stuck = await ended(fleet, id);
  expect(stuck).toMatchObject({ state: 'failed', phase: 'undo' });
  expect(statesOf(stuck)).toMatchObject({
    send: 'dead',
    'undo pay': 'dead',
    'undo twice': { succeeded: 2 },
    'undo reserve': 'planned',
    failureStep: 'succeeded',
  });
  expect(await replay(fleet, (await stepOf(fleet, id, 'undo pay')).deadLetterId)).toBe(200);
  const undone = await ended(fleet, id);
  expect(statesOf(undone)).toMatchObject({
    'undo pay': 'succeeded',
    'undo reserve': 'succeeded',
    'undo send': 'planned',
  });
  expect(await resultOf(fleet, id, 'undo reserve')).toEqual({ name: 'undo reserve', seat: 4 });
  const names = fleet.entries().map(({ note }) => note);
  expect(names.at(-1)).toBe('undo reserve');
  expect(names.filter((name) => name === 'told')).toHaveLength(1);
  expect(names.filter((name) => name === 'undo one')).toHaveLength(2);
  expect(names).not.toContain('never');

  // What is undone stays so: the step that died runs by itself when it is replayed.
  expect(await replay(fleet, (await stepOf(fleet, id, 'send')).deadLetterId)).toBe(200);
  await fleet.ended();
  expect(await get(fleet, id)).toMatchObject({ state: 'failed', steps: { open: 0 } });
}, 120_000);

test('a step waits for its signal, once by each name, and expires where that does not come', async () => {
  const fleet = shared;
  const before = await fleet.books();
  const { url } = fleet.producer();
  const steps = {
    draft: { type: 'flow.step', input: { ms: 300 } },
    approved: {
      type: 'flow.step',
      after: ['draft'],
      signal: { name: 'ok', timeoutMs: 60_000 },
      input: { by: { $signal: 'ok', path: '/by' } },
    },
  };
  const id = await start(fleet, { steps });
  await eventually(async () => expect(await stepOf(fleet, id, 'draft')).toMatchObject({ state: 'succeeded' }));
  expect(await stepOf(fleet, id, 'approved')).toMatchObject({
    state: 'blocked',
    signal: { name: 'ok', isSent: false },
  });
  const sent = await Promise.all(
    Array.from(
      { length: 8 },
      async (_each, by) => await call(url, 'POST', `/v1/flows/${id}/signals/ok`, { data: { by } }),
    ),
  );
  expect(sent.map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 200));
  const first = sent.findIndex(({ body }) => body['duplicate'] === false);
  expect(sent.filter(({ body }) => body['duplicate'] === false)).toHaveLength(1);
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded', result: { by: first } });
  expect((await call(url, 'POST', `/v1/flows/${id}/signals/ok`, {})).body).toMatchObject({ duplicate: true });
  expect((await call(url, 'POST', `/v1/flows/${id}/signals/other`, {})).status).toBe(409);

  // Sent before the step is reached; and never.
  const early = await start(fleet, { steps });
  expect((await call(url, 'POST', `/v1/flows/${early}/signals/ok`, { data: { by: 'early' } })).status).toBe(200);
  expect(await ended(fleet, early)).toMatchObject({ state: 'succeeded', result: { by: 'early' } });
  const never = await start(fleet, {
    steps: {
      ...steps,
      approved: { ...steps.approved, signal: { name: 'ok', timeoutMs: 500 } },
      last: { type: 'flow.step', after: ['approved'] },
    },
  });
  expect(statesOf(await ended(fleet, never))).toEqual({ draft: 'succeeded', approved: 'expired', last: 'cancelled' });
  expect(since(before, await fleet.ended())).toMatchObject({ dead: 0 });
}, 120_000);

test('a flow is cancelled as a whole, and the cancelling of one of its steps is a failure of it', async () => {
  const fleet = shared;
  const { url } = fleet.producer();
  const slow = { type: 'flow.step', input: { ms: 60_000 } };
  const id = await start(fleet, {
    steps: { slow, waits: { ...slow, delayMs: 60_000 }, after: { type: 'flow.step', after: ['slow'] } },
  });
  await eventually(async () => expect(await get(fleet, id)).toMatchObject({ state: 'running' }));
  const { status } = await call(url, 'POST', `/v1/flows/${id}/cancel`, { reason: 'not wanted' });
  expect(status).toBe(200);
  const cancelled = await ended(fleet, id);
  expect(cancelled).toMatchObject({ state: 'cancelled', cancelledBy: 'local', cancelReason: 'not wanted' });
  expect(statesOf(cancelled)).toEqual({ slow: 'cancelled', waits: 'cancelled', after: 'cancelled' });
  expect((await call(url, 'POST', `/v1/flows/${id}/cancel`, {})).status).toBe(200);

  const other = await start(fleet, {
    steps: { slow, after: { type: 'flow.step', after: ['slow'] }, last: { type: 'flow.step', after: ['after'] } },
  });
  const { taskId } = await stepOf(fleet, other, 'after');
  expect((await call(url, 'POST', `/v1/tasks/${taskId}/cancel`, {})).status).toBe(200);
  expect(statesOf(await get(fleet, other))).toMatchObject({ after: 'cancelled', last: 'cancelled' });
  expect((await call(url, 'POST', `/v1/tasks/${(await stepOf(fleet, other, 'slow')).taskId}/cancel`, {})).status).toBe(
    202,
  );
  expect(await ended(fleet, other)).toMatchObject({ state: 'failed' });
}, 120_000);

test('one flow at a time about a thing, under fifty who start it at once; a failed one makes room', async () => {
  const fleet = shared;
  const { url } = fleet.producer();
  const body = {
    name: 'coupon',
    businessType: 'coupon',
    businessKey: 'user-123',
    steps: { only: { type: 'flow.step', input: { failures: 2 }, signal: { name: 'all-have-come' } } },
  };
  const answers = await Promise.all(Array.from({ length: 50 }, async () => await call(url, 'POST', '/v1/flows', body)));
  expect(answers.filter(({ status }) => status === 202)).toHaveLength(1);
  expect(answers.filter(({ status, body: { duplicate } }) => status === 200 && duplicate === true)).toHaveLength(49);
  const [id, ...others] = new Set(answers.map(({ body: answer }) => String(answer['id'])));
  expect(others).toEqual([]);
  expect((await call(url, 'POST', '/v1/flows', { ...body, onConflict: 'reject' })).status).toBe(409);
  expect((await call(url, 'POST', `/v1/flows/${id}/signals/all-have-come`, {})).status).toBe(200);
  expect(await ended(fleet, id ?? '')).toMatchObject({ state: 'failed' });
  const again = await start(fleet, { ...body, steps: { only: { type: 'flow.step' } } });
  expect(again).not.toBe(id);
  expect(await ended(fleet, again)).toMatchObject({ state: 'succeeded' });
  expect((await call(url, 'POST', '/v1/flows', body)).body).toMatchObject({
    id: again,
    duplicate: true,
    state: 'succeeded',
  });
  const list = await call(url, 'GET', '/v1/flows?businessKey=user-123&businessType=coupon');
  expect((list.body['items'] as readonly Json[]).map((flow) => [flow['id'], flow['state']])).toEqual([
    [again, 'succeeded'],
    [id, 'failed'],
  ]);
}, 120_000);

test('limits and fair turns count by the input that results made', async () => {
  await using fleet = await open();
  const id = await start(fleet, {
    steps: {
      who: { type: 'flow.step', input: { give: { who: 'ann' } } },
      it: { type: 'flow.limited', after: ['who'] },
    },
  });
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded', result: { who: 'ann' } });
  const { rows } = await fleet.database.database.query({
    text: `select concurrency_key from tasks where type = 'flow.limited'`,
  });
  expect(rows).toEqual([{ concurrency_key: 'ann' }]);
}, 120_000);

test('a group of ten thousand is joined, its invitations are all taken at once, and its results that are too many are left out', async () => {
  await using fleet = await openFleet({ tasks: ['steps'], workers: 2, queues: 'default:200' });
  const id = await start(fleet, {
    steps: {
      many: { type: 'flow.step', inputs: Array.from({ length: 10_000 }, (_each, n) => ({ give: n })) },
      sum: { type: 'flow.step', input: { give: { all: { $result: 'many' } } } },
      large: { type: 'flow.step', inputs: Array.from({ length: 30 }, () => ({ give: 'x'.repeat(40_000) })) },
      left: { type: 'flow.step', input: { all: { $result: 'large' } } },
      first: { type: 'flow.step', input: { repeat: 60_000 } },
      // What would not fit beside what stands before it.
      beside: {
        type: 'flow.step',
        input: { before: Array.from({ length: 17 }, () => ({ $result: 'first' })), give: { $result: 'first' } },
      },
    },
  });
  expect(await ended(fleet, id, 90_000)).toMatchObject({ state: 'succeeded', steps: { total: 10_034, open: 0 } });
  const { all } = (await resultOf(fleet, id, 'sum')) as { readonly all: readonly number[] };
  expect(all).toEqual(Array.from({ length: 10_000 }, (_each, n) => n));
  expect(await resultOf(fleet, id, 'left')).toEqual({
    all: { $omitted: 'results', bytes: 30 * 40_003 + 1, flow: id, step: 'large', count: 30 },
  });
  expect(await resultOf(fleet, id, 'beside')).toEqual({
    $omitted: 'results',
    bytes: 60_002,
    flow: id,
    step: 'first',
    count: 1,
  });
  expect((await get(fleet, id)).graph[0]).toMatchObject({ name: 'many', states: { succeeded: 10_000 } });
  // One row of the outbox: what did not fit into the publisher's buffer would have waited for the sweeper.
  expect(fleet.producer().logged('invitations not confirmed')).toEqual([]);
}, 150_000);

test('a flow that failed is retried: what failed or was cancelled is made anew, and from a step all that comes after it', async () => {
  const fleet = shared;
  const { url } = fleet.producer();
  const { journal } = fleet;
  const retry = async (id: string, body: Json = {}): Promise<Json & { status: number }> => {
    const answer = await call(url, 'POST', `/v1/flows/${id}/retry`, body);
    return { status: answer.status, ...answer.body };
  };
  // The first two attempts of a task fail; a task that is made anew begins with its first attempt.
  const id = await start(fleet, {
    businessKey: 'one',
    steps: {
      a: { type: 'flow.step', input: { journal, name: 'a' } },
      b: { type: 'flow.step', after: ['a'], input: { failures: 2 } },
      c: { type: 'flow.step', after: ['b'], signal: { name: 'go' } },
    },
  });
  expect(await retry(id)).toMatchObject({ status: 409, type: expect.stringContaining('flow-not-retryable') });
  expect((await call(url, 'POST', `/v1/flows/${id}/signals/go`, {})).status).toBe(200);
  const failed = await ended(fleet, id);
  expect(statesOf(failed)).toEqual({ a: 'succeeded', b: 'dead', c: 'cancelled' });
  const { taskId: dead, deadLetterId } = failed.graph[1] as Step;
  expect(await retry(id, { from: 'nowhere' })).toMatchObject({ status: 400, field: 'from' });
  expect(await retry(id, { reason: 'once more' })).toMatchObject({ status: 200, tasks: 2 });
  const again = await ended(fleet, id);
  expect(statesOf(again)).toEqual({ a: 'succeeded', b: 'dead', c: 'cancelled' });
  expect(again.graph[1]).toMatchObject({ earlierTaskIds: [dead], taskId: expect.not.stringMatching(dead) });
  // The letter of before is closed: its task has been replaced.
  const handler = fleet.deadLetterHandler().url;
  expect((await call(handler, 'GET', `/v1/dead-letters/${deadLetterId}`)).body).toMatchObject({
    state: 'discarded',
    closeReason: 'its step was made anew: once more',
  });
  expect(await replay(fleet, deadLetterId)).toBe(409);

  // Its input is mended while it waits, as that of any task.
  expect(await retry(id, { from: 'a' })).toMatchObject({ status: 200, tasks: 3 });
  expect(
    fleet.entries().filter(({ note, event }) => note === 'a' && event === 'started').length,
  ).toBeGreaterThanOrEqual(1);
  expect(await ended(fleet, id)).toMatchObject({ state: 'failed', steps: { total: 3, open: 0, failed: 1 } });
  expect(fleet.entries().filter(({ note, event }) => note === 'a' && event === 'started')).toHaveLength(2);
  expect(await replay(fleet, (await stepOf(fleet, id, 'b')).deadLetterId)).toBe(200);
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded', steps: { failed: 0 } });

  // Another flow is about the same thing by now.
  const first = await start(fleet, { businessKey: 'two', steps: { a: { type: 'flow.step', input: { failures: 2 } } } });
  await ended(fleet, first);
  const second = await start(fleet, { businessKey: 'two', steps: { a: { type: 'flow.step' } } });
  await ended(fleet, second);
  expect(await retry(first)).toMatchObject({ status: 409, type: expect.stringContaining('unique-conflict') });

  // Many.
  for (let n = 0; n < 5; n += 1)
    await start(fleet, { name: 'lot', steps: { a: { type: 'flow.step', input: { failures: 2 } } } });
  await fleet.ended();
  const many = async (body: Json): Promise<Json> =>
    (await call(url, 'POST', '/v1/flows/retry', { name: 'lot', reason: 'all', ...body })).body;
  expect(await many({ dryRun: true })).toEqual({ dryRun: true, flows: 5, tasks: 0, skipped: 0 });
  expect(await many({})).toEqual({ dryRun: false, flows: 5, tasks: 5, skipped: 0 });
  await fleet.ended();
  const books = await fleet.books();
  expect(books['accepted']).toBe(books['succeeded'] + books['dead'] + books['dropped']);
}, 150_000);

test('a service starts typed flows by the client, each once however often it is sent', async () => {
  const fleet = shared;
  const { url } = fleet.producer();
  const client = createClient({ url });
  const flow = defineFlow('typed', (steps, { n }: { n: number }) => {
    const first = steps.step('first', step, { give: { n } });
    steps.step(
      'second',
      'flow.step',
      { got: first.result, by: steps.signal<{ by: string }>('ok').by },
      { signal: { name: 'ok' } },
    );
  });
  const idempotencyKey = 'the-same';
  const started = await Promise.all(
    Array.from({ length: 10 }, async () => await client.flows.start(flow, { n: 5 }, { idempotencyKey })),
  );
  expect(new Set(started.map(({ id }) => id)).size).toBe(1);
  const id = started[0]?.id ?? '';
  await expect(client.flows.start(flow, { n: 6 }, { idempotencyKey })).rejects.toMatchObject({
    code: 'idempotency-key-reused',
  });
  await expect(client.flows.ended(id, { timeoutMs: 100 })).rejects.toMatchObject({ code: 'wait-timeout' });
  expect(await client.flows.signal(id, 'ok', { by: 'ann' })).toBe(true);
  expect(await client.flows.signal(id, 'ok', { by: 'bob' })).toBe(false);
  expect(await client.flows.ended(id)).toMatchObject({ state: 'succeeded', result: { got: { n: 5 }, by: 'ann' } });

  // Under a business key the first answer stays the answer of its key, also when the flow has failed and made room.
  const fails = defineFlow('fails', (steps) => void steps.step('only', step, { failures: 2 }));
  const once = await client.flows.start(fails, {}, { businessKey: 'k', idempotencyKey: 'one' });
  const other = await client.flows.start(fails, {}, { businessKey: 'k', idempotencyKey: 'two' });
  expect(other).toEqual({ id: once.id, duplicate: true });
  expect(await client.flows.ended(once.id)).toMatchObject({ state: 'failed' });
  expect(await client.flows.start(fails, {}, { businessKey: 'k', idempotencyKey: 'one' })).toMatchObject({
    id: once.id,
  });
  expect(await client.flows.start(fails, {}, { businessKey: 'k', idempotencyKey: 'two' })).toMatchObject({
    id: once.id,
  });
  const next = await client.flows.start(fails, {}, { businessKey: 'k' });
  expect(next).toMatchObject({ id: expect.not.stringMatching(once.id), duplicate: false });
  expect(await client.flows.ended(next.id)).toMatchObject({ state: 'failed' });
  await expect(client.flows.cancel(next.id)).rejects.toMatchObject({ code: 'flow-finished' });
}, 120_000);

test('whoever cancels steps, waiting and running, never stands in the way of flows that move on', async () => {
  const fleet = shared;
  const before = await fleet.books();
  const { url } = fleet.producer();
  const steps = Object.fromEntries(
    Array.from({ length: 12 }, (_each, n) => [
      `s${n}`,
      { type: 'flow.step', input: { ms: 5 }, ...(n === 0 ? {} : { after: [`s${n - 1}`] }) },
    ]),
  );
  const ids = await Promise.all(
    Array.from({ length: 60 }, async () => await start(fleet, { name: 'crossing', onFailure: 'continue', steps })),
  );
  const deadlocksBefore = await deadlocks(fleet);
  for (let round = 0; round < 6; round += 1) {
    const flows = await Promise.all(ids.map(async (id) => await get(fleet, id)));
    const targets = flows.flatMap(({ graph }) =>
      graph.filter(({ state }) => ['running', 'pending', 'blocked'].includes(state)).slice(0, 2),
    );
    await Promise.all(
      targets
        .filter((_each, index) => index % 3 === round % 3)
        .map(async ({ taskId }) => {
          const { status } = await call(url, 'POST', `/v1/tasks/${taskId}/cancel`, {});
          expect([200, 202, 409]).toContain(status);
        }),
    );
  }
  const books = since(before, await fleet.ended(60_000));
  expect(books['accepted']).toBe(60 * 12);
  for (const id of ids)
    expect(await get(fleet, id)).toMatchObject({ steps: { open: 0 }, finishedAt: expect.any(String) });
  expect(await deadlocks(fleet)).toBe(deadlocksBefore);
}, 150_000);

test('results that are large, deep, or hold what Postgres cannot look into hold up nobody', async () => {
  await using files = await temporaryFolder();
  await using fleet = await openFleet({
    tasks: ['steps'],
    env: { WARREN_FILES_STORE: 'fs', WARREN_FILES_DIRECTORY: files.path },
  });
  const id = await start(fleet, {
    onFailure: 'continue',
    steps: {
      large: { type: 'flow.step', input: { repeat: 100_000 } },
      got: { type: 'flow.step', input: { it: { $result: 'large' } } },
      odd: { type: 'flow.step', input: { nul: true } },
      whole: { type: 'flow.limited', input: { who: 'bob', it: { $result: 'odd' } } },
      part: { type: 'flow.step', input: { it: { $result: 'odd', path: '/n' } } },
      by: { type: 'flow.limited', after: ['odd'] },
      deep: { type: 'flow.step', input: { deep: 1_000 } },
      into: { type: 'flow.step', input: { it: { $result: 'deep', path: '/0' } } },
    },
  });
  const flow = await ended(fleet, id, 60_000);
  expect(await resultOf(fleet, id, 'got')).toEqual({
    it: { $file: expect.any(String), name: 'result.json', contentType: 'application/json', bytes: 100_002 },
  });
  const inputOf = async (name: string): Promise<unknown> =>
    (await call(fleet.producer().url, 'GET', `/v1/tasks/${(await stepOf(fleet, id, name)).taskId}`)).body['input'];
  expect(await inputOf('whole')).toEqual({ who: 'bob', it: { text: 'a\0b', n: 1, who: 'a\0b' } });
  // What could not be looked into says so; nobody else heard of it.
  expect(await inputOf('part')).toMatch(/cannot be looked into: unsupported Unicode/);
  expect(await inputOf('by')).toEqual({ text: 'a\0b', n: 1, who: 'a\0b' });
  expect(statesOf(flow)).toEqual({
    ...Object.fromEntries(flow.graph.map(({ name }) => [name, 'succeeded'])),
    part: 'dead',
  });
  expect((await fleet.deadLetters()).map(({ reason }) => reason)).toEqual(['invalid_input']);
  expect(await fleet.ended()).toMatchObject({ claims: 0, outbox: 0 });
}, 120_000);

/** A folder that is removed with all in it. */
async function temporaryFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'warren-flows-'));
  return { path, [Symbol.asyncDispose]: async () => await rm(path, { recursive: true }) };
}
