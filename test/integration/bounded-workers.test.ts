/** Workers that end by themselves: after so many tasks, or where there is nothing to do. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const ONE_TASK = { WARREN_WORKER_MAX_TASKS: '1' };

/** Starts workers and gives their exit codes, once each has ended by itself. */
async function runWorkers(
  fleet: Fleet,
  count: number,
  env: Readonly<Record<string, string>>,
): Promise<readonly unknown[]> {
  const workers = Array.from({ length: count }, () => fleet.start('worker', env));
  return await Promise.all(workers.map(async ({ exited }) => await exited));
}

test('each of five runs one of ten tasks and ends with 0; the rest is there for the next five at once', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 1, queues: 'default:4' });
  // The first announces the type.
  await fleet.start('worker', { WARREN_WORKER_IDLE_EXIT_MS: '300' }).exited;
  const [suspect] = await fleet.submit(...Array.from({ length: 10 }, () => ({ input: { ms: 300 } })));
  // One that took two workers with it: it runs alone, as it does anyway.
  await fleet.database.database.query({ text: 'update tasks set lost_attempts = 2 where id = $1', values: [suspect] });
  expect(await runWorkers(fleet, 5, ONE_TASK)).toEqual([0, 0, 0, 0, 0]);
  expect(await fleet.books()).toMatchObject({ accepted: 10, succeeded: 5, running: 0, waiting: 5 });
  expect(await runWorkers(fleet, 5, ONE_TASK)).toEqual([0, 0, 0, 0, 0]);
  expect(await fleet.ended()).toMatchObject({ accepted: 10, succeeded: 10, dead: 0 });
  expect(await fleet.attempts()).toEqual([]);
  const ran = fleet.entries().filter(({ event }) => event === 'ended');
  expect(new Set(ran.map(({ taskId }) => taskId)).size).toBe(10);
  expect(new Set(ran.map(({ pid }) => pid)).size).toBe(10);
});

test('the bound is of all queues and slots together, and a failed attempt counts as one', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 1, queues: 'default:4' });
  await fleet.start('worker', { WARREN_WORKER_IDLE_EXIT_MS: '300' }).exited;
  await fleet.submit(...Array.from({ length: 6 }, () => ({ input: { ms: 100, failures: 1 } })));
  expect(await runWorkers(fleet, 1, { WARREN_WORKER_MAX_TASKS: '4' })).toEqual([0]);
  expect(fleet.entries().filter(({ event }) => event === 'started')).toHaveLength(4);
  const attempts = await fleet.attempts();
  expect(attempts.map(({ outcome }) => outcome)).toEqual(Array(4).fill('failed'));
  await fleet.start('worker').ready();
  expect(await fleet.ended()).toMatchObject({ accepted: 6, succeeded: 6, dead: 0 });
});

test('a task may take longer than the drain of its worker; SIGTERM drains that as any other', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 1, queues: 'default:1' });
  await fleet.start('worker', { WARREN_WORKER_IDLE_EXIT_MS: '300' }).exited;
  const env = { ...ONE_TASK, WARREN_WORKER_DRAIN_MS: '500' };
  await fleet.submit({ input: { ms: 6_000 } });
  expect(await runWorkers(fleet, 1, env)).toEqual([0]);
  expect(await fleet.ended()).toMatchObject({ succeeded: 1 });
  expect(await fleet.attempts()).toEqual([]);

  const [id = ''] = await fleet.submit({ input: { ms: 20_000 } });
  const worker = fleet.start('worker', env);
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  expect((await worker.terminate()).code).toBe(0);
  expect(await fleet.attempts(id)).toEqual([expect.objectContaining({ outcome: 'interrupted' })]);
  expect(await fleet.task(id)).toMatchObject({ state: 'pending', failures: 0, lost_attempts: 0 });
});

test('a worker that finds nothing to do ends with 0, and not while something runs', async () => {
  await using fleet = await openFleet({ workers: 0, producers: 1, queues: 'default:1' });
  const env = { WARREN_WORKER_IDLE_EXIT_MS: '1000' };
  const idle = fleet.start('worker', env);
  expect(await idle.exited).toBe(0);
  await fleet.submit({ input: { ms: 3_000 } });
  expect(await runWorkers(fleet, 1, env)).toEqual([0]);
  expect(await fleet.ended()).toMatchObject({ accepted: 1, succeeded: 1 });

  // Not while its queue is paused: another in its place would find the same.
  const { url } = fleet.producer();
  await call(url, 'POST', '/v1/queues/default/pause', { reason: 'the disk is full' });
  const waiting = await fleet.start('worker', env).ready();
  await fleet.pass(3_000);
  expect(waiting.exitCode).toBeUndefined();
  await call(url, 'POST', '/v1/queues/default/resume');
  expect(await waiting.exited).toBe(0);
});
