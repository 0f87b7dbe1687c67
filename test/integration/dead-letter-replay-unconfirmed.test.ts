/** A replay that RabbitMQ did not confirm: what is certainly not sent is open again, what may be sent is finished later. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Replayer } from '../../services/dead-letter-handler/replayer.ts';
import type { Outgoing } from '../../shared/amqp/publisher.ts';
import { namesOf } from '../../shared/amqp/topology.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { openFaulty, once, partDeps, rows } from '../support/core.ts';
import type { FaultyDatabase } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

let db: TestDatabase;
let faulty: FaultyDatabase & AsyncDisposable;
let replayer: Replayer;
let published: Outgoing[];
let failure: WarrenError | undefined;
beforeAll(async () => {
  db = await openDatabase();
  faulty = await openFaulty(db.database);
});
afterAll(async () => {
  await faulty[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
});
beforeEach(async () => {
  await rows(db.database, 'delete from dead_letters');
  published = [];
  failure = undefined;
  faulty.fault = (): undefined => undefined;
  replayer = new Replayer(
    {
      ...partDeps,
      db: faulty,
      names: namesOf('test'),
      metrics: createMetrics({ service: 'test', version: '', withProcess: false }),
      invite: async () => await Promise.resolve(true),
      hasExchange: async () => await Promise.resolve(true),
      publish: async (message) => {
        if (failure !== undefined) throw failure;
        published.push(message);
        await Promise.resolve();
      },
    },
    { destinations: [], unfinishedAfterMs: 0 },
  );
});

async function aRefusedLetter(): Promise<string> {
  const id = newId() as string;
  await rows(
    db.database,
    `insert into dead_letters (id, kind, reason, recorded_at, exchange, routing_key, body, properties, headers)
     values ($1, 'refused', 'unknown_type', now(), 'test.tasks', 'mail.send', '{}', '{}', '{}')`,
    id,
  );
  return id;
}

const stateOf = async (id: string): Promise<string | undefined> =>
  (await rows<{ state: string }>(db.database, 'select state from dead_letters where id = $1', id))[0]?.state;
const replay = async (letterId: string): ReturnType<Replayer['replay']> =>
  await replayer.replay({ letterId, actor: { name: 'ann', role: 'operator' } });

async function finishLater(id: string, state: string): Promise<void> {
  const loop = replayer.loop();
  await loop.start();
  await eventually(async () => expect(await stateOf(id)).toBe(state));
  await loop.stop(0);
}

describe('a message that may have gone', () => {
  test.each([
    ['is late in its confirm', new WarrenError('confirm-late', {})],
    ['was cut off', new WarrenError('broker-unavailable', { wasSent: true })],
  ])('and %s is published again, with the same message_id, until it is confirmed', async (_what, thrown) => {
    const id = await aRefusedLetter();
    failure = thrown;
    expect(await replay(id)).toEqual({ id, kind: 'refused', state: 'replaying', replayId: expect.any(String) });
    await expect(replay(id)).rejects.toMatchObject({ code: 'dead-letter-closed', facts: { state: 'replaying' } });
    // Not sent this time; but it may have gone before, so nobody may press again.
    failure = new WarrenError('broker-unavailable', { reason: 'not connected' });
    const loop = replayer.loop();
    await loop.start();
    await eventually(() => expect(faulty.sent.filter((name) => name === 'take_unfinished').length).toBeGreaterThan(0));
    await loop.stop(0);
    expect(await stateOf(id)).toBe('replaying');
    failure = undefined;
    await finishLater(id, 'replayed');
    expect(published[0]).toMatchObject({ exchange: 'test.tasks', routingKey: 'mail.send' });
    expect(new Set(published.map(({ properties }) => properties.messageId))).toEqual(new Set([id]));
  });

  test('and whose letter could not be closed, Postgres being away, is closed later', async () => {
    const id = await aRefusedLetter();
    faulty.fault = once('finish_replays', 'refuse');
    expect(await replay(id)).toMatchObject({ state: 'replaying' });
    await finishLater(id, 'replayed');
    expect(new Set(published.map(({ properties }) => properties.messageId))).toEqual(new Set([id]));
  });
});

test.each([
  ['broker-unavailable', { reason: 'not connected' }],
  ['publish-buffer-full', {}],
  ['publish-refused', {}],
  ['headers-too-large', {}],
] as const)('a message that certainly did not go (%s) leaves the letter open', async (code, facts) => {
  const id = await aRefusedLetter();
  failure = new WarrenError(code, facts);
  await expect(replay(id)).rejects.toMatchObject({ code });
  expect(await stateOf(id)).toBe('open');
  failure = undefined;
  expect(await replay(id)).toMatchObject({ state: 'replayed' });
  expect(published).toHaveLength(1);
});

test('a letter of which only a part was kept is not replayed', async () => {
  const id = await aRefusedLetter();
  await rows(db.database, `update dead_letters set reason = 'unstorable' where id = $1`, id);
  await expect(replay(id)).rejects.toMatchObject({ code: 'field-invalid' });
  expect(await stateOf(id)).toBe('open');
});
