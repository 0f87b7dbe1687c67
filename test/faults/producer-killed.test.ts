/** A producer that dies between what it has promised and what it still has to do. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

let broker: TestBroker;
beforeAll(async () => {
  broker = await openBroker();
});
afterAll(async () => await broker[Symbol.asyncDispose]());

/** Publishes as any service would, and waits for the broker's confirms. */
async function publish(fleet: Fleet, messageIds: readonly (string | undefined)[]): Promise<void> {
  for (const messageId of messageIds) {
    const body = Buffer.from(JSON.stringify({ journal: fleet.journal }));
    const id = messageId === undefined ? {} : { messageId, appId: 'shop' };
    const properties = { contentType: 'application/json', persistent: true, ...id };
    broker.raw.publish(fleet.names.tasks, 'fault.step', body, properties);
  }
  await broker.raw.waitForConfirms();
}

test('invariant 1: what a producer accepted over HTTP and had not yet published runs all the same', async () => {
  await using fleet = await openFleet({ through: ['broker'] });
  fleet.brokerProxy.pause();
  const ids = await fleet.submit(...Array.from({ length: 100 }, () => ({})));
  expect(ids).toHaveLength(100);
  expect(await fleet.books()).toMatchObject({ accepted: 100, waiting: 100 });
  await fleet.producer().kill();
  fleet.brokerProxy.cut(); // what was on its way is gone
  fleet.brokerProxy.resume();

  await fleet.start('producer').ready();
  await fleet.makeDue();
  expect(await fleet.ended()).toMatchObject({ accepted: 100, succeeded: 100 });
  await expectSoundHistory(fleet);
});

test('producers killed while they drain the front door accept every message with an id exactly once', async () => {
  await using fleet = await openFleet({ env: { WARREN_PRODUCER_INGRESS_PREFETCH: '50' } });
  const total = 1_500;
  await publish(
    fleet,
    Array.from({ length: total }, (_, index) => `order-${index}`),
  );
  for (let round = 0; round < 3; round += 1) {
    const next = fleet.start('producer');
    const before = (await fleet.books()).accepted;
    await eventually(async () => expect((await fleet.books()).accepted).toBeGreaterThan(before));
    await fleet.producer(round).kill();
    await next.ready();
  }
  await fleet.makeDue();
  await eventually(async () => expect(await fleet.books()).toMatchObject({ accepted: total }), { withinMs: 20_000 });
  await fleet.makeDue();
  expect(await fleet.ended()).toMatchObject({ accepted: total, succeeded: total });
  await expectSoundHistory(fleet);
});

test('a producer killed between commit and ack accepts a message without an id again, and one with an id not', async () => {
  await using fleet = await openFleet({ through: ['broker'] });
  await eventually(async () => {
    const { consumerCount } = await broker.raw.checkQueue(fleet.names.ingress);
    expect(consumerCount).toBe(1);
  });
  fleet.brokerProxy.drop('to-server'); // neither acks nor invitations reach the broker any more
  await publish(fleet, [undefined, 'order-1']);
  await eventually(async () => expect(await fleet.books()).toMatchObject({ accepted: 2 }));
  await fleet.producer().kill();
  fleet.brokerProxy.cut();
  fleet.brokerProxy.resume();

  await fleet.start('producer').ready();
  await eventually(async () => expect(await fleet.books()).toMatchObject({ accepted: 3 }));
  await fleet.makeDue();
  expect(await fleet.ended()).toMatchObject({ accepted: 3, succeeded: 3, dead: 0 });
  const { messageCount } = await broker.raw.checkQueue(fleet.names.ingress);
  expect(messageCount).toBe(0);
});
