/** Services that are asked to end by SIGTERM. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

test('an idle producer, worker and dead-letter-handler end with 0 long before the grace time is over', async () => {
  await using fleet = await openFleet({ workers: 1, deadLetterHandlers: 1 });
  for (const process of [fleet.worker(0), fleet.deadLetterHandler(), fleet.producer()]) {
    const { code, afterMs } = await process.terminate();
    expect(code).toBe(0);
    expect(afterMs).toBeLessThan(8_000);
  }
});

test('a terminated worker lets running tasks end, and what it had not started starts elsewhere', async () => {
  await using fleet = await openFleet({ workers: 2, queues: 'default:2' });
  const [leaving, staying] = [fleet.worker(0), fleet.worker(1)];
  // Each runs two, and holds two more that wait for a slot.
  await fleet.submit(...Array.from({ length: 8 }, () => ({ input: { ms: 1_500 } })));
  await eventually(() => expect(startsOf(fleet, leaving.pid)).toHaveLength(2));
  const fromMs = systemClock.now().getTime();
  const { code, afterMs } = await leaving.terminate();
  expect(code).toBe(0);
  expect(afterMs).toBeLessThan(9_000);

  expect(await fleet.ended()).toMatchObject({ accepted: 8, succeeded: 8 });
  expect(await fleet.attempts()).toEqual([]);
  expect(startsOf(fleet, leaving.pid)).toHaveLength(2);
  const elsewhere = startsOf(fleet, staying.pid);
  expect(elsewhere).toHaveLength(6);
  expect((elsewhere[3] ?? Infinity) - fromMs).toBeLessThan(15_000); // as soon as it has slots free
  await expectSoundHistory(fleet);
});

test('a worker hands back what does not end within the grace time; it does not count as a failure', async () => {
  await using fleet = await openFleet({ workers: 1, env: { WARREN_WORKER_DRAIN_MS: '500' } });
  const [id = ''] = await fleet.submit({ input: { ms: 2_500 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const { code, afterMs } = await fleet.worker(0).terminate();
  expect(code).toBe(0);
  expect(afterMs).toBeLessThan(500 + 8_000);
  expect(await fleet.attempts(id)).toMatchObject([{ attempt: 1, outcome: 'interrupted' }]);
  expect(await fleet.task(id)).toMatchObject({ state: 'pending', failures: 0, lost_attempts: 0 });

  await fleet.start('worker').ready();
  await fleet.ended();
  expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', attempt: 2, failures: 0 });
});

test('a task that is cancelled while its worker drains is aborted and cancelled, and the worker ends sooner', async () => {
  await using fleet = await openFleet({ workers: 1 });
  const [id = ''] = await fleet.submit({ input: { ms: 30_000 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const worker = fleet.worker(0);
  const ending = worker.terminate();
  await worker.next('worker draining');
  const answer = await call(fleet.producer().url, 'POST', `/v1/tasks/${id}/cancel`, {});
  expect(answer.status).toBe(202);
  const { code, afterMs } = await ending;
  expect(code).toBe(0);
  expect(afterMs).toBeLessThan(10_000); // the grace time
  expect(await fleet.task(id)).toMatchObject({ state: 'cancelled', attempt: 1 });
});

test('SIGTERM twice ends a busy worker at once, with 143', async () => {
  await using fleet = await openFleet({ workers: 1 });
  const [id = ''] = await fleet.submit({ input: { ms: 3_000 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const worker = fleet.worker(0);
  worker.signal('SIGTERM');
  await worker.next('service stopping');
  const { code, afterMs } = await worker.terminate();
  expect(code).toBe(143);
  expect(afterMs).toBeLessThan(2_500);

  await fleet.start('worker').ready();
  await fleet.ended();
  expect(await fleet.attempts(id)).toMatchObject([{ outcome: 'lost' }]);
});

/** When a process started attempts. */
function startsOf(fleet: Fleet, pid: number): readonly number[] {
  return fleet.entries().flatMap((entry) => (entry.event === 'started' && entry.pid === pid ? [entry.atMs] : []));
}
