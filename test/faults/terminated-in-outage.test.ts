/** Services that are asked to end by SIGTERM while what they stand on is away. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import type { FaultyProxy } from '../support/faulty-proxy.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import type { Ended, ServiceProcess } from '../support/service-process.ts';
import { expectSoundHistory } from '../support/soundness.ts';

const DRAIN_MS = 1_000;
/** Grace time of a service beside the drain, and what a loaded machine adds. */
const AT_MOST_MS = 10_000 + 15_000;

const open = async (): Promise<Fleet> =>
  await openFleet({
    deadLetterHandlers: 1,
    queues: 'default:2',
    through: ['broker', 'postgres'],
    env: { WARREN_WORKER_DRAIN_MS: String(DRAIN_MS) },
  });

const servicesOf = (fleet: Fleet): readonly ServiceProcess[] => [
  fleet.worker(0),
  fleet.producer(),
  fleet.deadLetterHandler(),
];

const proxiesOf = (fleet: Fleet): readonly FaultyProxy[] => [fleet.brokerProxy, fleet.postgresProxy];

async function terminate(processes: readonly ServiceProcess[]): Promise<readonly Ended[]> {
  const ended = await Promise.all(processes.map(async (process) => await process.terminate()));
  for (const { afterMs } of ended) expect(afterMs).toBeLessThan(AT_MOST_MS);
  return ended;
}

test('idle services end with 0 within their grace time while both servers are silent', async () => {
  await using fleet = await open();
  for (const proxy of proxiesOf(fleet)) proxy.pause();
  const ended = await terminate(servicesOf(fleet));
  expect(ended).toMatchObject(ended.map(() => ({ code: 0, errors: [] })));
  for (const proxy of proxiesOf(fleet)) proxy.resume();
});

test('a worker that ends while RabbitMQ is silent settles what ends in time and hands back the rest, uncounted', async () => {
  await using fleet = await open();
  const [short = '', long = ''] = await fleet.submit({ input: { ms: 1_000 } }, { input: { ms: 30_000 } });
  await eventually(() => expect(fleet.entries()).toHaveLength(2));
  fleet.brokerProxy.pause();
  const [ended] = await terminate([fleet.worker(0)]);
  expect(ended?.code).toBe(0);
  expect(await fleet.task(short)).toMatchObject({ state: 'succeeded', attempt: 1 });
  expect(await fleet.task(long)).toMatchObject({ state: 'pending', failures: 0, lost_attempts: 0 });
  expect(await fleet.attempts()).toMatchObject([{ task_id: long, outcome: 'interrupted' }]);
  fleet.brokerProxy.resume();
  await expectSoundHistory(fleet);
});

test('a worker that ends without Postgres leaves what it ran to the reaper, as lost and not as failed', async () => {
  await using fleet = await open();
  const [id = ''] = await fleet.submit({ input: { ms: 1_000 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  fleet.postgresProxy.refuse();
  fleet.postgresProxy.cut();
  const [ended] = await terminate([fleet.worker(0)]);
  expect(ended?.code).toBe(0);
  fleet.postgresProxy.accept();
  await fleet.start('worker').ready();
  await fleet.ended();
  expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', attempt: 2, failures: 0 });
  expect(await fleet.attempts(id)).toMatchObject([{ attempt: 1, outcome: 'lost' }]);
});

test('SIGTERM twice ends every service at once, whatever is away', async () => {
  await using fleet = await open();
  const [id = ''] = await fleet.submit({ input: { ms: 30_000 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  for (const proxy of proxiesOf(fleet)) proxy.pause();
  for (const process of servicesOf(fleet)) process.signal('SIGTERM');
  await Promise.all(servicesOf(fleet).map(async (process) => await process.next('service stopping')));
  const ended = await Promise.all(servicesOf(fleet).map(async (process) => await process.terminate()));
  // One that had nothing to wait for may have ended in order before the second.
  for (const { code, afterMs } of ended) {
    expect([0, 143]).toContain(code);
    expect(afterMs).toBeLessThan(4_000);
  }
  expect(ended[0]?.code).toBe(143);
});
