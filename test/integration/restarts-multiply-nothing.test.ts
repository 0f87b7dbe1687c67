/** Services that start again and again: what was declared and subscribed once stays once. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Consumer } from '../../shared/amqp/consumer.ts';
import { applyTopology } from '../../shared/amqp/topology-apply.ts';
import { topologyOf } from '../../shared/amqp/topology.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { partDeps } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openIntake, succeeded } from '../support/intake.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

const RESTARTS = 10;
const MESSAGES = 40;

let work: TestWork;
beforeAll(async () => {
  work = await openWork();
});
afterAll(async () => await work[Symbol.asyncDispose]());

test('after ten restarts each message lies in its queue once, and each queue has the consumers that live', async () => {
  const { names } = work.backbone;
  const { raw, queueType, prefix } = work.broker;
  const connection = await work.broker.connect();
  const topology = topologyOf({ prefix, queues: ['default'], queueType });
  for (let restart = 0; restart < RESTARTS; restart += 1) {
    await applyTopology({ ...partDeps, connection }, topology);
    const open = await openIntake(work, { handlers: { 'test.noop': () => succeeded } });
    await eventually(() => expect(open.intake.lines).toMatchObject([{ isConsuming: true }]));
    await open[Symbol.asyncDispose]();
  }
  const consumers = async (): Promise<number> => (await raw.checkQueue(names.queue('default'))).consumerCount;
  await eventually(async () => expect(await consumers()).toBe(0));

  const doors = [
    [names.tasks, 'test.noop', names.ingress],
    [names.work, 'default', names.queue('default')],
    [names.dlx, 'whatever', names.dead],
  ] as const;
  for (const [exchange, key] of doors) {
    for (let message = 0; message < MESSAGES; message += 1) raw.publish(exchange, key, Buffer.from(`${message}`));
  }
  await raw.waitForConfirms();
  for (const [, , queue] of doors) {
    await eventually(async () => expect((await raw.checkQueue(queue)).messageCount).toBe(MESSAGES));
  }

  const bodies: string[] = [];
  const consumer = new Consumer(
    {
      ...partDeps,
      connection,
      onDelivery: (delivery) => {
        bodies.push(delivery.body.toString());
        delivery.ack();
      },
      onQueueMissing: async () => await Promise.resolve(),
    },
    { queue: names.queue('default'), prefetch: 10 },
  );
  await consumer.start();
  await eventually(() => expect(bodies.length).toBeGreaterThanOrEqual(MESSAGES));
  await consumer.close(systemClock.monotonicMs() + 5_000);
  expect(bodies.toSorted()).toEqual(Array.from({ length: MESSAGES }, (_, message) => `${message}`).toSorted());
});
