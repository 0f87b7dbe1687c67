/** What the services of a real fleet show of what happens to them. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import type { ServiceProcess } from '../support/service-process.ts';

let fleet: Fleet;
let broker: TestBroker;
beforeAll(async () => {
  fleet = await openFleet({ producers: 2 });
  broker = await openBroker();
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
  await fleet[Symbol.asyncDispose]();
});

/** The value of a series, written as Prometheus reads it; `undefined` where the process does not show it. */
async function show(process: ServiceProcess, series: string): Promise<number | undefined> {
  const text = await (await fetch(`${process.url}/metrics`)).text();
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length));
}

/** The values of those processes that show it. */
async function shown(processes: readonly ServiceProcess[], series: string): Promise<readonly number[]> {
  const values = await Promise.all(processes.map(async (process) => await show(process, series)));
  return values.filter((value) => value !== undefined);
}

const sumOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);

test('a worker shows what it started and how long ago it renewed its lease; one of the producers shows who lives', async () => {
  await fleet.submit(...Array.from({ length: 7 }, () => ({})));
  await fleet.ended();
  const worker = fleet.worker(0);
  expect(await show(worker, 'warren_attempts_started_total{queue="default"}')).toBe(7);
  expect(await show(worker, 'warren_attempts_total{task_type="fault.step",outcome="succeeded"}')).toBe(7);
  expect(await show(worker, 'warren_lease_age_seconds')).toBeLessThan(2);
  expect(await show(worker, 'warren_lease_renewals_total{answer="lost"}')).toBe(0);
  expect(await show(worker, 'warren_slots{queue="default"}')).toBe(8);
  await eventually(async () =>
    expect(await shown(fleet.all('producer'), 'warren_workers_alive{queue="default"}')).toEqual([1]),
  );
  expect(await shown(fleet.all('producer'), 'warren_outbox_max_invitations')).toEqual([1_000_000]);
  expect(await show(worker, 'warren_workers_alive{queue="default"}')).toBeUndefined();
});

test('a consumer that RabbitMQ takes away is counted, and consumes again', async () => {
  const worker = fleet.worker(0);
  expect(await show(worker, 'warren_consumer_cancels_total{queue="default"}')).toBe(0);
  await broker.raw.deleteQueue(fleet.names.queue('default'));
  await eventually(async () => {
    expect(await show(worker, 'warren_consumer_cancels_total{queue="default"}')).toBe(1);
    expect(await show(worker, 'warren_consumer_registered{queue="default"}')).toBe(1);
  });
});

test('a worker that dies is counted once by whichever producer finds it, with what it ran by type', async () => {
  const [id = ''] = await fleet.submit({ input: { ms: 2_000 } });
  await eventually(async () => expect(await fleet.task(id)).toMatchObject({ state: 'running' }));
  await fleet.worker(0).kill();
  const producers = fleet.all('producer');
  await eventually(async () => expect(sumOf(await shown(producers, 'warren_workers_lost_total'))).toBe(1));
  await eventually(async () => {
    const lost = await shown(producers, 'warren_attempts_total{task_type="fault.step",outcome="lost"}');
    expect(sumOf(lost)).toBe(1);
    expect(sumOf(await shown(producers, 'warren_reaped_attempts_total'))).toBe(1);
  });
  await eventually(async () => expect(await shown(producers, 'warren_workers_alive{queue="default"}')).toEqual([0]));
});

test('a delivery of a type that a worker does not have is counted as that; the task waits for one that has it', async () => {
  const other = await fleet.start('worker', {}, ['talkative']).ready();
  await eventually(async () =>
    expect(await show(other, 'warren_claims_total{answer="unknown_type"}')).toBeGreaterThanOrEqual(1),
  );
  await fleet.start('worker').ready();
  await other.terminate();
  await fleet.makeDue();
  await fleet.ended();
});
