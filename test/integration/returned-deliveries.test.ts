/** Messages that come back to their queue again and again: none is lost for it, and none makes a hot loop. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import amqp from 'amqplib';
import { AMQP_URL } from '../support/broker.ts';
import { openFaulty, readTask } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { inviteTask, openIntake, succeeded } from '../support/intake.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
beforeAll(async () => {
  work = await openWork();
});
afterAll(async () => await work[Symbol.asyncDispose]());

/** More than the twenty after which RabbitMQ 4 drops a message by itself. */
const RETURNS = 30;

test.each(['a work queue', 'the front-door queue', 'the dead-letter queue'])(
  'a message in %s outlives thirty consumers that die with it',
  async (which) => {
    const { names } = work.backbone;
    const queue =
      { 'a work queue': names.queue('default'), 'the front-door queue': names.ingress }[which] ?? names.dead;
    const { raw } = work.broker;
    raw.sendToQueue(queue, Buffer.from('stays'), { persistent: true });
    await raw.waitForConfirms();
    const model = await amqp.connect(AMQP_URL);
    try {
      for (let death = 0; death < RETURNS; death += 1) {
        const channel = await model.createChannel();
        await eventually(async () => expect(await channel.get(queue)).toMatchObject({ content: Buffer.from('stays') }));
        await channel.close(); // with its delivery unanswered
      }
      await eventually(async () =>
        expect(await raw.get(queue, { noAck: true })).toMatchObject({ content: Buffer.from('stays') }),
      );
    } finally {
      await model.close();
    }
  },
  30_000,
);

test('a delivery that a worker can neither run nor put off comes back at a walk', async () => {
  await using faulty = await openFaulty(work.db);
  let asked = 0;
  faulty.fault = (name) => {
    if (name !== 'defer_unknown') return undefined;
    asked += 1;
    return 'refuse';
  };
  await using _open = await openIntake({ ...work, db: faulty }, { handlers: { 'test.noop': () => succeeded } });
  const taskId = await inviteTask(work, { type: 'test.unknown' });
  await eventually(() => expect(asked).toBeGreaterThan(0));
  const before = asked;
  const until = performance.now() + 1_500;
  await eventually(() => expect(performance.now()).toBeGreaterThan(until));
  expect(asked - before).toBeLessThan(10);
  expect((await readTask(work.db, taskId)).state).toBe('pending');
  faulty.fault = () => undefined;
  await eventually(async () => expect((await readTask(work.db, taskId)).state).toBe('scheduled'));
});
