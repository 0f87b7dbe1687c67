/** Handlers that do not end when they are told to. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

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
  for (const attempt of await fleet.attempts()) {
    expect(attempt).toMatchObject({ outcome: 'timeout', error_message: expect.stringContaining('may still run') });
  }
});

test('handlers that block their thread, or take memory there without end, lose only that, and nobody else notices', async () => {
  await using fleet = await openFleet({
    workers: 1,
    tasks: ['well-behaved', 'ill-behaved'],
    env: { WARREN_WORKER_THREAD_HEAP_MEGABYTES: '32' },
  });
  const bad = await fleet.submit({ type: 'fault.blocker' }, { type: 'fault.greedy' }, { type: 'fault.blocker' });
  const neighbours = await fleet.submit(...Array.from({ length: 20 }, () => ({ input: { ms: 5 } })));

  expect(await fleet.ended()).toMatchObject({ accepted: 23, succeeded: 20, dead: 3 });
  const letters = await fleet.deadLetters();
  expect(bad.map((id) => letters.find(({ task_id: taskId }) => taskId === id)?.reason)).toEqual([
    'timeout',
    'attempts_exhausted',
    'timeout',
  ]);
  for (const id of neighbours) expect(fleet.entries(id).map(({ event }) => event)).toEqual(['started', 'ended']);
  expect(fleet.entries(bad[1]).map(({ attempt }) => attempt)).toEqual([1, 2]);
  for (const { error_message: message } of await fleet.attempts(bad[1])) expect(message).toContain('out of memory');
  expect(fleet.worker(0).logged('lease not renewed')).toEqual([]);
  expect(fleet.worker(0).exitCode).toBeUndefined();
});

test('a handler that calls process.exit takes its worker with it; whoever ran there runs again, and it does too', async () => {
  await using fleet = await openFleet({ workers: 2, tasks: ['well-behaved', 'ill-behaved'] });
  const beside = await fleet.submit(...Array.from({ length: 8 }, () => ({ input: { ms: 600 } })));
  await eventually(() => expect(fleet.entries()).toHaveLength(8));
  const [culprit = ''] = await fleet.submit({ type: 'fault.exits' });
  await eventually(() => expect(fleet.all('worker').filter(({ exitCode }) => exitCode === 0)).toHaveLength(1));

  expect(await fleet.ended()).toMatchObject({ accepted: 9, succeeded: 9, dead: 0 });
  expect(await fleet.task(culprit)).toMatchObject({ attempt: 2, failures: 0, lost_attempts: 1 });
  for (const id of beside) expect((await fleet.task(id)).failures).toBe(0);
  await expectSoundHistory(fleet);
});

test('a handler that blocks the event loop for longer than the broker waits costs nobody a second run', async () => {
  await using fleet = await openFleet({
    workers: 1,
    tasks: ['well-behaved', 'ill-behaved'],
    leaseMs: 10_000,
    env: { WARREN_AMQP_HEARTBEAT_SECONDS: '1' },
  });
  const beside = await fleet.submit(...Array.from({ length: 6 }, () => ({ input: { ms: 2_000 } })));
  await eventually(() => expect(fleet.entries()).toHaveLength(6));
  const [hog = ''] = await fleet.submit({ type: 'fault.hog', input: { ms: 5_000 } });
  await fleet.worker(0).next('broker connection lost', {}, 20_000);

  expect(await fleet.ended()).toMatchObject({ accepted: 7, succeeded: 7, dead: 0 });
  for (const id of [hog, ...beside]) expect(await fleet.task(id)).toMatchObject({ attempt: 1, lost_attempts: 0 });
  await expectSoundHistory(fleet);
  expect(await fleet.run()).toBe('succeeded'); // the worker consumes again
});

test('a stray rejection or exception of a handler makes its worker drain and end with 70, and costs no task anything', async () => {
  await using fleet = await openFleet({ workers: 1, tasks: ['well-behaved', 'ill-behaved'] });
  fleet.expectErrors('unhandled failure');
  const ids: string[] = [];
  for (const [index, how] of ['rejection', 'exception'].entries()) {
    const worker = index === 0 ? fleet.worker(0) : await fleet.start('worker').ready();
    const before = fleet.entries().length;
    ids.push(...(await fleet.submit(...Array.from({ length: 4 }, () => ({ input: { ms: 1_000 } })))));
    await eventually(() => expect(fleet.entries()).toHaveLength(before + 4));
    ids.push(...(await fleet.submit({ type: 'fault.stray', input: { ms: 300, how } })));
    expect(await worker.exited).toBe(70);
    expect(worker.logged('unhandled failure')).toHaveLength(1);
  }
  expect(await fleet.ended()).toMatchObject({ accepted: 10, succeeded: 10, dead: 0 });
  for (const id of ids) expect(await fleet.task(id)).toMatchObject({ attempt: 1, lost_attempts: 0 });
});
