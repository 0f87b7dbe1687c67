/** How deep the work queues are, as a fleet is scaled by it. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createQueueDepths } from '../../services/producer/queue-depths.ts';
import type { Loop } from '../../shared/lifecycle/loop.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { partDeps } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
let reading: Loop;
beforeAll(async () => {
  work = await openWork({ queues: ['default', 'bulk'] });
  const { consuming, names } = work.backbone;
  reading = createQueueDepths(
    {
      ...partDeps,
      db: work.db,
      metrics: work.metrics,
      connection: consuming,
      names,
      queues: () => ['default', 'bulk', 'none'],
      onRead: () => undefined,
    },
    { intervalMs: 20 },
  );
  await reading.start();
});
afterAll(async () => {
  await reading.stop(systemClock.monotonicMs() + 2_000);
  await work[Symbol.asyncDispose]();
});

const depth = async (queue: string, metric = 'warren_queue_ready_messages'): Promise<number> => {
  const [, found] = new RegExp(`^${metric}\\{queue="${queue}"\\} (\\d+)$`, 'm').exec(await work.metrics.render()) ?? [];
  return Number(found);
};

test('what waits in a work queue is counted by queue, until it is taken; a queue that is missing is empty', async () => {
  const { broker, backbone } = work;
  for (const body of ['a', 'b', 'c']) broker.raw.sendToQueue(backbone.names.queue('bulk'), Buffer.from(body));
  await eventually(async () => expect(await depth('bulk')).toBe(3));
  await eventually(async () => expect(await depth('none')).toBe(0));
  expect(await depth('default')).toBe(0);
  expect(await work.take('bulk')).toHaveLength(3);
  await eventually(async () => expect(await depth('bulk')).toBe(0));
});

test('what waits for its turn is counted beside', async () => {
  const turns = async (): Promise<number> => await depth('bulk', 'warren_queue_turns_waiting');
  await work.db.query({ text: `insert into queues (name) values ('bulk') on conflict do nothing` });
  await eventually(async () => expect(await turns()).toBe(0));
  await work.db.query({
    text: `insert into held_back (task_id, reason, scope, key, priority)
           select gen_random_uuid(), 'turn', 'bulk', 'a', 4 from generate_series(1, 7)`,
  });
  await eventually(async () => expect(await turns()).toBe(7));
  await work.db.query({ text: 'delete from held_back' });
  await eventually(async () => expect(await turns()).toBe(0));
});
