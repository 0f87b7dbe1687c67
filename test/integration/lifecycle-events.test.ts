/** Lifecycle events, as a queue of somebody else gets them. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const ON = { WARREN_EVENTS_ENABLED: 'true' };

let broker: TestBroker;
let fleet: Fleet;
beforeAll(async () => {
  broker = await openBroker();
  fleet = await openFleet({ env: ON, through: ['broker'] });
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await broker[Symbol.asyncDispose]();
});

interface Heard {
  readonly routingKey: string;
  readonly contentType: unknown;
  readonly event: {
    readonly specversion: string;
    readonly id: string;
    readonly type: string;
    readonly subject: string;
    readonly time: string;
    readonly data: { readonly state: string; readonly attempt: number };
  };
}

/** Binds a queue to the events of a fleet and gathers what comes. */
async function listen(pattern: string): Promise<readonly Heard[]> {
  const queue = await broker.queue();
  await broker.raw.bindQueue(queue, fleet.names.events, pattern);
  const heard: Heard[] = [];
  await broker.raw.consume(
    queue,
    (message) => {
      if (message === null) return;
      const { fields, properties, content } = message;
      const event = JSON.parse(content.toString()) as Heard['event'];
      const contentType: unknown = properties.contentType;
      heard.push({ routingKey: fields.routingKey, contentType, event });
    },
    { noAck: true },
  );
  return heard;
}

/** The states of a task in the order of their events, each once. */
function statesOf(heard: readonly Heard[], taskId: string): string[] {
  const own = new Map(heard.filter(({ event }) => event.subject === taskId).map(({ event }) => [event.id, event]));
  return [...own.values()]
    .toSorted((a, b) => (a.time < b.time ? -1 : 1))
    .map(({ data }) => `${data.state} ${data.attempt}`);
}

const triggers = async (): Promise<number> =>
  (await rows(fleet.database.database, `select 1 from pg_trigger where tgname like 'tasks_note_%'`)).length;

test('each transition is published as a CloudEvent, to whoever binds by type and state', async () => {
  await eventually(async () => expect(await triggers()).toBe(2));
  const all = await listen('#');
  const ends = await listen('fault.step.succeeded');
  const [id = ''] = await fleet.submit({ input: { failures: 1 } });
  await fleet.ended();
  await eventually(() =>
    expect(statesOf(all, id)).toEqual([
      'pending 0',
      'running 1',
      'retrying 1',
      'pending 1',
      'running 2',
      'succeeded 2',
    ]),
  );
  await eventually(() => expect(ends).toHaveLength(1));
  expect(ends[0]).toMatchObject({
    routingKey: 'fault.step.succeeded',
    contentType: 'application/cloudevents+json; charset=UTF-8',
    event: {
      specversion: '1.0',
      source: `/warren/${fleet.prefix}`,
      type: 'warren.task.succeeded',
      subject: id,
      data: { id, type: 'fault.step', queue: 'default', state: 'succeeded', attempt: 2 },
    },
  });
  await eventually(async () =>
    expect(await rows(fleet.database.database, 'select 1 from lifecycle_events')).toEqual([]),
  );
});

test('a producer killed meanwhile costs no event', async () => {
  const all = await listen('#');
  fleet.brokerProxy.pause(); // nothing is confirmed from here on
  const ids = await fleet.submit(...Array.from({ length: 50 }, () => ({})));
  await fleet.producer().kill();
  fleet.brokerProxy.resume();
  await fleet.start('producer').ready();
  await fleet.makeDue();
  await fleet.ended();
  await eventually(
    () => {
      for (const id of ids) expect(statesOf(all, id)).toEqual(['pending 0', 'running 1', 'succeeded 1']);
    },
    { withinMs: 40_000 },
  );
}, 270_000);

test('nothing is written down unless it is switched on, and no longer once it is switched off', async () => {
  const off = fleet.start('producer', { WARREN_EVENTS_ENABLED: 'false' });
  await off.ready();
  await eventually(async () => expect(await triggers()).toBe(0));
  const [id = ''] = await fleet.submit({});
  await fleet.ended();
  expect((await fleet.task(id)).state).toBe('succeeded');
  expect(await rows(fleet.database.database, 'select 1 from lifecycle_events')).toEqual([]);
});
