/** A broker of our own that restarts, crashes, raises an alarm, and takes back what is not acked in time, under a fleet. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { PrivateBroker } from '../../deploy/local-stack/rabbitmq.ts';
import { resetStack, startStack } from '../../deploy/local-stack/stack.ts';
import type { Stack } from '../../deploy/local-stack/stack.ts';
import { openBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { IS_LONG_RUN } from '../support/long-run.ts';
import { expectSoundHistory } from '../support/soundness.ts';
import { residentMb } from '../bench/process-figures.ts';

/** An instance that no other test uses. */
const NAME = 'broker-restarts';
const START_MS = 180_000;
const RESTARTS = IS_LONG_RUN ? 25 : 2;
const TASKS_PER_RESTART = 200;
/** Tasks that start later, each with a delay of its own. */
const LATER = IS_LONG_RUN ? 50_000 : 10_000;
/** A worker that held them would have gained at least that: a kilobyte each, and more than its heap moves by itself. */
const MOST_GAINED_MB = 40;
/** Nobody listens there. */
const NOBODY = 'amqp://nobody:nothing@127.0.0.1:1';

let stack: Stack;
beforeAll(async () => {
  await resetStack({ name: NAME });
  stack = await startStack({ name: NAME, onlyPrivate: true, only: 'broker' });
}, START_MS);
afterAll(async () => await resetStack({ name: NAME }), START_MS);

const open = async (): Promise<Fleet> =>
  await openFleet({
    workers: 2,
    queues: 'default:4',
    env: { AMQP_URL: `${NOBODY},${stack.amqpUrl}`, WARREN_AMQP_CONFIRM_WITHIN_MS: '2000' },
  });

async function expectEnded(fleet: Fleet, count: number): Promise<void> {
  await eventually(
    async () => {
      await fleet.makeDue();
      expect(await fleet.books()).toMatchObject({ accepted: count, succeeded: count });
    },
    { withinMs: 60_000, everyMs: 250 },
  );
}

test(
  'a broker that restarts or crashes under load costs no task, and every worker consumes again by itself',
  async () => {
    await using fleet = await open();
    for (let restart = 1; restart <= RESTARTS; restart += 1) {
      await fleet.submit(...Array.from({ length: TASKS_PER_RESTART }, () => ({ input: { ms: 20 } })));
      const before = fleet.entries().length;
      await eventually(() => expect(fleet.entries().length).toBeGreaterThan(before + 20));
      if (restart % 2 === 0) await stack.broker.stop();
      else await stack.broker.kill();
      await stack.broker.start();
      await expectEnded(fleet, restart * TASKS_PER_RESTART);
      await Promise.all(fleet.all('worker').map(async (worker) => await worker.ready()));
    }
    await using broker = await openBroker(stack.amqpUrl);
    expect(await broker.raw.checkQueue(fleet.names.queue('default'))).toMatchObject({ consumerCount: 2 });
    await expectSoundHistory(fleet);
  },
  120_000 + RESTARTS * 60_000,
);

test('what starts later is in no queue, whatever its delay: a broker that crashes and workers that go cost it nothing', async () => {
  const broker = privateBroker();
  await using fleet = await open();
  const queuesOf = async (): Promise<readonly (readonly [string, number])[]> => {
    const lines = (await broker.ctl('list_queues', 'name', 'messages')).split('\n').map((line) => line.split('\t'));
    return lines.flatMap(([name = '', messages]) =>
      name.startsWith(fleet.prefix) ? [[name, Number(messages)] as const] : [],
    );
  };
  // A list that the broker has no time for is an empty one.
  const before = await eventually(async () => {
    const queues = await queuesOf();
    expect(queues.length).toBeGreaterThan(2);
    return queues;
  });
  const workerPid = fleet.all('worker')[0]?.pid ?? 0;
  const residentBefore = await residentMb(workerPid);
  // From an hour to a day.
  await fleet.submit(
    ...Array.from({ length: LATER }, (_, n) => ({ delayMs: 3_600_000 + ((n * 7_919) % LATER) * (82_800_000 / LATER) })),
  );
  expect((await residentMb(workerPid)) - residentBefore).toBeLessThan(MOST_GAINED_MB);
  const soon = await fleet.submit(
    ...Array.from({ length: 300 }, (_, n) => ({ delayMs: 1_000 + ((n * 37) % 300) * 10 })),
  );
  await broker.kill();
  await fleet.pass(2_000);
  await broker.start();
  await eventually(async () => expect(await fleet.books()).toMatchObject({ succeeded: soon.length }), {
    withinMs: 60_000,
    everyMs: 250,
  });
  const due = new Map((await fleet.tasks()).map(({ id, accepted_at: at }) => [id, at.getTime()]));
  const early = soon.filter((id, n) => {
    const startedMs = fleet.entries(id)[0]?.atMs ?? 0;
    return startedMs < (due.get(id) ?? 0) + 1_000 + ((n * 37) % 300) * 10 - 2; // milliseconds are cut off
  });
  expect(early).toEqual([]);

  await Promise.all(fleet.all('worker').map(async (worker) => await worker.kill()));
  await fleet.start('worker').ready();
  await fleet.run();
  expect(await fleet.books()).toMatchObject({ accepted: LATER + 301, succeeded: 301 });
  await eventually(async () => {
    const after = await queuesOf();
    expect(after.map(([name]) => name).toSorted()).toEqual(before.map(([name]) => name).toSorted());
    expect(after.reduce((sum, [, messages]) => sum + messages, 0)).toBe(0);
  });
}, 300_000);

/** The private broker, whose `rabbitmqctl` can be reached. */
function privateBroker(): PrivateBroker {
  if (stack.broker instanceof PrivateBroker) return stack.broker;
  throw new Error('this is set by rabbitmqctl, which a container hides');
}

test('while an alarm of the broker blocks publishes tasks are accepted, what runs ends, and all is invited afterwards', async () => {
  const broker = privateBroker();
  await using fleet = await open();
  const [running = ''] = await fleet.submit({ input: { ms: 2_000 } });
  await eventually(() => expect(fleet.entries(running)).toHaveLength(1));
  await broker.ctl('set_vm_memory_high_watermark', '0');
  try {
    const startMs = performance.now();
    expect(await fleet.submit(...Array.from({ length: 20 }, () => ({})))).toHaveLength(20);
    expect(performance.now() - startMs).toBeLessThan(8_000);
    const { url } = fleet.producer();
    await eventually(async () => {
      expect(await (await fetch(`${url}/metrics`)).text()).toContain('\nwarren_broker_blocked 1\n');
      const answer = await fetch(`${url}/readyz`);
      expect(answer.status).toBe(200);
      expect(await answer.json()).toMatchObject({ status: 'degraded', checks: { rabbitmq: { status: 'degraded' } } });
    });
    fleet.expectErrors('broker blocks publishes');
    expect(await fleet.submit({})).toHaveLength(1);
    await eventually(async () => expect(await fleet.task(running)).toMatchObject({ state: 'succeeded', attempt: 1 }));
    expect(await fleet.books()).toMatchObject({ accepted: 22, succeeded: 1, waiting: 21 });
  } finally {
    await broker.ctl('set_vm_memory_high_watermark', '0.4');
  }
  await expectEnded(fleet, 22);
  expect(await (await fetch(`${fleet.producer().url}/readyz`)).json()).toMatchObject({ status: 'ok' });
  await expectSoundHistory(fleet);
}, 360_000);

describe('where the broker takes back what is not acked within three seconds', () => {
  const setTimes = async (ackMs: number, lookMs: number): Promise<void> => {
    const settings = `application:set_env(rabbit, consumer_timeout, ${ackMs}), application:set_env(rabbit, channel_tick_interval, ${lookMs}).`;
    await privateBroker().ctl('eval', settings);
  };
  beforeAll(async () => await setTimes(3_000, 300));
  afterAll(async () => await setTimes(1_800_000, 60_000));

  const openFor = async (ackTimeoutMs: number): Promise<Fleet> =>
    await openFleet({
      leaseMs: 10_000,
      env: { AMQP_URL: stack.amqpUrl, WARREN_AMQP_ACK_TIMEOUT_MS: String(ackTimeoutMs) },
    });

  test('a longer task is acked at its claim, runs once, and nothing is taken back', async () => {
    await using fleet = await openFor(3_000);
    const [id = ''] = await fleet.submit({ input: { ms: 6_000 } });
    await expectEnded(fleet, 1);
    expect(fleet.entries(id).map(({ event }) => event)).toEqual(['started', 'ended']);
    expect(fleet.worker(0).logged('channel closed by the broker')).toEqual([]);
  });

  test('and Warren does not know of it, a longer task loses its channel, and runs once all the same', async () => {
    await using fleet = await openFor(1_800_000);
    const [id = ''] = await fleet.submit({ input: { ms: 6_000 } });
    await fleet.worker(0).next('channel closed by the broker');
    await expectEnded(fleet, 1);
    expect(fleet.entries(id).map(({ event }) => event)).toEqual(['started', 'ended']);
    await eventually(async () => expect(await fleet.run()).toBe('succeeded'));
  });
});
