/** Tasks that start later. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { aType } from '../support/task-api.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await openFleet({ queues: 'default:50' });
});
afterAll(async () => await fleet[Symbol.asyncDispose]());

test('fifty tasks with delays out of order start at their time: never before, and none waits for another', async () => {
  const delays = Array.from({ length: 50 }, (_, index) => 200 + ((index * 37) % 50) * 60);
  const ids = await fleet.submit(...delays.map((delayMs) => ({ delayMs })));
  const accepted = new Map((await fleet.tasks()).map((task) => [task.id, task.accepted_at.getTime()]));
  expect(await fleet.ended()).toMatchObject({ accepted: 50, succeeded: 50 });

  const late = ids.map((id, index) => {
    const dueMs = (accepted.get(id) ?? 0) + (delays[index] ?? 0);
    return (fleet.entries(id)[0]?.atMs ?? Infinity) - dueMs;
  });
  expect(Math.min(...late)).toBeGreaterThanOrEqual(-2); // milliseconds are cut off
  // On an idle machine all are within a second; a busy one may hold up a few.
  expect(late.filter((ms) => ms < 1_000).length).toBeGreaterThan(25);
  expect(Math.max(...late)).toBeLessThan(5_000);
});

test('a task that starts later is accepted before any worker ever ran, and waits for the first', async () => {
  await using fresh = await openFleet({ workers: 0 });
  await announceTypes(fresh.database.database, [aType('fault.step')], 'v1'); // as a deploy job does
  const [id = ''] = await eventually(async () => await fresh.submit({ delayMs: 500 }));
  await eventually(async () => expect((await fresh.task(id)).state).toBe('pending'));
  await fresh.start('worker').ready();
  expect(await fresh.ended()).toMatchObject({ accepted: 1, succeeded: 1 });
});

test('what fails together is not retried together', async () => {
  await fleet.submit(...Array.from({ length: 50 }, () => ({ type: 'fault.spread' })));
  expect(await fleet.ended()).toMatchObject({ accepted: 100, succeeded: 100 });

  const retries = fleet.entries().filter(({ attempt }) => attempt === 2);
  const fromMs = Math.min(...retries.map(({ atMs }) => atMs));
  const buckets = Array.from(
    { length: 4 },
    (_, index) => retries.filter(({ atMs }) => Math.floor((atMs - fromMs) / 500) === index).length,
  );
  // Full jitter over two seconds: half a second holds 13 of 50, on a busy machine somewhat more.
  expect(Math.max(...buckets)).toBeLessThan(36);
  expect(Math.max(...retries.map(({ atMs }) => atMs)) - fromMs).toBeGreaterThan(1_000);
});
