/** Nested flows that are touched by hand while the flow around them is not with them: before their turn has come, and after it went on. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ended, get, nestedOf, start, statesOf, stepOf } from '../support/flows.ts';

const type = 'flow.step';

let fleet: Fleet;
beforeAll(async () => void (fleet = await openFleet({ tasks: ['steps'] })), 120_000);
afterAll(async () => await fleet[Symbol.asyncDispose]());

test('nothing of a nested flow starts before the flow: neither by a step cancelled by hand whose failure is ignored, nor by a signal', async () => {
  const { url } = fleet.producer();
  const signal = async (flowId: string, name: string): Promise<number> =>
    (await call(url, 'POST', `/v1/flows/${flowId}/signals/${name}`, {})).status;
  const id = await start(fleet, {
    steps: {
      later: {
        signal: { name: 'go' },
        flow: {
          name: 'later',
          steps: {
            a: { type, onFailure: 'ignore' },
            b: { type, after: ['a'] },
            asked: { type, after: ['a'], signal: { name: 'now' } },
            timed: { type, after: ['a'], signal: { name: 'never', timeoutMs: 1 }, onFailure: 'ignore' },
            inner: { after: ['a'], flow: { name: 'inner', steps: { c: { type } } } },
          },
        },
      },
    },
  });
  const later = await nestedOf(fleet, id, 'later');
  const { taskId } = await stepOf(fleet, later, 'a');
  expect((await call(url, 'POST', `/v1/tasks/${taskId}/cancel`, {})).body).toMatchObject({ state: 'cancelled' });
  expect(await signal(later, 'now')).toBe(200);
  const waiting = { a: 'cancelled', b: 'blocked', asked: 'blocked', timed: 'blocked' };
  expect(statesOf(await get(fleet, later))).toMatchObject(waiting);
  expect(await get(fleet, later)).toMatchObject({ state: 'pending' });
  expect(await get(fleet, await nestedOf(fleet, later, 'inner'))).toMatchObject({ state: 'pending' });
  const { rows: timers } = await fleet.database.database.query({
    text: 'select step from flow_timers where flow_id = $1::uuid',
    values: [later],
  });
  expect(timers).toEqual([]);

  expect(await signal(id, 'go')).toBe(200);
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded' });
  expect(await get(fleet, later)).toMatchObject({ state: 'succeeded', steps: { open: 0 } });
  expect(statesOf(await get(fleet, later))).toMatchObject({
    a: 'cancelled',
    b: 'succeeded',
    asked: 'succeeded',
    timed: 'expired',
    inner: 'succeeded',
  });
});

test('what is made anew does not wait for a nested flow that was retried by itself, since its failure had been ignored', async () => {
  const { url } = fleet.producer();
  const post = async (flowId: string, what: string): Promise<number> =>
    (await call(url, 'POST', `/v1/flows/${flowId}/${what}`, {})).status;
  const waits = { name: 'waits', steps: { w: { type, signal: { name: 'go' } } } };
  const id = await start(fleet, {
    steps: {
      extra: { flow: waits, onFailure: 'ignore' },
      main: { flow: waits },
      last: { type, after: ['extra', 'main'] },
    },
  });
  const [extra, main] = [await nestedOf(fleet, id, 'extra'), await nestedOf(fleet, id, 'main')];
  expect(await post(extra, 'cancel')).toBe(200);
  expect(await post(main, 'cancel')).toBe(200);
  expect(await ended(fleet, id)).toMatchObject({ state: 'failed' });
  expect(await post(extra, 'retry')).toBe(200);
  expect(await post(main, 'retry')).toBe(200);
  expect(statesOf(await get(fleet, id))).toMatchObject({ extra: 'running', main: 'running', last: 'blocked' });
  expect(await post(main, 'signals/go')).toBe(200);
  expect(await ended(fleet, id)).toMatchObject({ state: 'succeeded', steps: { open: 0 } });
  expect(await get(fleet, extra)).toMatchObject({ state: 'running' });
  expect(await post(extra, 'signals/go')).toBe(200);
  expect(await ended(fleet, extra)).toMatchObject({ state: 'succeeded' });
});
