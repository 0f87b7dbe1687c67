/** Flows as steps of flows, through real processes. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createClient, defineFlow } from '../../client/src/client.ts';
import type { Ref } from '../../client/src/client.ts';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { deadlocks, ended, get, nestedOf, replay, resultOf, since, start, statesOf, stepOf } from '../support/flows.ts';
import type { Json, Step } from '../support/flows.ts';
import { step } from '../support/tasks/steps.ts';

const open = async (): Promise<Fleet> => await openFleet({ tasks: ['steps'], deadLetterHandlers: 1, workers: 2 });

const type = 'flow.step';
const dies = { type, input: { failures: 2 } };

/** Of the tests that change nothing but flows of their own. */
let shared: Fleet;
beforeAll(async () => void (shared = await open()), 120_000);
afterAll(async () => await shared[Symbol.asyncDispose]());

test('a flow is a step of another: it begins in its turn, gives its result, and reads what is around it', async () => {
  const fleet = shared;
  const before = await fleet.books();
  const { url } = fleet.producer();
  const id = await start(fleet, {
    businessType: 'order',
    businessKey: '17',
    tags: ['blue'],
    steps: {
      check: { type, input: { give: { user: 7, odd: [1.5] } } },
      settle: {
        after: ['check'],
        flow: {
          name: 'settlement',
          steps: {
            // Says nothing of its input: that is what the step would get.
            first: { type },
            told: { type, input: { user: { $result: 'check', path: '/user' }, first: { $result: 'first' } } },
            inner: {
              after: ['told'],
              flow: {
                name: 'deepest',
                steps: {
                  a: { type },
                  b: {
                    type,
                    input: { odd: { $result: 'check', path: '/odd/0' }, a: { $result: 'a', path: '/user' } },
                  },
                },
              },
            },
          },
        },
      },
      none: { flow: { name: 'empty', steps: {} } },
      two: { flow: { name: 'two', steps: { x: { type, input: { give: 1 } }, y: { type, input: { give: 2 } } } } },
      after: { type, input: { odd: { $result: 'settle', path: '/odd' }, all: { $result: 'two' } }, after: ['none'] },
      chained: { type, after: ['settle'] },
    },
  });
  const flow = await ended(fleet, id);
  expect(flow).toMatchObject({
    state: 'succeeded',
    steps: { total: 6, open: 0, failed: 0 },
    tasks: { total: 9, open: 0 },
    result: { after: { odd: 1.5, all: { x: 1, y: 2 } }, chained: { odd: 1.5, a: 7 } },
  });
  const settle = await get(fleet, await nestedOf(fleet, id, 'settle'));
  expect(settle).toMatchObject({
    name: 'settlement',
    state: 'succeeded',
    parent: { id, step: 'settle' },
    businessType: 'order',
    businessKey: '17',
    tags: ['blue'],
    steps: { total: 3, open: 0 },
    tasks: { total: 4, open: 0 },
    result: { odd: 1.5, a: 7 },
  });
  expect(flow.graph[1]).toMatchObject({
    name: 'settle',
    state: 'succeeded',
    after: ['check'],
    flow: { id: settle['id'], name: 'settlement', state: 'succeeded', steps: { total: 3, open: 0, failed: 0 } },
  });
  expect(await resultOf(fleet, String(settle['id']), 'first')).toEqual({ user: 7, odd: [1.5] });
  const { taskId } = await stepOf(fleet, await nestedOf(fleet, id, 'settle', 'inner'), 'a');
  expect((await call(url, 'GET', `/v1/tasks/${taskId}`)).body).toMatchObject({
    businessKey: '17',
    tags: ['blue'],
    result: { user: 7, first: { user: 7, odd: [1.5] } },
  });
  // Lists show the outermost, and below one flow what is nested in it.
  const listed = async (query: string): Promise<unknown> =>
    ((await call(url, 'GET', `/v1/flows?${query}`)).body['items'] as readonly Json[]).map(({ name }) => name);
  for (const query of ['limit=10', 'businessKey=17', 'name=test']) expect(await listed(query)).toEqual(['test']);
  expect(await listed('name=settlement')).toEqual([]);
  expect(((await listed(`parent=${id}`)) as string[]).toSorted()).toEqual(['empty', 'settlement', 'two']);
  expect(await listed(`parent=${id}&name=two`)).toEqual(['two']);
  expect(since(before, await fleet.ended())).toMatchObject({ accepted: 9, succeeded: 9 });

  // The first step of all is a flow, in a flow that is only that.
  const alone = await start(fleet, {
    steps: { only: { flow: { name: 'n', steps: { deep: { flow: { name: 'm', steps: { a: { type } } } } } } } },
  });
  expect(await ended(fleet, alone)).toMatchObject({ state: 'succeeded', result: {}, tasks: { total: 1 } });
  const empties = Object.fromEntries(
    Array.from({ length: 200 }, (_each, n) => [
      `e${n}`,
      { flow: { name: 'e', steps: {} }, ...(n === 0 ? {} : { after: [`e${n - 1}`] }) },
    ]),
  );
  expect(await ended(fleet, await start(fleet, { steps: empties }))).toMatchObject({ state: 'succeeded' });
}, 120_000);

test('a nested flow waits for signals and delays as a step does, and its own steps read the signals around them', async () => {
  const fleet = shared;
  const before = await fleet.books();
  const { url } = fleet.producer();
  const steps = {
    settle: {
      signal: { name: 'ok', timeoutMs: 60_000 },
      delayMs: 300,
      flow: {
        name: 'settlement',
        steps: {
          a: { type, input: { by: { $signal: 'ok', path: '/by' } } },
          b: { type, after: ['a'], signal: { name: 'own' } },
        },
      },
    },
  };
  const id = await start(fleet, { steps });
  const settle = await nestedOf(fleet, id, 'settle');
  expect(await get(fleet, settle)).toMatchObject({ state: 'pending', steps: { total: 2, open: 2 } });
  expect(await get(fleet, id)).toMatchObject({ state: 'pending', tasks: { total: 2, open: 2 } });
  expect(await stepOf(fleet, id, 'settle')).toMatchObject({ state: 'blocked', signal: { name: 'ok', isSent: false } });
  // Its own signal may come before it begins.
  expect((await call(url, 'POST', `/v1/flows/${settle}/signals/own`, { data: 1 })).status).toBe(200);
  expect(await stepOf(fleet, settle, 'b')).toMatchObject({ state: 'blocked' });
  expect((await call(url, 'POST', `/v1/flows/${id}/signals/ok`, { data: { by: 'ann' } })).status).toBe(200);
  expect(await get(fleet, id)).toMatchObject({ state: 'running' });
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded', result: { by: 'ann' } });
  const { taskId } = await stepOf(fleet, settle, 'a');
  const { body } = await call(url, 'GET', `/v1/tasks/${taskId}`);
  const began = Date.parse(String((await get(fleet, settle))['startedAt']));
  expect(Date.parse(String(body['startedAt'])) - began).toBeGreaterThanOrEqual(300);

  const late = await start(fleet, {
    steps: { settle: { ...steps.settle, signal: { name: 'ok', timeoutMs: 300 } }, last: { type, after: ['settle'] } },
  });
  expect(await ended(fleet, late)).toMatchObject({ state: 'failed' });
  expect(statesOf(await get(fleet, late))).toEqual({ settle: 'cancelled', last: 'cancelled' });
  expect(await get(fleet, await nestedOf(fleet, late, 'settle'))).toMatchObject({
    state: 'cancelled',
    cancelReason: 'its signal did not come in time',
  });
  expect(since(before, await fleet.ended())).toMatchObject({ accepted: 5, succeeded: 2, dropped: 3 });
}, 120_000);

test('a nested flow that fails is a failed step: the flow around it stops, continues, ignores it', async () => {
  const fleet = shared;
  const fails = { name: 'fails', steps: { a: dies, b: { type, after: ['a'] } }, failureStep: { type } };
  const id = await start(fleet, {
    steps: {
      settle: { flow: fails },
      later: {
        flow: { name: 'later', steps: { c: { type }, d: { flow: { name: 'in', steps: { e: { type } } } } } },
        after: ['settle'],
      },
      last: { type, after: ['later'] },
    },
    failureStep: { type },
  });
  const failed = await ended(fleet, id);
  expect(failed).toMatchObject({
    state: 'failed',
    steps: { total: 3, open: 0, failed: 1 },
    tasks: { total: 5, open: 0 },
  });
  expect(statesOf(failed)).toEqual({
    settle: 'failed',
    later: 'cancelled',
    last: 'cancelled',
    failureStep: 'succeeded',
  });
  expect(failed.graph[1]).toMatchObject({ why: 'settle is failed' });
  const settle = await nestedOf(fleet, id, 'settle');
  expect(statesOf(await get(fleet, settle))).toEqual({ a: 'dead', b: 'cancelled', failureStep: 'succeeded' });
  expect(await resultOf(fleet, id, 'failureStep')).toEqual({
    flowId: id,
    name: 'test',
    failed: [{ step: 'settle', flowId: settle, state: 'failed' }],
  });
  const deep = await get(fleet, await nestedOf(fleet, id, 'later', 'd'));
  expect(deep).toMatchObject({
    state: 'cancelled',
    cancelledBy: 'flow',
    cancelReason: 'settle is failed',
    steps: { open: 0 },
  });

  // The replay of the dead step, two levels down where it is, revives all that stood still for it.
  expect(await replay(fleet, (await stepOf(fleet, settle, 'a')).deadLetterId)).toBe(200);
  const mended = await ended(fleet, id);
  expect(mended).toMatchObject({ state: 'succeeded', steps: { open: 0, failed: 0 }, tasks: { open: 0 } });
  expect(statesOf(mended)).toMatchObject({ settle: 'succeeded', later: 'succeeded', last: 'succeeded' });
  expect(await get(fleet, await nestedOf(fleet, id, 'later', 'd'))).toMatchObject({ state: 'succeeded' });

  const partial = await start(fleet, {
    onFailure: 'continue',
    steps: {
      settle: { flow: fails },
      after: { type, after: ['settle'] },
      optional: { flow: fails, onFailure: 'ignore' },
      anyway: { type, input: { it: { $result: 'optional' } } },
      // Partial by its own will is a success.
      most: { flow: { name: 'most', onFailure: 'continue', steps: { a: dies, b: { type, input: { give: 2 } } } } },
      following: { type, input: { it: { $result: 'most' } } },
    },
  });
  const most = await ended(fleet, partial);
  expect(most).toMatchObject({ state: 'partial', steps: { failed: 1, open: 0 } });
  expect(statesOf(most)).toEqual({
    settle: 'failed',
    after: 'cancelled',
    optional: 'failed',
    anyway: 'succeeded',
    most: 'partial',
    following: 'succeeded',
  });
  expect(await resultOf(fleet, partial, 'anyway')).toEqual({ it: null });
  expect(await resultOf(fleet, partial, 'following')).toEqual({ it: { b: 2 } });
  // Those without which the flow around them has gone on.
  const inMost = await nestedOf(fleet, partial, 'most');
  expect(await replay(fleet, (await stepOf(fleet, inMost, 'a')).deadLetterId)).toBe(200);
  const optional = await nestedOf(fleet, partial, 'optional');
  expect(await replay(fleet, (await stepOf(fleet, optional, 'a')).deadLetterId)).toBe(200);
  expect(await ended(fleet, optional)).toMatchObject({ state: 'succeeded' });
  await fleet.ended();
  expect(await get(fleet, inMost)).toMatchObject({ state: 'partial' });
  expect(await get(fleet, partial)).toMatchObject({ state: 'partial', steps: { failed: 1, open: 0 } });
}, 120_000);

test('a flow is cancelled with all that is nested in it, and a nested one that is cancelled is a failed step', async () => {
  const fleet = shared;
  const before = await fleet.books();
  const { url } = fleet.producer();
  const slow = { type, input: { ms: 60_000 } };
  const deep = { name: 'deep', steps: { slow, after: { type, after: ['slow'] } } };
  const steps = {
    running: { flow: { name: 'outer', steps: { inner: { flow: deep }, beside: slow } } },
    waiting: { flow: { name: 'waiting', steps: { inner: { flow: deep } } }, after: ['running'] },
  };
  const id = await start(fleet, { steps });
  const inner = await nestedOf(fleet, id, 'running', 'inner');
  await eventually(async () => expect(await stepOf(fleet, inner, 'slow')).toMatchObject({ state: 'running' }));
  expect((await call(url, 'POST', `/v1/flows/${id}/cancel`, { reason: 'not wanted' })).status).toBe(200);
  expect(await ended(fleet, id)).toMatchObject({ state: 'cancelled', tasks: { total: 5, open: 0 } });
  expect(await get(fleet, inner)).toMatchObject({
    state: 'cancelled',
    cancelledBy: 'local',
    cancelReason: 'not wanted',
  });
  expect(await get(fleet, await nestedOf(fleet, id, 'waiting', 'inner'))).toMatchObject({
    state: 'cancelled',
    cancelledBy: 'flow',
  });

  const other = await start(fleet, { onFailure: 'continue', steps: { ...steps, beside: { type } } });
  // One whose turn has not come, and one that runs.
  const waiting = await nestedOf(fleet, other, 'waiting');
  expect((await call(url, 'POST', `/v1/flows/${waiting}/cancel`, { reason: 'no need' })).status).toBe(200);
  expect(await get(fleet, waiting)).toMatchObject({ state: 'cancelled', cancelReason: 'no need' });
  expect((await call(url, 'POST', `/v1/flows/${waiting}/cancel`, {})).status).toBe(200);
  const running = await nestedOf(fleet, other, 'running');
  expect((await call(url, 'POST', `/v1/flows/${running}/cancel`, {})).status).toBe(200);
  expect(await ended(fleet, other)).toMatchObject({ state: 'partial', steps: { failed: 2, open: 0 } });
  expect(since(before, await fleet.ended())).toMatchObject({ accepted: 11, succeeded: 1, dropped: 10 });
}, 120_000);

test('a retry goes on inside of nested flows where they failed, and begins those anew that come after', async () => {
  await using fleet = await open();
  const { url } = fleet.producer();
  const { journal } = fleet;
  const noted = (name: string): Json => ({ type, input: { journal, name } });
  const runsOf = (name: string): number =>
    fleet.entries().filter(({ note, event }) => note === name && event === 'started').length;
  const retry = async (flow: string, body: Json = {}): Promise<Json> => {
    const { status, body: answer } = await call(url, 'POST', `/v1/flows/${flow}/retry`, body);
    return { status, tasks: answer['tasks'] };
  };
  const id = await start(fleet, {
    steps: {
      settle: {
        flow: {
          name: 'settlement',
          steps: {
            a: noted('a'),
            deep: { flow: { name: 'deep', steps: { b: noted('b'), c: { ...dies, after: ['b'] } } }, after: ['a'] },
            d: { ...noted('d'), after: ['deep'] },
          },
        },
      },
      next: { flow: { name: 'next', steps: { e: noted('e'), f: { ...noted('f'), after: ['e'] } } }, after: ['settle'] },
    },
  });
  expect(await ended(fleet, id)).toMatchObject({ state: 'failed' });
  expect(await retry(id)).toEqual({ status: 200, tasks: 4 });
  const again = await ended(fleet, id);
  expect(again).toMatchObject({ state: 'failed', tasks: { total: 6, open: 0 } });
  expect([runsOf('a'), runsOf('b'), runsOf('e')]).toEqual([1, 1, 0]);
  // From inside: the flows around it go on with it.
  const deep = await nestedOf(fleet, id, 'settle', 'deep');
  expect(await retry(deep)).toEqual({ status: 200, tasks: 1 });
  expect(await ended(fleet, id)).toMatchObject({ state: 'failed', steps: { failed: 1, open: 0 } });
  expect(await retry(await nestedOf(fleet, id, 'next'))).toEqual({ status: 409 });
  expect(await replay(fleet, (await stepOf(fleet, deep, 'c')).deadLetterId)).toBe(200);
  expect(await ended(fleet, id)).toMatchObject({
    state: 'succeeded',
    steps: { failed: 0, open: 0 },
    tasks: { open: 0 },
  });
  expect(['a', 'b', 'd', 'e', 'f'].map(runsOf)).toEqual([1, 1, 1, 1, 1]);
  // From a step: it is made anew as a whole, whatever became of it.
  expect(await retry(id, { from: 'next' })).toEqual({ status: 200, tasks: 2 });
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded' });
  expect(['a', 'e', 'f'].map(runsOf)).toEqual([1, 2, 2]);
  expect(await retry(await nestedOf(fleet, id, 'next'), { from: 'f' })).toEqual({ status: 409 });
  const books = await fleet.ended();
  expect(books['accepted']).toBe(books['succeeded'] + books['dead'] + books['dropped']);
}, 150_000);

test('compensate undoes what nested flows did: by the task that undoes the step, or step by step', async () => {
  await using fleet = await open();
  const { journal } = fleet;
  const undo = (name: string, more: Json = {}): Json => ({ type, input: { journal, name, ...more } });
  const id = await start(fleet, {
    onFailure: 'compensate',
    steps: {
      whole: {
        flow: { name: 'whole', steps: { a: { type, input: { give: { seat: 4 } }, undo: undo('never') } } },
        undo: undo('undo whole', { seat: { $result: 'whole', path: '/seat' } }),
      },
      parts: {
        after: ['whole'],
        flow: {
          name: 'parts',
          steps: {
            b: { type, input: { give: 'b' }, undo: undo('undo b', { it: { $result: 'b' } }) },
            deep: {
              after: ['b'],
              flow: { name: 'deep', steps: { c: { type, undo: undo('undo c', { failures: 2 }) } } },
            },
            d: { type, after: ['deep'], undo: undo('undo d') },
          },
        },
      },
      // Undoes itself when it fails, and is not undone twice.
      self: {
        after: ['parts'],
        flow: {
          name: 'self',
          onFailure: 'compensate',
          steps: { e: { type, undo: undo('undo e') }, f: { ...dies, after: ['e'] } },
        },
      },
    },
    failureStep: undo('told'),
  });
  const stuck = await ended(fleet, id);
  expect(stuck).toMatchObject({ state: 'failed', phase: 'undo' });
  expect(statesOf(stuck)).toMatchObject({
    self: 'failed',
    parts: 'succeeded',
    'undo parts': 'dead',
    'undo whole': 'planned',
  });
  const parts = await nestedOf(fleet, id, 'parts');
  const deep = await nestedOf(fleet, id, 'parts', 'deep');
  expect(await get(fleet, parts)).toMatchObject({ state: 'succeeded', phase: 'undo' });
  expect(await replay(fleet, (await stepOf(fleet, deep, 'undo c')).deadLetterId)).toBe(200);
  const undone = await eventually(
    async () => {
      const flow = await get(fleet, id);
      expect(statesOf(flow)).toMatchObject({ 'undo parts': 'succeeded', 'undo whole': 'succeeded' });
      return flow;
    },
    { withinMs: 20_000 },
  );
  expect(undone).toMatchObject({ steps: { open: 0 } });
  expect(await ended(fleet, id)).toMatchObject({ state: 'failed', tasks: { open: 0 } });
  expect(await get(fleet, parts)).toMatchObject({ state: 'succeeded', phase: 'undo', steps: { open: 0 } });
  const names = fleet
    .entries()
    .filter(({ event }) => event === 'started')
    .map(({ note }) => note);
  expect(names.filter((name) => name !== 'told')).toEqual([
    'undo e',
    'undo d',
    'undo c',
    'undo c',
    'undo c',
    'undo b',
    'undo whole',
  ]);
  expect(names.filter((name) => name === 'told')).toHaveLength(1);
  expect(await fleet.ended()).toMatchObject({ claims: 0, outbox: 0 });
}, 120_000);

test('a nested flow that failed half way is undone with the flow around it; one that has undone itself begins anew with a retry', async () => {
  await using fleet = await open();
  const { url } = fleet.producer();
  const { journal } = fleet;
  const undo = (name: string): Json => ({ type, input: { journal, name } });
  const half = (onFailure: string): Json => ({
    flow: {
      name: 'half',
      onFailure,
      steps: { a: { type, input: { journal, name: 'a' }, undo: undo('undo a') }, b: { ...dies, after: ['a'] } },
    },
  });
  const names = (): unknown[] =>
    fleet
      .entries()
      .filter(({ event }) => event === 'started')
      .map(({ note }) => note);
  const id = await start(fleet, { onFailure: 'compensate', steps: { settle: half('stop') } });
  expect(await ended(fleet, id)).toMatchObject({ state: 'failed', phase: 'undo' });
  const settle = await nestedOf(fleet, id, 'settle');
  expect(await get(fleet, settle)).toMatchObject({ state: 'failed', phase: 'undo', steps: { open: 0 } });
  expect(names()).toEqual(['a', 'undo a']);
  for (const flow of [id, settle]) expect((await call(url, 'POST', `/v1/flows/${flow}/retry`, {})).status).toBe(409);

  const other = await start(fleet, { steps: { settle: half('compensate') } });
  await ended(fleet, other);
  const { body } = await call(url, 'POST', `/v1/flows/${other}/retry`, {});
  expect(body).toMatchObject({ tasks: 2 });
  expect(await ended(fleet, other)).toMatchObject({ state: 'failed' });
  expect(names()).toEqual(['a', 'undo a', 'a', 'undo a', 'a', 'undo a']);
}, 60_000);

test('what is replayed without a chance to mend a nested flow leaves those around it as they ended', async () => {
  const fleet = shared;
  const { url } = fleet.producer();
  const undo = { type, input: { failures: 2 } };
  const id = await start(fleet, {
    businessKey: 'one',
    steps: {
      settle: {
        flow: {
          name: 'settlement',
          onFailure: 'compensate',
          steps: { a: { type, undo }, b: { ...dies, after: ['a'] } },
          failureStep: dies,
        },
      },
      last: { type, after: ['settle'] },
    },
  });
  const before = await ended(fleet, id);
  expect(before).toMatchObject({ state: 'failed', steps: { failed: 1 } });
  const settle = await nestedOf(fleet, id, 'settle');
  expect(statesOf(await get(fleet, settle))).toMatchObject({ b: 'dead', 'undo a': 'dead', failureStep: 'dead' });
  for (const name of ['undo a', 'failureStep', 'b']) {
    expect(await replay(fleet, (await stepOf(fleet, settle, name)).deadLetterId)).toBe(200);
    await fleet.ended();
  }
  expect(await get(fleet, settle)).toMatchObject({ state: 'failed', steps: { open: 0 } });
  expect((await get(fleet, id))['finishedAt']).toBe(before['finishedAt']);
  expect(await get(fleet, id)).toEqual({ ...before, graph: expect.anything() });

  // Another flow is about the same thing by now: what is nested in the first cannot have it go on.
  const first = await start(fleet, { businessKey: 'two', steps: { in: { flow: { name: 'in', steps: { a: dies } } } } });
  await ended(fleet, first);
  await ended(fleet, await start(fleet, { businessKey: 'two', steps: { a: { type } } }));
  const { status, body } = await call(url, 'POST', `/v1/flows/${await nestedOf(fleet, first, 'in')}/retry`, {});
  expect([status, body['type']]).toEqual([409, expect.stringContaining('unique-conflict')]);
}, 60_000);

test('nested flows of many flows that end at once, by many workers, while others are cancelled, wait for each other in no circle', async () => {
  await using fleet = await openFleet({ tasks: ['steps'], workers: 4 });
  const { url } = fleet.producer();
  const before = await deadlocks(fleet);
  const leaf = (n: number): Json => ({
    flow: { name: 'leaf', steps: { a: { type, input: { ms: n % 3 } }, b: { type, after: ['a'] } } },
  });
  const flow = {
    onFailure: 'continue',
    steps: {
      ...Object.fromEntries(Array.from({ length: 6 }, (_each, n) => [`n${n}`, leaf(n)])),
      deep: { flow: { name: 'mid', steps: { x: leaf(0), y: leaf(1), z: { ...leaf(2), after: ['x', 'y'] } } } },
      joined: { type, after: [...Array.from({ length: 6 }, (_each, n) => `n${n}`), 'deep'] },
    },
  };
  const ids = await Promise.all(Array.from({ length: 60 }, async () => await start(fleet, flow)));
  for (let round = 0; round < 4; round += 1) {
    await Promise.all(
      ids
        .filter((_each, index) => index % 6 === round)
        .map(async (id) => {
          const nested = await nestedOf(fleet, id, `n${round}`);
          const steps = (await get(fleet, nested)).graph;
          const cancels = [`/v1/flows/${nested}/cancel`, ...steps.map(({ taskId }) => `/v1/tasks/${taskId}/cancel`)];
          const path = cancels[(round + id.charCodeAt(9)) % cancels.length] ?? '';
          expect([200, 202, 409]).toContain((await call(url, 'POST', path, {})).status);
        }),
    );
  }
  const books = await fleet.ended(90_000);
  expect(books['accepted']).toBe(60 * 19);
  for (const id of ids) {
    expect(await get(fleet, id)).toMatchObject({
      steps: { open: 0 },
      tasks: { open: 0 },
      finishedAt: expect.any(String),
    });
  }
  const { rows } = await fleet.database.database.query({
    text: `select count(*)::int4 as n from flows where finished_at is null or steps_open <> 0 or is_awaited`,
  });
  expect(rows).toEqual([{ n: 0 }]);
  expect(await deadlocks(fleet)).toBe(before);
}, 180_000);

test('a service nests typed flows by the client', async () => {
  const fleet = shared;
  const client = createClient({ url: fleet.producer().url });
  const settle = defineFlow('settlement', (flow, { n }: { n: number }) => {
    const first = flow.step('first', step, { give: { n } });
    flow.step('beside', step, {});
    return flow.step<{ got: number }, { got: number }>('told', 'flow.step', {
      got: (first.result as Ref<{ n: number }>).n,
    });
  });
  const order = defineFlow('order', (flow, { n }: { n: number }) => {
    const begun = flow.step<{ give: number }, number>('begun', 'flow.step', { give: n });
    const settled = flow.nest('settle', settle, { n: begun.result });
    return flow.step<{ n: number }, { n: number }>('last', 'flow.step', { n: settled.result.got });
  });
  const { id } = await client.flows.start(order, { n: 7 });
  const flow = await client.flows.ended(id);
  expect(flow).toMatchObject({ state: 'succeeded', tasks: { total: 5, open: 0 }, result: { n: 7 } });
  const nested = await client.flows.get(flow.graph[1]?.flow?.id ?? '');
  expect(nested).toMatchObject({
    name: 'settlement',
    parent: { id, step: 'settle' },
    result: { beside: {}, told: { got: 7 } },
  });
}, 60_000);

test('what cannot be nested is refused, with the place and what to do', async () => {
  const fleet = shared;
  const { url } = fleet.producer();
  const refused = async (steps: Json): Promise<readonly unknown[]> => {
    const { status, body } = await call(url, 'POST', '/v1/flows', { name: 'test', steps });
    return [status, body['field'], body['reason']];
  };
  const nest = (levels: number): Json => ({
    flow: { name: 'n', steps: levels === 0 ? { a: { type } } : { a: nest(levels - 1) } },
  });
  expect((await call(url, 'POST', '/v1/flows', { name: 'test', steps: { a: nest(4) } })).status).toBe(202);
  expect(await refused({ a: nest(5) })).toEqual([
    400,
    expect.stringMatching(/flow$/),
    expect.stringContaining('5 deep at most'),
  ]);
  const inner = { name: 'n', steps: { a: { type } } };
  expect(await refused({ a: { type, flow: inner } })).toEqual([
    400,
    'steps.a.type',
    expect.stringContaining('together with flow'),
  ]);
  expect(await refused({ a: { inputs: [], flow: inner } })).toEqual([
    400,
    'steps.a.inputs',
    expect.stringContaining('together with flow'),
  ]);
  expect(await refused({ a: {} })).toEqual([400, 'steps.a.type', expect.stringContaining('or flow')]);
  expect(await refused({ a: { flow: { ...inner, businessKey: 'x' } } })).toEqual([
    400,
    'steps.a.flow.businessKey',
    'is not known here; allowed are name, onFailure, failureStep, steps',
  ]);
  expect(
    await refused({ a: { flow: { name: 'n', steps: { b: { type, input: { x: { $result: 'no' } } } } } } }),
  ).toEqual([400, 'steps.a.flow.steps.b.input.x', expect.stringContaining('no step')]);
  expect(await refused({ a: { flow: { name: 'n', steps: { b: { type: 'no.such' } } } } })).toEqual([
    422,
    'steps.a.flow.steps.b.type',
    expect.any(String),
  ]);
  expect(await refused({ c: { type }, a: { flow: { name: 'n', steps: { b: { type, after: ['c'] } } } } })).toEqual([
    400,
    'steps.a.flow.steps.b.after[0]',
    expect.stringContaining('no step of this flow'),
  ]);
  // What is read from around is waited for: round in a circle it cannot be.
  expect(
    await refused({
      a: { flow: { name: 'n', steps: { b: { type, input: { x: { $result: 'c' } } } } } },
      c: { type, after: ['a'] },
    }),
  ).toEqual([400, expect.any(String), expect.stringContaining('circle')]);
  const { body } = await call(url, 'POST', '/v1/flows', {
    name: 'test',
    dryRun: true,
    steps: { c: { type }, a: { after: ['c'], flow: { name: 'n', steps: { b: { type }, d: { type, after: ['b'] } } } } },
  });
  expect(body).toMatchObject({ tasks: 3 });
  expect(
    (body['graph'] as readonly Step[]).map(({ name, flow, within, after }) => [name, flow, within, after]),
  ).toEqual([
    ['c', undefined, undefined, []],
    ['a', 'n', undefined, ['c']],
    ['a/b', undefined, 'a', []],
    ['a/d', undefined, 'a', ['a/b']],
  ]);
}, 60_000);
