/** Handlers that do not end when they are told to. */
import { expect, test } from '@jest/globals';
import { openFleet } from '../support/fleet.ts';

test('a worker with more handlers that ignore their abort than it may have drains and ends with 75', async () => {
  await using fleet = await openFleet({
    workers: 1,
    tasks: ['well-behaved', 'ill-behaved'],
    env: { WARREN_WORKER_MAX_ABANDONED: '3' },
  });
  const stubborn = Array.from({ length: 4 }, () => ({ type: 'fault.stubborn', input: { ms: 60_000 } }));
  await fleet.submit(...stubborn, { input: { ms: 2_000 } });

  expect(await fleet.worker(0).exited).toBe(75);
  expect(fleet.worker(0).logged('handler ignored its abort')).toHaveLength(4);
  // The neighbour was let run to its end.
  expect(await fleet.ended()).toMatchObject({ accepted: 5, succeeded: 1, dead: 4, letters: 4 });
  expect(new Set((await fleet.deadLetters()).map(({ reason }) => reason))).toEqual(new Set(['timeout']));
  expect((await fleet.attempts()).map(({ outcome }) => outcome)).toEqual(Array(4).fill('timeout'));
});

test('a handler that blocks its thread is killed at its timeout, and nobody else notices', async () => {
  await using fleet = await openFleet({ workers: 1, tasks: ['well-behaved', 'ill-behaved'] });
  await fleet.submit({ type: 'fault.blocker' }, { type: 'fault.blocker' });
  const neighbours = await fleet.submit(...Array.from({ length: 20 }, () => ({ input: { ms: 5 } })));

  expect(await fleet.ended()).toMatchObject({ accepted: 22, succeeded: 20, dead: 2 });
  expect((await fleet.deadLetters()).map(({ reason }) => reason)).toEqual(['timeout', 'timeout']);
  for (const id of neighbours) expect(fleet.entries(id).map(({ event }) => event)).toEqual(['started', 'ended']);
  const blocked = fleet.entries().filter(({ taskId }) => !neighbours.includes(taskId));
  expect(blocked).toHaveLength(2);
  expect(fleet.worker(0).logged('lease not renewed')).toEqual([]);
});
