/** Without OpenTelemetry in a service the context of a task goes on all the same, as it came: into its handler, and to whoever it tells. */
import { context, trace } from '@opentelemetry/api';
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createClient, defineFlow, enqueueIn } from '../../client/src/client.ts';
import { call } from '../../scripts/call.ts';
import { openReceiver } from '../support/alerts.ts';
import type { Receiver } from '../support/alerts.ts';
import { AMQP_URL, openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { openCallersPool } from '../support/callers-pool.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const PARENT = `00-${TRACE_ID}-b7ad6b7169203331-01`;
const SENT = { traceparent: PARENT, tracestate: 'a=1,b=2' };
const TYPE = 'trace.stand';

let fleet: Fleet;
let receiver: Receiver;
let broker: TestBroker;
beforeAll(async () => {
  broker = await openBroker();
  receiver = await openReceiver();
  fleet = await openFleet({
    tasks: ['traced'],
    env: {
      WARREN_WEBHOOKS_SECRETS: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
      WARREN_WEBHOOKS_ALLOW_HOSTS: new URL(receiver.url).host,
      WARREN_CALLBACKS_INTERVAL_MS: '50',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
      OTEL_SDK_DISABLED: 'true',
    },
  });
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await receiver[Symbol.asyncDispose]();
  await broker[Symbol.asyncDispose]();
});

type Shown = Readonly<Record<string, unknown>>;

async function submit(task: object, headers: Record<string, string> = SENT): Promise<string> {
  const body = { type: TYPE, input: {}, ...task };
  const answer = await call(fleet.producer().url, 'POST', '/v1/tasks', body, undefined, headers);
  expect(answer).toMatchObject({ status: 202 });
  return String(answer.body['id']);
}

async function succeeded(id: string): Promise<Shown> {
  return await eventually(async () => {
    const { body } = await call(fleet.producer().url, 'GET', `/v1/tasks/${id}`);
    expect(body).toMatchObject({ state: 'succeeded' });
    return body;
  });
}

async function taskOf(filter: string): Promise<Shown> {
  return await eventually(async () => {
    const { body } = await call(fleet.producer().url, 'GET', `/v1/tasks?${filter}`);
    const [task] = body['items'] as readonly Shown[];
    expect(task).toMatchObject({ state: 'succeeded' });
    return task as Shown;
  });
}

test.each([TYPE, 'trace.stand-in-thread'])(
  'the handler of %s reads where it stands, and its lines say it',
  async (type) => {
    const id = await submit({ type });
    const task = await succeeded(id);
    expect(task).toMatchObject({ traceId: TRACE_ID, result: SENT });
    expect((task['result'] as Shown)['activeSpan']).toBeUndefined();
    const page = await call(fleet.producer().url, 'GET', `/v1/tasks?type=${type}`);
    expect(page.body['items']).toMatchObject([{ id, traceId: TRACE_ID }]);
    expect(fleet.worker(0).logged('handler stands', { taskId: id, traceId: TRACE_ID })).toHaveLength(1);
  },
);

test('a task in no trace, or with a traceparent that is not valid, stands in none', async () => {
  const none = await submit({}, {});
  const invalid = await submit({}, { ...SENT, traceparent: `${PARENT}0` });
  for (const id of [none, invalid]) {
    const task = await succeeded(id);
    expect(task).not.toHaveProperty('traceId');
    expect(task['result']).not.toHaveProperty('traceparent');
    expect(task['result']).not.toHaveProperty('tracestate');
  }
});

test('its webhook is called in the same trace, by a task that stands in it', async () => {
  const id = await submit({ webhook: { url: `${receiver.url}/hook` } });
  await eventually(() => expect(receiver.seen).toHaveLength(1));
  expect(receiver.seen[0]?.headers).toMatchObject(SENT);
  const { body } = await call(fleet.producer().url, 'GET', '/v1/tasks?type=warren.webhook');
  expect(body['items']).toMatchObject([{ correlationId: id, traceId: TRACE_ID }]);
});

test('the answer to a publisher over AMQP goes out in the same trace, and a header that is no text is as none', async () => {
  const replyTo = await broker.queue();
  const publish = (headers: object, correlationId: string): unknown =>
    broker.raw.publish(fleet.names.tasks, TYPE, Buffer.from('{}'), {
      headers: { ...headers, 'warren-reply-outcome': true },
      replyTo,
      correlationId,
    });
  publish(SENT, 'valid');
  publish({ traceparent: { no: 'text' }, tracestate: 7 }, 'invalid');
  const outcomes = new Map<string, unknown>();
  await eventually(async () => {
    const message = await broker.raw.get(replyTo, { noAck: true });
    if (message !== false && message.content.toString().includes('"outcome"')) {
      outcomes.set(String(message.properties.correlationId), message.properties.headers);
    }
    expect([...outcomes.keys()].toSorted((a, b) => (a < b ? -1 : 1))).toEqual(['invalid', 'valid']);
  });
  expect(outcomes.get('valid')).toEqual(SENT);
  expect(outcomes.get('invalid')).not.toHaveProperty('traceparent');
});

describe('the client', () => {
  const provider = new NodeTracerProvider();
  beforeAll(() => provider.register());
  afterAll(async () => {
    await provider.shutdown();
    trace.disable();
    context.disable();
  });
  /** Does something while a span is active; gives its trace. */
  const inSpan = async (work: () => Promise<unknown>): Promise<string> =>
    await trace.getTracer('caller').startActiveSpan('call', async (span) => {
      await work();
      span.end();
      return span.spanContext().traceId;
    });

  test('hands the active span on, or the given one, over HTTP', async () => {
    const client = createClient({ url: fleet.producer().url });
    const ids: string[] = [];
    const traceId = await inSpan(async () => {
      ids.push((await client.enqueue(TYPE, {})).id);
      for (const each of await client.enqueueMany([{ type: TYPE, input: {} }])) ids.push('id' in each ? each.id : '');
      await client.flows.start(
        defineFlow('two', (flow) => {
          const a = flow.step('a', TYPE, {});
          flow.step('b', TYPE, {}, { after: [a] });
        }),
        {},
        { tags: ['of the flow'] },
      );
    });
    for (const id of ids) expect(await succeeded(id)).toMatchObject({ traceId });
    expect(await taskOf('tag=of the flow')).toMatchObject({ traceId });
    const given = await client.enqueue(TYPE, {}, SENT);
    expect(await succeeded(given.id)).toMatchObject({ traceId: TRACE_ID, result: SENT });
    const outside = await client.enqueue(TYPE, {});
    expect(await succeeded(outside.id)).not.toHaveProperty('traceId');
  });

  test('does so over AMQP and in a transaction', async () => {
    await using amqp = createClient({ amqpUrl: AMQP_URL, prefix: fleet.prefix, appId: 'traces' });
    const pool = openCallersPool(fleet.database.url);
    const traceId = await inSpan(async () => {
      await amqp.enqueue(TYPE, {}, { businessKey: 'over amqp' });
      await enqueueIn(pool, TYPE, {}, { businessKey: 'in postgres' });
    });
    await enqueueIn(pool, TYPE, {}, { businessKey: 'given', ...SENT });
    await pool.end();
    expect(await taskOf('businessKey=over amqp')).toMatchObject({ traceId });
    expect(await taskOf('businessKey=in postgres')).toMatchObject({ traceId });
    expect(await taskOf('businessKey=given')).toMatchObject({ traceId: TRACE_ID });
  });
});

test('what is erased says no more in which trace it stood', async () => {
  const id = await submit({ businessKey: 'to be erased' });
  await succeeded(id);
  const body = { businessKey: 'to be erased', reason: 'asked for' };
  const answer = await call(fleet.producer().url, 'POST', '/v1/erasures', body);
  expect(answer.status).toBeLessThan(300);
  expect(await succeeded(id)).not.toHaveProperty('traceId');
});
