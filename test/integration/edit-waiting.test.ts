/** What an edit changes reaches the broker: the order in which tasks run, and where. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const startsOf = (fleet: Fleet): readonly string[] =>
  fleet.entries().flatMap(({ event, taskId }) => (event === 'started' ? [taskId] : []));

async function edit(fleet: Fleet, path: string, body: object): Promise<Record<string, unknown>> {
  const method = path === '/v1/tasks/edit' ? 'POST' : 'PATCH';
  const answer = await call(fleet.producer().url, method, path, body);
  expect(answer.status).toBe(200);
  return answer.body;
}

test('a task whose priority is raised while it waits overtakes the others, and no invitation of before runs it twice', async () => {
  await using fleet = await openFleet({ workers: 1, queues: 'default:1' });
  const [first = ''] = await fleet.submit({ input: { ms: 4_000 } });
  await eventually(() => expect(startsOf(fleet)).toEqual([first]));
  const waiting = await fleet.submit(...Array.from({ length: 12 }, () => ({ priority: 2, input: { ms: 20 } })));
  const last = waiting.at(-1) ?? '';
  expect(await edit(fleet, `/v1/tasks/${last}`, { priority: 9 })).toMatchObject({ priority: 9, generation: 2 });
  await fleet.ended();
  const starts = startsOf(fleet);
  // One may have been at hand in the worker already; what it holds is as many as it takes at once.
  expect(starts.indexOf(last)).toBeLessThanOrEqual(3);
  expect(starts.toSorted()).toEqual([first, ...waiting].toSorted());
});

test('tasks moved to another queue while they wait run there, those that were put off when they are due', async () => {
  await using fleet = await openFleet({ workers: 1, queues: 'default:1,bulk:4' });
  const [first = ''] = await fleet.submit({ input: { ms: 20_000 } });
  await eventually(() => expect(startsOf(fleet)).toEqual([first]));
  const waiting = await fleet.submit(...Array.from({ length: 6 }, () => ({ tags: ['moved'], input: { ms: 20 } })));
  const put = { filter: 'tag:moved', reason: 'of a test' };
  expect(await edit(fleet, '/v1/tasks/edit', { ...put, changes: { delayMs: 3_600_000 } })).toMatchObject({ edited: 6 });
  expect(await edit(fleet, '/v1/tasks/edit', { ...put, changes: { queue: 'bulk', runAt: null } })).toMatchObject({
    edited: 6,
    isPartial: false,
  });
  await eventually(async () => {
    for (const id of waiting) expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', attempt: 1 });
  });
  expect((await fleet.task(first)).state).toBe('running');
  expect((await call(fleet.producer().url, 'POST', `/v1/tasks/${first}/cancel`, {})).status).toBe(202);
  await fleet.ended();
  expect(startsOf(fleet).toSorted()).toEqual([first, ...waiting].toSorted());
});
