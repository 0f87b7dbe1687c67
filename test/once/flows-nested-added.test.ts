/** Steps that are added where flows are nested: inside of one, after one, and before one; and what one gave, read page by page. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ended, get, nestedOf, resultOf, start, stepIn } from '../support/flows.ts';
import type { Json, ShownFlow } from '../support/flows.ts';

const step = 'flow.step';
const adding = (...steps: readonly Json[]): Json => ({ add: JSON.stringify(steps) });
const encode = (pieces: number): Json => ({ name: 'encode', type: step, pieces });

let fleet: Fleet;
beforeAll(async () => {
  fleet = await openFleet({ tasks: ['steps', 'splitters', 'joiners'], deadLetterHandlers: 1, workers: 2 });
}, 120_000);
afterAll(async () => await fleet[Symbol.asyncDispose]());

const runFlow = async (flow: Json): Promise<ShownFlow> => await ended(fleet, await start(fleet, flow));
const idOf = (flow: ShownFlow): string => String(flow['id']);

test('a step of a nested flow adds members, which are joined in it; what it gives goes on outside', async () => {
  const inner = {
    name: 'video',
    steps: {
      split: { type: 'flow.split', input: adding(encode(3)) },
      encode: { type: step, inputs: [], after: ['split'] },
      joined: { type: step, input: { all: { $result: 'encode' } } },
    },
  };
  const flow = await runFlow({ steps: { video: { flow: inner }, last: { type: step, after: ['video'] } } });
  expect(flow).toMatchObject({ state: 'succeeded', tasks: { total: 6, open: 0 } });
  expect(await resultOf(fleet, idOf(flow), 'last')).toEqual({ all: [0, 1, 2] });
  const nested = await get(fleet, await nestedOf(fleet, idOf(flow), 'video'));
  expect(nested).toMatchObject({ state: 'succeeded', steps: { total: 5, open: 0, failed: 0 } });
});

test('what is added after a nested flow waits for its end', async () => {
  const slow = { name: 'slow', steps: { one: { type: step, input: { ms: 1_500, give: { n: 7 } } } } };
  const late = { name: 'late', type: step, after: ['slow'], input: { got: { $result: 'slow' } } };
  const flow = await runFlow({ steps: { slow: { flow: slow }, split: { type: 'flow.split', input: adding(late) } } });
  expect(flow).toMatchObject({ state: 'succeeded' });
  expect(await resultOf(fleet, idOf(flow), 'late')).toEqual({ got: { n: 7 } });
  const before = await get(fleet, await nestedOf(fleet, idOf(flow), 'slow'));
  const startedAt = Date.parse(String(stepIn(flow, 'late')['startedAt']));
  expect(startedAt).toBeGreaterThanOrEqual(Date.parse(String(before['finishedAt'])));
});

test('a nested flow that waits for a group gets what was added to it', async () => {
  const inner = { name: 'sum', steps: { all: { type: step, input: { all: { $result: 'encode' } } } } };
  const flow = await runFlow({
    steps: {
      split: { type: 'flow.split', input: adding(encode(4)) },
      encode: { type: step, inputs: [], after: ['split'] },
      sum: { flow: inner, after: ['encode'] },
    },
  });
  expect(flow).toMatchObject({ state: 'succeeded', result: { all: [0, 1, 2, 3] } });
});

test('nothing is added before a nested flow that has begun', async () => {
  const inner = { name: 'early', steps: { one: { type: step, input: { ms: 2_000 } } } };
  const more = { name: 'more', type: step, pieces: 1 };
  const flow = await runFlow({
    steps: {
      first: { type: step },
      more: { type: step, inputs: [], after: ['first'] },
      early: { flow: inner, after: ['more'] },
      split: { type: 'flow.split', input: { ...adding(more), beforeMs: 1_000, catches: true } },
    },
  });
  expect(flow).toMatchObject({ state: 'succeeded' });
  expect(await resultOf(fleet, idOf(flow), 'split')).toMatchObject({
    added: [{ code: 'step-refused', field: 'name', reason: 'is waited for by early, which has begun' }],
  });
});

test('a retry from a step of a nested flow makes what it added anew, and a cancel of all cancels it too', async () => {
  const inner = {
    name: 'video',
    steps: {
      split: { type: 'flow.split', input: adding(encode(2)) },
      encode: { type: step, inputs: [], after: ['split'] },
      hold: { type: step, after: ['encode'], signal: { name: 'go' } },
    },
  };
  const id = await start(fleet, { steps: { video: { flow: inner } } });
  const nestedId = await nestedOf(fleet, id, 'video');
  const post = async (path: string, body: Json): Promise<Json> =>
    (await call(fleet.producer().url, 'POST', `/v1/flows/${path}`, body)).body;
  await fleet.pass(1_000);
  await post(`${id}/cancel`, { reason: 'no more' });
  expect(await ended(fleet, id)).toMatchObject({ state: 'cancelled' });
  expect(await get(fleet, nestedId)).toMatchObject({ state: 'cancelled', steps: { open: 0 } });
  expect(await post(`${id}/retry`, { from: 'video', reason: 'after all' })).toMatchObject({ id });
  await post(`${nestedId}/signals/go`, {});
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded' });
  expect(await get(fleet, nestedId)).toMatchObject({ state: 'succeeded', steps: { total: 4, open: 0, failed: 0 } });
});

test('the result of a step that is a flow is read like that of any other', async () => {
  const inner = { name: 'give', steps: { one: { type: step, input: { give: { n: 5 } } } } };
  const flow = await runFlow({
    steps: { sub: { flow: inner }, sum: { type: 'flow.sum', after: ['sub'], input: { step: 'sub', whole: true } } },
  });
  expect(await resultOf(fleet, idOf(flow), 'sum')).toEqual([{ n: 5 }]);
  const { body } = await call(fleet.producer().url, 'GET', `/v1/flows/${idOf(flow)}/steps/sub/results`);
  expect(body).toEqual({ items: [{ result: { n: 5 } }] });
});
