/** Alerts: what is worth one, told once and not again and again, handed in whatever dies or is away. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Alerts } from '../../services/dead-letter-handler/alerts.ts';
import type { AlertsDeps, AlertsOptions } from '../../services/dead-letter-handler/alerts.ts';
import { findGrowingGroups, findNewGroups, findOldestLetter } from '../../services/dead-letter-handler/alerts.sql.ts';
import { createAlertType } from '../../services/worker/builtin/alert.ts';
import type { Outgoing } from '../../shared/amqp/publisher.ts';
import { loadConfig } from '../../shared/config/load.ts';
import { ALERT_TYPE, NO_GROUP, alertInput } from '../../shared/dead-letters/alert.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { describeTask } from '../../shared/tasks/define-task.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addGroup, addLetter } from '../support/alerts.ts';
import { AMQP_URL } from '../support/broker.ts';
import { count, partDeps, rows } from '../support/core.ts';
import { openDesk } from '../support/dead-letters.ts';
import type { DeadLetterDesk } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';

const QUIET_MS = 3_600_000;

let desk: DeadLetterDesk;
beforeAll(async () => {
  desk = await openDesk();
  await announceTypes(desk.door.db.database, [describeTask(createAlertType(systemClock))], 'test');
});
beforeEach(async () => {
  await db().query({
    text: `truncate failure_groups, failure_group_hours, dead_letters, alerts, tasks, outbox, message_ids`,
  });
});
afterAll(async () => {
  await desk.drained();
  await desk[Symbol.asyncDispose]();
});

const db = (): DeadLetterDesk['door']['db']['database'] => desk.door.db.database;

/** Alerts without a process around them, which publish to the real front door unless said otherwise. */
function openAlerts(options: Partial<AlertsOptions> = {}, deps: Partial<AlertsDeps> = {}): Alerts {
  const { config } = loadConfig({ user: 'dead-letter-handler', env: {} });
  return new Alerts(
    {
      ...partDeps,
      db: db(),
      names: desk.door.names,
      publish,
      canPublish: () => true,
      hasExchange: async () => await Promise.resolve(true),
      ...deps,
    },
    { ...config.alerts, sendTo: ['ops', 'mail'], quietMs: QUIET_MS, installation: 'test', againAfterMs: 0, ...options },
  );
}

async function publish({ exchange, routingKey, body, properties }: Outgoing): Promise<void> {
  await desk.publish(exchange, routingKey, body, { ...properties });
}

interface AlertRow {
  readonly id: string;
  readonly kind: string;
  readonly group_id: string;
  readonly handed_in_at: Date | null;
  readonly alert: Record<string, unknown>;
}

const found = async (): Promise<AlertRow[]> => await rows<AlertRow>(db(), 'select * from alerts order by found_at, id');
const kinds = async (): Promise<string[]> => (await found()).map(({ kind }) => kind);

/** The tasks that the front door accepted for the alerts that there are, once there are so many; a test before may have left it a message. */
async function tasks(
  amount: number,
): Promise<readonly { readonly channel: string; readonly alert: { readonly id: string } }[]> {
  const accepted = await eventually(async () => {
    const all = await rows<{ input: Buffer; priority: number }>(
      db(),
      `select input, priority from tasks
        where type = '${ALERT_TYPE}' and convert_from(input, 'UTF8')::jsonb #>> '{alert,id}' in (select id::text from alerts)
        order by id`,
    );
    expect(all).toHaveLength(amount);
    return all;
  });
  expect(accepted.every(({ priority }) => priority === 9)).toBe(true);
  return accepted.map(({ input }) => alertInput.parse(JSON.parse(input.toString())));
}

/** Nothing waits at the front door any more. */
async function frontDoorEmpty(): Promise<void> {
  await eventually(async () =>
    expect((await desk.door.broker.raw.checkQueue(desk.door.names.ingress)).messageCount).toBe(0),
  );
}

/** Moves what happened into the past; the groups go on failing. */
async function letPass(ms: number): Promise<void> {
  const passed = `${ms} * interval '1 ms'`;
  await db().query({ text: `update alerts set found_at = found_at - ${passed}` });
  await db().query({
    text: `update failure_groups set first_at = first_at - ${passed}, reopened_at = reopened_at - ${passed}`,
  });
}

describe('a new failure group', () => {
  test('makes one task for each channel, and is not told of again', async () => {
    const metrics = createMetrics({ service: 'test', version: '', withProcess: false });
    const alerts = openAlerts({}, { metrics });
    const id = await addGroup(db(), { type: 'report.csv', letters: 3 });
    for (let round = 0; round < 3; round += 1) {
      await alerts.find();
      await alerts.handIn();
    }
    await letPass(QUIET_MS * 2);
    await alerts.find();
    expect(await found()).toMatchObject([{ kind: 'new_group', group_id: id, handed_in_at: expect.any(Date) }]);
    const accepted = await tasks(2);
    expect(new Set(accepted.map(({ channel }) => channel))).toEqual(new Set(['ops', 'mail']));
    expect(accepted[0]?.alert).toEqual({
      id: accepted[1]?.alert.id,
      kind: 'new_group',
      installation: 'test',
      foundAt: expect.any(String),
      group: {
        id,
        kind: 'task',
        type: 'report.csv',
        rule: null,
        errorType: 'DiskFull',
        errorMessage: 'no space',
        state: 'open',
        letters: 3,
        openLetters: 3,
        firstAt: expect.any(String),
        lastAt: expect.any(String),
        queues: ['default'],
        codeVersions: [],
      },
      growth: null,
      oldest: null,
      openLetters: null,
    });
    expect(await metrics.render()).toContain('warren_alerts_total{kind="new_group"} 1');
    expect(await metrics.render()).toContain('warren_published_total{what="alert",answer="confirmed"} 2');
  });

  test('is told of again when its fault comes back, but not within the quiet time', async () => {
    const alerts = openAlerts();
    const id = await addGroup(db());
    await alerts.find();
    await db().query({ text: 'update failure_groups set reopened_at = clock_timestamp()' });
    await alerts.find();
    expect(await kinds()).toEqual(['new_group']);
    await letPass(QUIET_MS + 1_000);
    await alerts.find();
    await alerts.find();
    expect(await found()).toMatchObject([{ group_id: id }, { group_id: id }]);
  });

  test.each(['acknowledged', 'resolved', 'ignored'] as const)('that is %s is quiet', async (state) => {
    await addGroup(db(), { state, letters: 500, hours: { 0: 500 } });
    await openAlerts().find();
    expect(await found()).toEqual([]);
  });
});

describe('a growing group', () => {
  const growing = {
    type: 'report.csv',
    letters: 1_000,
    firstAt: `clock_timestamp() - interval '3 days'`,
    lastAt: 'clock_timestamp()',
  };
  const told = async (id: string): Promise<string[]> =>
    (await found())
      .filter(({ kind, group_id: group }) => kind === 'growing_group' && group === id)
      .map(({ id: each }) => each);

  test('is told of beyond the limit, with how fast it grows, and again after the quiet time', async () => {
    const alerts = openAlerts({ growthLetters: 100, growthWindowMs: 3_600_000 });
    const id = await addGroup(db(), { ...growing, hours: { 0: 400, 30: 600 } });
    await alerts.find();
    await alerts.find();
    expect(await told(id)).toHaveLength(1);
    const { alert } = (await found()).find(({ kind }) => kind === 'growing_group') ?? { alert: {} };
    expect(alert).toMatchObject({
      kind: 'growing_group',
      group: { id },
      growth: { letters: expect.any(Number), windowMs: 3_600_000 },
    });
    await letPass(QUIET_MS + 1_000);
    await alerts.find();
    expect(await told(id)).toHaveLength(2);
  });

  test('is quiet at the limit, and for letters of hours ago', async () => {
    const alerts = openAlerts({ growthLetters: 100, growthWindowMs: 3_600_000 });
    const atLimit = await addGroup(db(), { ...growing, hours: { 0: 100 } });
    const longAgo = await addGroup(db(), { ...growing, hours: { 2: 900 } });
    await alerts.find();
    expect([await told(atLimit), await told(longAgo)]).toEqual([[], []]);
  });

  test('is counted over as many hours as the window has', async () => {
    const alerts = openAlerts({ growthLetters: 100, growthWindowMs: 4 * 3_600_000 });
    const id = await addGroup(db(), { ...growing, hours: { 1: 40, 2: 40, 3: 40 } });
    await alerts.find();
    expect(await told(id)).toHaveLength(1);
  });
});

describe('the oldest letter', () => {
  const old = `clock_timestamp() - interval '2 days'`;
  const silent = { firstAt: `clock_timestamp() - interval '20 days'` };

  test('is told of once in the quiet time, though its group is acknowledged', async () => {
    const alerts = openAlerts();
    const groupId = await addGroup(db(), { ...silent, state: 'acknowledged', letters: 2 });
    const id = await addLetter(db(), { groupId, diedAt: old });
    await addLetter(db(), { groupId });
    await alerts.find();
    await alerts.find();
    expect(await found()).toMatchObject([
      {
        kind: 'oldest_letter',
        group_id: NO_GROUP,
        alert: { oldest: { id, reason: 'rejected' }, group: { id: groupId }, openLetters: 2 },
      },
    ]);
    await letPass(QUIET_MS + 1_000);
    await alerts.find();
    expect(await kinds()).toEqual(['oldest_letter', 'oldest_letter']);
  });

  test('counts also where it has no group yet', async () => {
    const id = await addLetter(db(), { diedAt: old });
    await openAlerts().find();
    expect(await found()).toMatchObject([{ kind: 'oldest_letter', alert: { oldest: { id }, group: null } }]);
  });

  test('is quiet while it is young, closed, or of a group that is ignored', async () => {
    const ignored = await addGroup(db(), { ...silent, state: 'ignored' });
    const closed = await addGroup(db(), silent);
    const young = await addGroup(db(), silent);
    await addLetter(db(), { groupId: ignored, diedAt: old });
    const id = await addLetter(db(), { groupId: closed, diedAt: old });
    await db().query({
      text: `update dead_letters set state = 'discarded', closed_at = now() where id = $1`,
      values: [id],
    });
    await addLetter(db(), { groupId: young, diedAt: `clock_timestamp() - interval '23 hours'` });
    await openAlerts().find();
    expect(await found()).toEqual([]);
  });
});

describe('no circle:', () => {
  test('what died of delivering an alert raises none', async () => {
    const groupId = await addGroup(db(), { type: ALERT_TYPE, letters: 900, hours: { 0: 900 } });
    const old = `clock_timestamp() - interval '9 days'`;
    await addLetter(db(), { groupId, type: ALERT_TYPE, diedAt: old });
    await addLetter(db(), { type: ALERT_TYPE, diedAt: old });
    await openAlerts().find();
    expect(await found()).toEqual([]);
  });

  test.each([findNewGroups, findGrowingGroups, findOldestLetter])(
    '$name leaves out the type that alerts have',
    ({ text }) => {
      expect(text).toContain(`g.type is distinct from '${ALERT_TYPE}'`);
    },
  );
});

describe('one alert, though', () => {
  test('replicas find the same at the same time', async () => {
    const replicas = Array.from({ length: 8 }, () => openAlerts());
    for (let round = 0; round < 5; round += 1) {
      await db().query({ text: 'truncate alerts, failure_groups, failure_group_hours' });
      await addGroup(db(), { letters: 900, hours: { 0: 900 } });
      await addLetter(db(), { diedAt: `clock_timestamp() - interval '2 days'` });
      await Promise.all(replicas.map(async (alerts) => await alerts.find()));
      expect((await kinds()).toSorted()).toEqual(['growing_group', 'new_group', 'oldest_letter']);
    }
  });

  test('two handlers run', async () => {
    const env = { WARREN_ALERTS_SEND_TO: 'ops', WARREN_ALERTS_INTERVAL_MS: '50' };
    await using first = await desk.handler(env);
    await using second = await desk.handler(env);
    expect(first.url).not.toBe(second.url);
    for (let group = 0; group < 10; group += 1) await addGroup(db());
    const accepted = await tasks(10);
    expect(new Set(accepted.map(({ alert }) => alert.id)).size).toBe(10);
    await eventually(async () => expect(await count(db(), 'alerts', 'handed_in_at is not null')).toBe(10));
    expect(await count(db(), 'alerts')).toBe(10);
  });

  test('the handler dies after RabbitMQ has confirmed and before that is written', async () => {
    await addGroup(db());
    let confirmed = 0;
    const dying = openAlerts(
      {},
      {
        publish: async (message) => {
          await publish(message);
          confirmed += 1;
          if (confirmed === 2) throw new WarrenError('broker-unavailable', { wasSent: true });
        },
      },
    );
    await dying.find();
    await dying.handIn();
    expect(await found()).toMatchObject([{ handed_in_at: null }]);
    await openAlerts().handIn();
    expect(await found()).toMatchObject([{ handed_in_at: expect.any(Date) }]);
    await frontDoorEmpty();
    const accepted = await tasks(2);
    expect(new Set(accepted.map(({ channel }) => channel))).toEqual(new Set(['ops', 'mail']));
  });

  test('the handler dies between taking and publishing: it is taken again, but not before its time', async () => {
    await addGroup(db());
    const dying = openAlerts(
      { againAfterMs: 60_000 },
      {
        publish: async () => {
          await Promise.resolve();
          throw new WarrenError('broker-unavailable');
        },
      },
    );
    await dying.find();
    await dying.handIn();
    await openAlerts().handIn();
    expect(await found()).toMatchObject([{ handed_in_at: null }]);
    await db().query({ text: `update alerts set retry_at = retry_at - interval '61 s'` });
    await openAlerts().handIn();
    await tasks(2);
  });
});

test('while RabbitMQ is away alerts are found and wait, and are handed in once it is back', async () => {
  await using proxy = await FaultyProxy.open(AMQP_URL);
  await using handler = await desk.handler({
    AMQP_URL: proxy.urlOf(AMQP_URL),
    WARREN_ALERTS_SEND_TO: 'ops',
    WARREN_ALERTS_INTERVAL_MS: '50',
  });
  proxy.refuse();
  proxy.cut();
  await eventually(async () => expect((await handler.get('/readyz')).status).toBe(503));
  await addGroup(db());
  await eventually(async () => expect(await kinds()).toEqual(['new_group']));
  expect(await found()).toMatchObject([{ handed_in_at: null }]);
  expect(await count(db(), 'tasks')).toBe(0);
  proxy.accept();
  await tasks(1);
  await eventually(async () => expect(await found()).toMatchObject([{ handed_in_at: expect.any(Date) }]));
});

test('an exchange that is gone does not lose an alert', async () => {
  await addGroup(db());
  const published: Outgoing[] = [];
  const alerts = openAlerts(
    {},
    {
      hasExchange: async () => await Promise.resolve(false),
      publish: async (message) => await Promise.resolve(void published.push(message)),
    },
  );
  await alerts.find();
  await alerts.handIn();
  expect(published).toEqual([]);
  expect(await found()).toMatchObject([{ handed_in_at: null }]);
  await openAlerts().handIn();
  await tasks(2);
});

test('without a channel alerts are counted, and are not sent when there is one later', async () => {
  await addGroup(db());
  const silent = openAlerts({ sendTo: [] }, { canPublish: () => false });
  await silent.find();
  await silent.handIn();
  expect(await found()).toMatchObject([{ handed_in_at: expect.any(Date) }]);
  await openAlerts().handIn();
  await frontDoorEmpty();
  await tasks(0);
});

test('more than the hour lets wait for the next, the largest group goes first', async () => {
  const alerts = openAlerts({ maxPerHour: 3 });
  const ids = Array.from({ length: 5 }, () => randomUUID());
  for (const [index, id] of ids.entries()) await addGroup(db(), { id, letters: (index + 1) * 10 });
  await alerts.find();
  await alerts.find();
  const told = (await found()).map(({ group_id: id }) => id);
  expect(new Set(told)).toEqual(new Set(ids.slice(2)));
  await letPass(QUIET_MS + 1_000);
  await alerts.find();
  expect(new Set((await found()).map(({ group_id: id }) => id))).toEqual(new Set(ids));
});

test('old alerts are forgotten, but never that a group that is still there was told of', async () => {
  const alerts = openAlerts({ sendTo: [] });
  const stays = await addGroup(db(), { letters: 900, hours: { 0: 900 } });
  const goes = await addGroup(db());
  await alerts.find();
  await alerts.handIn();
  await letPass(31 * 86_400_000);
  await db().query({ text: 'delete from failure_groups where id = $1', values: [goes] });
  const loop = openAlerts({ sendTo: [], intervalMs: 60_000, growthLetters: 100_000 }).loop();
  await loop.start();
  await eventually(async () => expect(await found()).toMatchObject([{ kind: 'new_group', group_id: stays }]));
  await loop.stop(systemClock.monotonicMs() + 2_000);
});
