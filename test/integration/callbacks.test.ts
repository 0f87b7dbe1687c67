/** Who asked to be told how a task ended is told, through real processes, whichever of them dies in between. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { call } from '../../scripts/call.ts';
import { openReceiver } from '../support/alerts.ts';
import type { Receiver } from '../support/alerts.ts';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { count, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet, FleetOptions } from '../support/fleet.ts';

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

let broker: TestBroker;
let receiver: Receiver;
/** Serves every test in which nobody is killed. */
let fleet: Fleet;
beforeAll(async () => {
  broker = await openBroker();
  receiver = await openReceiver();
  fleet = await open({ deadLetterHandlers: 1 });
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await receiver[Symbol.asyncDispose]();
  await broker[Symbol.asyncDispose]();
});
beforeEach(() => {
  receiver.seen.length = 0;
  receiver.answer = (response) => response.end();
});

const open = async (options: FleetOptions = {}): Promise<Fleet> =>
  await openFleet({
    ...options,
    env: {
      WARREN_WEBHOOKS_SECRETS: SECRET,
      WARREN_WEBHOOKS_ALLOW_HOSTS: new URL(receiver.url).host,
      WARREN_CALLBACKS_INTERVAL_MS: '50',
      WARREN_CALLBACKS_TAKEN_MS: '1500',
      ...options.env,
    },
  });

interface Told {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** What the receiver was told, each checked against its signature. */
function told(): readonly (Told & { readonly id: string })[] {
  return receiver.seen.map(({ body, headers }) => {
    const verified = new Webhook(SECRET).verify(body, headers as Record<string, string>) as Told;
    return { ...verified, id: String(headers['webhook-id']) };
  });
}

/** Callbacks that stand for ends to come, of these tasks or of all. */
const waiting = async (of: Fleet, ids?: readonly string[]): Promise<number> =>
  await count(of.database.database, 'callbacks', ids === undefined ? 'true' : `task_id = any('{${ids.join(',')}}')`);

test('a webhook is told of each end once, signed, with the result or the error', async () => {
  const webhook = { url: `${receiver.url}/hook` };
  const [good = '', bad = '', plain = '', chosen = ''] = await fleet.submit(
    { webhook },
    { webhook, input: { failures: 9 }, maxAttempts: 1 },
    {},
    { webhook: { ...webhook, states: ['dead'] } },
  );
  await eventually(async () => {
    expect(receiver.seen.length).toBeGreaterThanOrEqual(2);
    expect(await waiting(fleet, [good, bad, plain, chosen])).toBe(1); // that of the dead task, for its end after a replay
  });
  await fleet.ended();
  expect(told().map(({ type, data }) => [type, data['id']])).toEqual(
    expect.arrayContaining([
      ['warren.task.succeeded', good],
      ['warren.task.dead', bad],
    ]),
  );
  expect(told()).toHaveLength(2);
  expect(told().find(({ data }) => data['id'] === good)?.data).toMatchObject({ result: { attempt: 1 }, attempt: 1 });
  expect(told().find(({ data }) => data['id'] === bad)?.data).toMatchObject({
    reason: 'attempts_exhausted',
    error: { type: 'Error', message: 'fails in attempt 1' },
    deadLetterId: expect.any(String),
  });
  expect([plain, chosen].filter((id) => receiver.seen.some(({ body }) => body.includes(id)))).toEqual([]);
});

test('a dead task that is replayed tells of its next end too', async () => {
  const [id = ''] = await fleet.submit({
    webhook: { url: receiver.url },
    input: { failures: 1 },
    maxAttempts: 1,
  });
  await eventually(async () => {
    expect(told().map(({ type }) => type)).toEqual(['warren.task.dead']);
    const [row] = await rows<{ is_waiting: boolean }>(
      fleet.database.database,
      'select is_waiting from callbacks where task_id = $1',
      id,
    );
    expect(row).toEqual({ is_waiting: false });
  });
  const letterId = told()[0]?.data['deadLetterId'] as string;
  const { url } = fleet.deadLetterHandler();
  expect((await call(url, 'POST', `/v1/dead-letters/${letterId}/replay`, {})).status).toBeLessThan(300);
  await eventually(async () => {
    expect(told().map(({ type }) => type)).toEqual(['warren.task.dead', 'warren.task.succeeded']);
    expect(await waiting(fleet, [id])).toBe(0);
  });
  expect(told()[1]?.data).toMatchObject({ id, attempt: 2, result: { attempt: 2 } });
});

test('a receiver that fails is called again, and told the same under the same id', async () => {
  let fails = 1;
  receiver.answer = (response) => {
    response.statusCode = fails > 0 ? 503 : 200;
    fails -= 1;
    response.end();
  };
  const { accepted } = await fleet.books();
  await fleet.submit({ webhook: { url: receiver.url } });
  await eventually(async () => {
    await fleet.makeDue();
    expect(receiver.seen).toHaveLength(2);
  });
  const [first, second] = told();
  expect(second).toEqual(first);
  // the task, and the one that calls
  expect(await fleet.ended()).toMatchObject({ accepted: accepted + 2 });
});

test('a webhook on a private address is refused at the door, and so is a task that would sign anything', async () => {
  const { url } = fleet.producer();
  const before = await fleet.books();
  const refused = async (body: object): Promise<unknown[]> => {
    const answer = await call(url, 'POST', '/v1/tasks', body);
    return [answer.status, answer.body['type'], answer.body['field']];
  };
  const task = fleet.body({});
  for (const address of ['https://169.254.169.254/latest', 'https://10.1.2.3/', 'http://example.com/', 'nonsense']) {
    expect(await refused({ ...task, webhook: { url: address } })).toEqual([400, 'field-invalid', 'webhook.url']);
  }
  expect(await refused({ ...task, webhook: { url: receiver.url, states: ['running'] } })).toEqual([
    400,
    'field-invalid',
    'webhook.states[0]',
  ]);
  const input = { url: receiver.url, id: 'x', body: '{}' };
  expect(await refused({ type: 'warren.webhook', input })).toEqual([400, 'field-invalid', 'type']);
  expect(await fleet.books()).toEqual(before);
});

test('a publisher is told of the end in its own queue, with its correlation id', async () => {
  const replyTo = await broker.queue();
  const publish = (input: object, more: object): void => {
    const body = Buffer.from(JSON.stringify({ journal: fleet.journal, ...input }));
    broker.raw.publish(fleet.names.tasks, 'fault.step', body, { persistent: true, ...more });
  };
  const headers = { 'warren-reply-outcome': true, 'warren-max-attempts': 1 };
  publish({}, { replyTo, correlationId: 'order 17', headers });
  publish({ failures: 9 }, { replyTo, correlationId: 'order 18', headers });
  publish({}, { replyTo, correlationId: 'order 19' }); // is told of its acceptance alone
  const got: { correlationId: unknown; messageId: unknown; body: Record<string, Record<string, unknown>> }[] = [];
  await eventually(async () => {
    const message = await broker.raw.get(replyTo, { noAck: true });
    if (message !== false) {
      const { correlationId, messageId } = message.properties as { correlationId: unknown; messageId: unknown };
      got.push({ correlationId, messageId, body: JSON.parse(message.content.toString()) as never });
    }
    expect(got).toHaveLength(5);
  });
  const outcomes = got.filter(({ body }) => body['outcome'] !== undefined);
  expect(outcomes).toHaveLength(2);
  expect(outcomes.map(({ correlationId, body }) => [correlationId, body['outcome']?.['state']])).toEqual(
    expect.arrayContaining([
      ['order 17', 'succeeded'],
      ['order 18', 'dead'],
    ]),
  );
  const good = outcomes.find(({ correlationId }) => correlationId === 'order 17');
  expect(good?.body['outcome']).toMatchObject({ result: { attempt: 1 }, type: 'fault.step' });
  expect(good?.messageId).toBe(`${String(good?.body['outcome']?.['id'])}-1-succeeded`);
});

test('direct reply-to works as long as the publisher stays', async () => {
  const channel = broker.raw; // replies go to the channel that published
  const got: string[] = [];
  await channel.consume('amq.rabbitmq.reply-to', (message) => got.push(message?.content.toString() ?? ''), {
    noAck: true,
  });
  const body = Buffer.from(JSON.stringify({ journal: fleet.journal, ms: 200 }));
  const headers = { 'warren-reply-outcome': true };
  channel.publish(fleet.names.tasks, 'fault.step', body, { replyTo: 'amq.rabbitmq.reply-to', headers });
  await eventually(() => expect(got.join()).toContain('"state":"succeeded"'));
  await eventually(async () =>
    expect(await count(fleet.database.database, 'callbacks', `callback->>'replyTo' like 'amq.%'`)).toBe(0),
  );
  expect(fleet.producer().logged('reply unroutable')).toEqual([]);
});

test('a reply that leads nowhere is logged and counted, and not tried again', async () => {
  const body = Buffer.from(JSON.stringify({ journal: fleet.journal }));
  const headers = { 'warren-reply-outcome': true };
  broker.raw.publish(fleet.names.tasks, 'fault.step', body, { replyTo: 'nobody.listens', headers });
  await fleet.next('reply unroutable', { replyTo: 'nobody.listens' });
  await eventually(async () =>
    expect(await count(fleet.database.database, 'callbacks', `callback->>'replyTo' = 'nobody.listens'`)).toBe(0),
  );
  const metrics = await (await fetch(`${fleet.producer().url}/metrics`)).text();
  expect(metrics).toMatch(/warren_callbacks_total\{kind="reply",answer="unroutable"\} 1/);
  expect(fleet.producer().logged('reply unroutable')).toHaveLength(1);
});

test('a message that wants to be told of the end and names no queue is refused', async () => {
  const body = Buffer.from(JSON.stringify({ journal: fleet.journal }));
  broker.raw.publish(fleet.names.tasks, 'fault.step', body, { headers: { 'warren-reply-outcome': true } });
  await eventually(async () => {
    const [letter] = await rows<{ error_message: string }>(
      fleet.database.database,
      `select error_message from dead_letters where kind = 'refused'`,
    );
    expect(letter?.error_message).toMatch(/reply_to/);
  });
});

test('a publisher over AMQP has a webhook called, and none inside where that is not allowed', async () => {
  const body = Buffer.from(JSON.stringify({ journal: fleet.journal }));
  const publish = (messageId: string, headers: Record<string, unknown>): void =>
    void broker.raw.publish(fleet.names.tasks, 'fault.step', body, { messageId, headers });
  publish('hooked', { 'warren-webhook-url': receiver.url, 'warren-webhook-states': ['succeeded'] });
  publish('inside', { 'warren-webhook-url': 'https://127.0.0.1:1/' });
  await eventually(async () => {
    const [task] = await rows<{ id: string }>(
      fleet.database.database,
      `select id from tasks where external_id = 'hooked'`,
    );
    expect(receiver.seen.some(({ body: sent }) => sent.includes(task?.id ?? 'none'))).toBe(true);
    expect(
      await count(fleet.database.database, 'dead_letters', `kind = 'refused' and error_message like '%private%'`),
    ).toBe(1);
  });
});

test('producers and workers killed all the time cost no end its webhook, and tell none twice', async () => {
  await using many = await open({ producers: 2, workers: 2 });
  const webhook = { url: receiver.url };
  const ids: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    ids.push(...(await many.submit(...Array.from({ length: 25 }, () => ({ webhook, input: { ms: 200 } })))));
    const seen = receiver.seen.length;
    await eventually(() => expect(receiver.seen.length).toBeGreaterThan(seen));
    await many.producer(round).kill();
    await many.worker(round).kill();
    await Promise.all([many.start('producer').ready(), many.start('worker').ready()]);
  }
  await eventually(
    async () => {
      await many.makeDue();
      expect(new Set(told().map(({ data }) => data['id']))).toEqual(new Set(ids));
      expect(await waiting(many)).toBe(0);
    },
    { withinMs: 40_000 },
  );
  const books = await many.ended();
  // one task that calls per end, whoever died; a worker that was killed within a call called again under the same id
  expect(books).toMatchObject({ accepted: 2 * ids.length, succeeded: 2 * ids.length });
  expect(new Set(told().map(({ id }) => id)).size).toBe(ids.length);
}, 900_000);
