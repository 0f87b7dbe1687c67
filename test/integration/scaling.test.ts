/** What an autoscaler is told of a real fleet on a real broker, and that a fleet which shrinks loses nothing. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const figures = async (fleet: Fleet, query = '?slo=30s&max=50'): Promise<Record<string, unknown>> => {
  const answer = await call(fleet.producer().url, 'GET', `/v1/scaling/default${query}`);
  expect(answer.status).toBe(200);
  return answer.body;
};

test('what runs and was acked when it was claimed counts, and so does what a worker holds unstarted', async () => {
  // Its timeout is beyond half of this: acked at the claim, and in no count of RabbitMQ's from then on.
  // And a quarter of it is how long a worker may hold what it cannot start.
  const env = { WARREN_AMQP_ACK_TIMEOUT_MS: '110000', WARREN_WORKER_LOCAL_WAIT_MS: '60000' };
  await using fleet = await openFleet({ workers: 1, queues: 'default:2', env });
  await fleet.submit(...Array.from({ length: 9 }, () => ({ input: { ms: 55_000 } })));
  await eventually(async () => {
    const { running, workers, slotsPerWorker, waiting, ready, held, slotsWanted, workersWanted } = await figures(fleet);
    expect({ running, workers, slotsPerWorker, waiting }).toEqual({
      running: 2,
      workers: 1,
      slotsPerWorker: 2,
      waiting: 7,
    });
    expect(Number(ready) + Number(held)).toBe(7);
    expect(Number(held)).toBeGreaterThan(0);
    // Nobody has measured how long they take: a slot for each.
    expect({ slotsWanted, workersWanted }).toEqual({ slotsWanted: 9, workersWanted: 5 });
  });
  const order = { all: true, reason: 'they have been counted' };
  expect((await call(fleet.producer().url, 'POST', '/v1/tasks/cancel', order)).status).toBe(200);
  await fleet.submit({ input: { ms: 4_500 } });
  expect(await fleet.ended()).toMatchObject({ accepted: 10, succeeded: 1 });
  await eventually(async () => expect((await figures(fleet))['meanRunSeconds']).toBeGreaterThan(4));
  await eventually(async () => expect(await figures(fleet)).toMatchObject({ running: 0, waiting: 0 }));
});

test('the first task of a queue that no worker has ever served wants a worker', async () => {
  await using fleet = await openFleet({ workers: 1 });
  await fleet.worker(0).terminate(); // it has announced the type; now the fleet is scaled to none
  await eventually(async () => expect(await figures(fleet)).toMatchObject({ workers: 0, workersWanted: 0 }));
  await fleet.submit({ input: {} });
  await eventually(async () => {
    expect(await figures(fleet)).toMatchObject({ workersWanted: 1, waiting: 1, slotsPerWorker: 10 });
  });
  await fleet.start('worker').ready();
  expect(await fleet.ended()).toMatchObject({ succeeded: 1 });
});

test('a fleet that shrinks in the middle of long tasks restarts none that ends in time, and fails none that does not', async () => {
  await using fleet = await openFleet({
    workers: 4,
    queues: 'default:1',
    env: { WARREN_WORKER_DRAIN_MS: '4000' },
  });
  // Half of them end within the grace time, half do not.
  const ids = await fleet.submit(...[2_500, 2_500, 9_000, 9_000].map((ms) => ({ input: { ms } })));
  await eventually(() => expect(fleet.entries().filter(({ event }) => event === 'started')).toHaveLength(4));
  const leaving = [fleet.worker(0).terminate(), fleet.worker(2).terminate()];
  await eventually(async () =>
    expect(await figures(fleet)).toMatchObject({ draining: 2, workers: 2, ending: 2, running: 2 }),
  );
  expect((await Promise.all(leaving)).map(({ code }) => code)).toEqual([0, 0]);
  expect(await fleet.ended(60_000)).toMatchObject({ accepted: 4, succeeded: 4, dead: 0 });
  for (const id of ids) expect(await fleet.task(id)).toMatchObject({ failures: 0, lost_attempts: 0 });
  const outcomes = new Set((await fleet.attempts()).map(({ outcome }) => outcome));
  outcomes.delete('interrupted'); // handed back at the end of the grace time, and run again
  expect([...outcomes]).toEqual([]);
  expect(await fleet.deadLetters()).toEqual([]);
});
