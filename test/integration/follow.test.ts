/** A task is followed through real processes, though they die: from one producer to the next, without a gap. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { openEvents } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await openFleet({ producers: 2 });
});
afterAll(async () => await fleet[Symbol.asyncDispose]());

test('a submission that prefers to wait is answered with the result of the worker', async () => {
  const response = await fetch(`${fleet.producer(1).url}/v1/tasks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', prefer: 'wait=20' },
    body: JSON.stringify(fleet.body({ input: { ms: 300 } })),
  });
  expect(response.status).toBe(200);
  expect(response.headers.get('preference-applied')).toBe('wait=20');
  expect(await response.json()).toMatchObject({ state: 'succeeded', result: { attempt: 1 } });
});

test('a stream that its producer cut by dying goes on at another, with the attempt that its worker lost by dying', async () => {
  const [id = ''] = await fleet.submit({ input: { ms: 1_500 } });
  const first = await openEvents(`${fleet.producer(0).url}/v1/tasks/${id}/events`);
  await eventually(() => expect(first.events.at(-1)?.data).toMatchObject({ state: 'running', attempt: 1 }));
  await fleet.producer(0).kill();
  await first.ended;
  await fleet.worker(0).kill();
  await fleet.start('worker').ready();

  const headers = { 'last-event-id': first.events.at(-1)?.id ?? '' };
  const second = await openEvents(`${fleet.producer(1).url}/v1/tasks/${id}/events`, headers);
  await second.ended;
  expect(second.events.map(({ event, data }) => [event, data['attempt'], data['outcome'] ?? data['state']])).toEqual(
    expect.arrayContaining([
      ['attempt', 1, 'lost'],
      ['state', 2, 'running'],
      ['state', 2, 'succeeded'],
    ]),
  );
  expect(second.events.filter(({ data }) => data['attempt'] === 1 && data['state'] === 'running')).toEqual([]);

  const again = await openEvents(`${fleet.producer(1).url}/v1/tasks/${id}/events`, {
    'last-event-id': second.events.at(-1)?.id ?? '',
  });
  expect(again.status).toBe(204);
  again.close();
}, 540_000);
