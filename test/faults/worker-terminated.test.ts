/** Services that are asked to end by SIGTERM. */
import { expect, test } from '@jest/globals';
import { systemClock } from '../../shared/time/clock.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

test('an idle producer, worker and dead-letter-handler end with 0 within three seconds', async () => {
  await using fleet = await openFleet({ workers: 1, deadLetterHandlers: 1 });
  for (const process of [fleet.worker(0), fleet.deadLetterHandler(), fleet.producer()]) {
    const { code, afterMs } = await process.terminate();
    expect(code).toBe(0);
    expect(afterMs).toBeLessThan(3_000);
  }
}, 60_000);

test('a terminated worker lets running tasks end, and what it had not started starts elsewhere', async () => {
  await using fleet = await openFleet({ workers: 1, queues: 'default:2' });
  // Two run, two more lie with the worker, the rest with the broker.
  const ids = await fleet.submit(...Array.from({ length: 8 }, () => ({ input: { ms: 1_500 } })));
  await eventually(() => expect(fleet.entries()).toHaveLength(2));
  await fleet.start('worker').ready();
  const fromMs = systemClock.now().getTime();
  const { code, afterMs } = await fleet.worker(0).terminate();
  expect(code).toBe(0);
  expect(afterMs).toBeLessThan(4_000);

  expect(await fleet.ended()).toMatchObject({ accepted: 8, succeeded: 8 });
  expect(await fleet.attempts()).toEqual([]);
  const firstRun = ids.filter((id) => fleet.entries(id)[0]?.pid === fleet.worker(0).pid);
  expect(firstRun).toHaveLength(2);
  const handedOver = fleet.entries().filter(({ event, pid }) => event === 'started' && pid === fleet.worker(1).pid);
  expect(handedOver).toHaveLength(6);
  expect(Math.min(...handedOver.map(({ atMs }) => atMs)) - fromMs).toBeLessThan(5_000);
  await expectSoundHistory(fleet);
}, 60_000);

test('a worker hands back what does not end within the grace time; it does not count as a failure', async () => {
  await using fleet = await openFleet({ workers: 1, env: { WARREN_WORKER_DRAIN_MS: '500' } });
  const [id = ''] = await fleet.submit({ input: { ms: 2_500 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const { code, afterMs } = await fleet.worker(0).terminate();
  expect(code).toBe(0);
  expect(afterMs).toBeLessThan(500 + 4_000);
  expect(await fleet.attempts(id)).toMatchObject([{ attempt: 1, outcome: 'interrupted' }]);
  expect(await fleet.task(id)).toMatchObject({ state: 'pending', failures: 0, lost_attempts: 0 });

  await fleet.start('worker').ready();
  await fleet.ended();
  expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', attempt: 2, failures: 0 });
}, 60_000);

test('SIGTERM twice ends a busy worker at once, with 143', async () => {
  await using fleet = await openFleet({ workers: 1 });
  const [id = ''] = await fleet.submit({ input: { ms: 3_000 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const worker = fleet.worker(0);
  worker.signal('SIGTERM');
  await worker.next('service stopping');
  const { code, afterMs } = await worker.terminate();
  expect(code).toBe(143);
  expect(afterMs).toBeLessThan(1_000);

  await fleet.start('worker').ready();
  await fleet.ended();
  expect(await fleet.attempts(id)).toMatchObject([{ outcome: 'lost' }]);
}, 60_000);
