/** Alerts all the way, from a failure group to whoever is told, with real processes that die. */
import { randomBytes } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { ALERT_TYPE } from '../../shared/dead-letters/alert.ts';
import { addGroup, openReceiver } from '../support/alerts.ts';
import type { Receiver } from '../support/alerts.ts';
import { count, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { ServiceProcess } from '../support/service-process.ts';

const GROUPS = 40;
const SECRET = `whsec_${randomBytes(32).toString('base64')}`;

const settings = (receiver: Receiver): Record<string, string> => ({
  WARREN_ALERTS_SEND_TO: 'hook',
  WARREN_ALERTS_CHANNELS: JSON.stringify([
    { name: 'hook', kind: 'standard', url: `${receiver.url}/geheim-geheim`, secret: SECRET },
  ]),
  WARREN_ALERTS_INTERVAL_MS: '50',
  WARREN_AMQP_CONFIRM_WITHIN_MS: '500',
});

test('handlers that are killed while they find and hand in lose no alert and double none', async () => {
  await using receiver = await openReceiver();
  await using fleet = await openFleet({ deadLetterHandlers: 2, env: settings(receiver) });
  const db = fleet.database.database;
  let victim = 0;
  let youngest: ServiceProcess | undefined;
  for (let group = 0; group < GROUPS; group += 1) {
    await addGroup(db, { type: `report.n${group}` });
    if (group % 10 !== 5) continue;
    // In the middle of it: some are found, not all are handed in.
    await eventually(async () => expect(await count(db, 'alerts')).toBeGreaterThan(group / 2));
    await fleet.deadLetterHandler(victim).kill();
    youngest = fleet.start('dead-letter-handler');
    victim += 1;
  }
  // A process that is told to end before it listens for that ends of the signal itself.
  await youngest?.ready();
  await eventually(() => expect(new Set(idsOf(receiver)).size).toBe(GROUPS), { withinMs: 50_000 });
  await eventually(async () => expect(await count(db, 'alerts', 'handed_in_at is null')).toBe(0), {
    withinMs: 30_000,
  });
  await fleet.ended();
  expect(await count(db, 'alerts')).toBe(GROUPS);
  expect(await count(db, 'tasks', `type = '${ALERT_TYPE}' and state = 'succeeded'`)).toBe(GROUPS);
  expect(idsOf(receiver)).toHaveLength(GROUPS);
  for (const { body, headers } of receiver.seen) {
    expect(new Webhook(SECRET).verify(body, headers as Record<string, string>)).toMatchObject({
      type: 'warren.alert.new_group',
      data: { installation: fleet.prefix },
    });
  }
});

test('an alert that nobody takes dies as a dead letter, and that raises no alert', async () => {
  await using receiver = await openReceiver();
  receiver.answer = (response, { path }) => response.writeHead(404).end(`no such hook: ${path}`);
  const rules = JSON.stringify([{ group: 'everything', filter: 'kind:task' }]);
  const env = { ...settings(receiver), WARREN_DEAD_LETTERS_GROUP_RULES: rules };
  await using fleet = await openFleet({ deadLetterHandlers: 1, env });
  const db = fleet.database.database;
  await addGroup(db, { id: '11111111-2222-4333-8444-555555555555' });
  await eventually(async () =>
    expect(await count(db, 'dead_letters', `type = '${ALERT_TYPE}' and recorded_at is not null`)).toBe(1),
  );
  const [letter] = await rows<Record<string, unknown>>(
    db,
    'select reason, error_message, error_stack from dead_letters',
  );
  expect(letter).toMatchObject({
    reason: 'non_retryable',
    error_message: 'channel hook: answered 404: no such hook: ***',
  });
  expect(JSON.stringify(letter)).not.toContain('geheim');
  await eventually(async () =>
    expect(
      await rows(db, 'select type, letters from failure_groups where id in (select group_id from dead_letters)'),
    ).toEqual([{ type: ALERT_TYPE, letters: '1' }]),
  );
  // The next alert shows that there have been rounds since.
  receiver.answer = (response) => response.end();
  await addGroup(db, { id: '66666666-7777-4888-8999-aaaaaaaaaaaa' });
  await eventually(async () =>
    expect(await count(db, 'tasks', `type = '${ALERT_TYPE}' and state = 'succeeded'`)).toBe(1),
  );
  expect(await rows(db, 'select kind, group_id from alerts order by found_at')).toEqual([
    { kind: 'new_group', group_id: '11111111-2222-4333-8444-555555555555' },
    { kind: 'new_group', group_id: '66666666-7777-4888-8999-aaaaaaaaaaaa' },
  ]);
});

test('tasks that die of one fault are told of once, with what they died of', async () => {
  await using receiver = await openReceiver();
  await using fleet = await openFleet({ deadLetterHandlers: 2, env: settings(receiver) });
  await fleet.submit(...Array.from({ length: 30 }, () => ({ input: { failures: 1 }, maxAttempts: 1 })));
  await eventually(() => expect(receiver.seen).toHaveLength(1));
  await fleet.ended();
  const [group] = await rows<{ id: string }>(fleet.database.database, 'select id from failure_groups');
  expect(JSON.parse(receiver.seen[0]?.body ?? '')).toMatchObject({
    type: 'warren.alert.new_group',
    data: { group: { id: group?.id, kind: 'task', type: 'fault.step', queues: ['default'] } },
  });
  expect(await count(fleet.database.database, 'alerts')).toBe(1);
});

function idsOf({ seen }: Receiver): readonly unknown[] {
  return seen.map(({ headers }) => headers['webhook-id']);
}
