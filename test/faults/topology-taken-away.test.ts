/** Queues, bindings and exchanges that somebody deletes under a running fleet, and queues that are not as they should be. */
import { expect, test } from '@jest/globals';
import { openBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

/** The line that counts invitations that the broker nacked. */
const REFUSED = /^warren_published_total\{what="invitation",answer="refused"\} [1-9]/;

test('a work queue deleted under a busy and an idle worker is declared anew and consumed, and nothing runs twice', async () => {
  await using fleet = await openFleet({ queues: 'default:2' });
  await using broker = await openBroker();
  const queue = fleet.names.queue('default');
  // Two run, and two are held for the next free slots.
  await fleet.submit(...Array.from({ length: 4 }, () => ({ input: { ms: 1_000 } })));
  await eventually(async () => {
    expect(fleet.entries()).toHaveLength(2);
    expect(await broker.raw.checkQueue(queue)).toMatchObject({ messageCount: 0 });
    expect(await fleet.books()).toMatchObject({ outbox: 0 });
  });
  await broker.raw.deleteQueue(queue);
  expect(await fleet.ended()).toMatchObject({ accepted: 4, succeeded: 4 });
  expect(await runSoon(fleet)).toBe('succeeded');

  await broker.raw.deleteQueue(queue);
  expect(await runSoon(fleet)).toBe('succeeded');
  await fleet.worker(0).ready();
  expect(await broker.raw.checkQueue(queue)).toMatchObject({ consumerCount: 1 });
  await expectSoundHistory(fleet);
});

test('a binding or an exchange that is deleted costs no invitation: it is declared anew', async () => {
  await using fleet = await openFleet();
  await using broker = await openBroker();
  await broker.raw.unbindQueue(fleet.names.queue('default'), fleet.names.work, 'default');
  expect(await runSoon(fleet)).toBe('succeeded');
  await broker.raw.deleteExchange(fleet.names.work);
  expect(await runSoon(fleet)).toBe('succeeded');
});

test('a queue that is there with other arguments is named and kept, and what it refuses is invited until it is taken', async () => {
  await using fleet = await openFleet({ workers: 0 });
  await using broker = await openBroker();
  const queue = fleet.names.queue('narrow');
  await broker.raw.assertQueue(queue, {
    durable: true,
    arguments: { 'x-queue-type': broker.queueType, 'x-max-length': 1, 'x-overflow': 'reject-publish' },
  });
  const worker = await fleet.start('worker', { WARREN_QUEUES: 'narrow:1' }).ready();
  expect(JSON.stringify(await worker.next('topology differs'))).toContain(queue);
  let count = 0;
  // A quorum queue keeps to its length only roughly, and not within one burst.
  await eventually(async () => {
    await fleet.submit(...Array.from({ length: 10 }, () => ({ queue: 'narrow', input: { ms: 50 } })));
    count += 10;
    const metrics = await (await fetch(`${fleet.producer().url}/metrics`)).text();
    expect(metrics.split('\n').filter((line) => REFUSED.test(line))).toHaveLength(1);
  });
  await eventually(
    async () => {
      await fleet.makeDue();
      expect(await fleet.books()).toMatchObject({ accepted: count, succeeded: count, outbox: 0 });
    },
    { withinMs: 30_000, everyMs: 100 },
  );
  expect(await broker.raw.checkQueue(queue)).toMatchObject({ messageCount: 0, consumerCount: 1 }); // kept as it was
  await expectSoundHistory(fleet);
});

/** Submits a task and moves time on until it has ended. */
async function runSoon(fleet: Fleet): Promise<string> {
  const [id = ''] = await fleet.submit({});
  return await eventually(
    async () => {
      await fleet.makeDue();
      const { state, finished_at: finishedAt } = await fleet.task(id);
      if (finishedAt === null) throw new Error(`task ${id} is ${state}\n${fleet.tails()}`);
      return state;
    },
    { withinMs: 30_000, everyMs: 250 },
  );
}
