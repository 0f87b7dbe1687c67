/** One trace from the caller to the end of its task, as an endpoint of OpenTelemetry gets it from a real fleet. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { KIND, openOtlpEndpoint } from '../support/otlp-endpoint.ts';
import type { OtlpEndpoint, SeenSpan } from '../support/otlp-endpoint.ts';

const QUICK = { OTEL_BSP_SCHEDULE_DELAY: '100' };
let serial = 0;

/** What a caller sends, of a trace of its own. */
function caller(): { readonly traceId: string; readonly spanId: string; readonly headers: Record<string, string> } {
  const traceId = `4bf92f3577b34da6a3ce929d0e0e${(serial += 1).toString(16).padStart(4, '0')}`;
  const spanId = '00f067aa0ba902b7';
  return { traceId, spanId, headers: { traceparent: `00-${traceId}-${spanId}-01`, tracestate: 'vendor=opaque' } };
}

const named = (spans: readonly SeenSpan[], name: string): readonly SeenSpan[] =>
  spans.filter((span) => span.name === name).toSorted((a, b) => attemptOf(a) - attemptOf(b));
const attemptOf = ({ attributes }: SeenSpan): number => Number(attributes['warren.task.attempt'] ?? 0);
const count =
  (name: string, least: number) =>
  (spans: readonly SeenSpan[]): boolean =>
    named(spans, name).length >= least;

let endpoint: OtlpEndpoint;
let fleet: Fleet;
let broker: TestBroker;
beforeAll(async () => {
  endpoint = await openOtlpEndpoint();
  broker = await openBroker();
  fleet = await openFleet({
    deadLetterHandlers: 1,
    tasks: ['traced'],
    env: { ...QUICK, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint.url, WARREN_EVENTS_ENABLED: 'true' },
  });
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await broker[Symbol.asyncDispose]();
  await endpoint[Symbol.asyncDispose]();
});

async function submit(task: object, headers: Record<string, string>): Promise<string> {
  const body = { type: 'trace.stand', input: {}, ...task };
  const answer = await call(fleet.producer().url, 'POST', '/v1/tasks', body, undefined, headers);
  expect(answer).toMatchObject({ status: 202 });
  return String(answer.body['id']);
}

async function taskIn(id: string, state: string): Promise<Readonly<Record<string, unknown>>> {
  return await eventually(async () => {
    const { body } = await call(fleet.producer().url, 'GET', `/v1/tasks/${id}`);
    expect(body).toMatchObject({ state });
    return body;
  });
}

describe('a task that is submitted in a trace over HTTP', () => {
  test('is published, received, run and settled in it; the spans of its handler are children of its run', async () => {
    const { traceId, spanId, headers } = caller();
    const id = await submit({ businessKey: 'order 7' }, headers);
    const task = await taskIn(id, 'succeeded');
    const spans = await endpoint.trace(traceId, count('settle default', 1));
    const [published] = named(spans, 'publish default');
    const [received] = named(spans, 'receive default');
    const [run] = named(spans, 'process default');
    const [settled] = named(spans, 'settle default');
    const [own] = named(spans, 'work of the handler');
    expect(spans).toHaveLength(5);

    const about = { 'messaging.system': 'warren', 'messaging.destination.name': 'default', 'messaging.message.id': id };
    const ofAttempt = { ...about, 'warren.task.type': 'trace.stand', 'warren.task.attempt': 1 };
    expect(published).toMatchObject({
      parentSpanId: spanId,
      kind: KIND.producer,
      service: 'warren-producer',
      attributes: { ...about, 'messaging.operation.name': 'publish', 'messaging.operation.type': 'send' },
    });
    expect(received).toMatchObject({
      parentSpanId: published?.spanId,
      kind: KIND.client,
      service: 'warren-worker',
      attributes: { ...ofAttempt, 'messaging.operation.type': 'receive' },
    });
    expect(run).toMatchObject({
      parentSpanId: published?.spanId,
      kind: KIND.consumer,
      attributes: { ...ofAttempt, 'messaging.operation.type': 'process', 'warren.outcome': 'succeeded' },
      links: [],
    });
    expect(settled).toMatchObject({
      parentSpanId: run?.spanId,
      kind: KIND.client,
      attributes: { ...ofAttempt, 'messaging.operation.type': 'settle', 'warren.task.state': 'succeeded' },
    });
    expect(own).toMatchObject({ parentSpanId: run?.spanId, service: 'warren-worker' });
    expect(task).toMatchObject({
      traceId,
      result: {
        traceparent: `00-${traceId}-${run?.spanId}-01`,
        tracestate: 'vendor=opaque',
        activeSpan: run?.spanId,
        ownSpan: own?.spanId,
      },
    });
    const facts = { taskId: id, taskType: 'trace.stand', attempt: 1, traceId, businessKey: 'order 7' };
    expect(fleet.worker(0).logged('handler stands', facts)).toHaveLength(1);
  });

  test('stays in it over a retry, its death and its replay: each attempt links to the one before', async () => {
    const { traceId, headers } = caller();
    const id = await submit({ input: { fails: 2 } }, headers);
    await eventually(async () => {
      await fleet.makeDue();
      expect(await fleet.task(id)).toMatchObject({ state: 'dead' });
    });
    const [letter] = (await fleet.deadLetters()).filter(({ task_id: taskId }) => taskId === id);
    const { url } = fleet.deadLetterHandler();
    expect(await call(url, 'POST', '/v1/replays', { ids: [letter?.id], reason: 'mended' })).toMatchObject({
      status: 201,
    });
    await taskIn(id, 'succeeded');
    const spans = await endpoint.trace(traceId, count('settle default', 3));
    const [published] = named(spans, 'publish default');
    const runs = named(spans, 'process default');
    expect(runs.map(attemptOf)).toEqual([1, 2, 3]);
    expect(runs.map(({ isError }) => isError)).toEqual([true, true, false]);
    expect(runs[0]?.attributes).toMatchObject({ 'error.type': 'Error' });
    expect(runs.map(({ parentSpanId }) => parentSpanId)).toEqual(Array(3).fill(published?.spanId));
    expect(runs.map(({ links }) => links)).toEqual([
      [],
      [{ traceId, spanId: runs[0]?.spanId }],
      [{ traceId, spanId: runs[1]?.spanId }],
    ]);
    const states = named(spans, 'settle default').map(({ attributes }) => attributes['warren.task.state']);
    expect(states).toEqual(['retrying', 'dead', 'succeeded']);
    const facts = { taskId: id, taskType: 'trace.stand', traceId };
    expect(fleet.worker(0).logged('attempt ended', { ...facts, attempt: 1 })).toHaveLength(1);
    expect(fleet.worker(0).logged('task dead', { ...facts, attempt: 2 })).toHaveLength(1);
  });

  test('stands in it in its thread as well', async () => {
    const { traceId, headers } = caller();
    const id = await submit({ type: 'trace.stand-in-thread' }, headers);
    const { result } = await taskIn(id, 'succeeded');
    const [run] = named(await endpoint.trace(traceId, count('settle default', 1)), 'process default');
    expect(result).toMatchObject({ traceparent: `00-${traceId}-${run?.spanId}-01`, tracestate: 'vendor=opaque' });
    expect(fleet.worker(0).logged('handler stands', { taskId: id, traceId })).toHaveLength(1);
  });

  test('each task of a batch is published in it', async () => {
    const { traceId, spanId, headers } = caller();
    const tasks = [1, 2, 3].map(() => ({ type: 'trace.stand', input: {} }));
    const answer = await call(fleet.producer().url, 'POST', '/v1/tasks/batch', { tasks }, undefined, headers);
    expect(answer).toMatchObject({ status: 200, body: { accepted: 3 } });
    const spans = await endpoint.trace(traceId, count('settle default', 3));
    const published = named(spans, 'publish default');
    expect(published.map(({ parentSpanId }) => parentSpanId)).toEqual([spanId, spanId, spanId]);
    const parents = new Set(named(spans, 'process default').map(({ parentSpanId }) => parentSpanId));
    expect(parents).toEqual(new Set(published.map((span) => span.spanId)));
  });
});

test('a message that is published in a trace over AMQP is run in it, and its events say so', async () => {
  const { traceId, spanId, headers } = caller();
  const queue = await broker.queue();
  await broker.raw.bindQueue(queue, fleet.names.events, 'trace.stand.succeeded');
  broker.raw.publish(fleet.names.tasks, 'trace.stand', Buffer.from('{}'), { headers });
  const spans = await endpoint.trace(traceId, count('settle default', 1));
  const [published] = named(spans, 'publish default');
  expect(published).toMatchObject({ parentSpanId: spanId, service: 'warren-producer' });
  expect(named(spans, 'process default')).toMatchObject([{ parentSpanId: published?.spanId }]);
  await eventually(async () => {
    const event = await broker.raw.get(queue, { noAck: true });
    expect(event === false ? undefined : event.properties.headers).toEqual({
      traceparent: `00-${traceId}-${published?.spanId}-01`,
      tracestate: 'vendor=opaque',
    });
  });
});

test('a flow of two steps, one of them a flow, is one trace below the start of the flow', async () => {
  const { traceId, spanId, headers } = caller();
  const type = 'trace.stand';
  const inner = { name: 'inner', steps: { deep: { type, input: {} } } };
  const flow = { name: 'outer', steps: { first: { type, input: {} }, second: { flow: inner, after: ['first'] } } };
  const answer = await call(fleet.producer().url, 'POST', '/v1/flows', flow, undefined, headers);
  expect(answer).toMatchObject({ status: 202 });
  const flowId = String(answer.body['id']);
  const spans = await endpoint.trace(traceId, count('settle default', 2));
  const [started] = named(spans, 'publish outer');
  expect(started).toMatchObject({ parentSpanId: spanId, attributes: { 'warren.flow.id': flowId } });
  const runs = named(spans, 'process default');
  expect(runs.map(({ parentSpanId }) => parentSpanId)).toEqual([started?.spanId, started?.spanId]);
  expect(runs.map(({ attributes }) => attributes['warren.flow.id'])).toContain(flowId);
  expect(fleet.worker(0).logged('handler stands', { traceId, flowId })).toHaveLength(1);
});

test('what came in no trace begins one, and a traceparent that is not valid is as none', async () => {
  const ids = await Promise.all([submit({}, {}), submit({}, { traceparent: '00-nonsense', tracestate: 'a=1' })]);
  const traces = await Promise.all(ids.map(async (id) => String((await taskIn(id, 'succeeded'))['traceId'])));
  expect(new Set(traces).size).toBe(2);
  for (const traceId of traces) {
    const spans = await endpoint.trace(traceId, count('settle default', 1));
    expect(named(spans, 'publish default')).toMatchObject([{ parentSpanId: undefined }]);
  }
});

test('spans come as protobuf, and those of a process that is asked to stop before it has sent them all the same', async () => {
  const { traceId, headers } = caller();
  const slow = { OTEL_BSP_SCHEDULE_DELAY: '600000' };
  const late = await fleet.start('producer', slow).ready();
  const body = { type: 'trace.stand', input: {}, delayMs: 3_600_000 };
  await call(late.url, 'POST', '/v1/tasks', body, undefined, headers);
  expect(await late.terminate()).toMatchObject({ code: 0 });
  expect(named(await endpoint.trace(traceId, count('publish default', 1)), 'publish default')).toHaveLength(1);
  expect(endpoint.contentTypes).toEqual(new Set(['application/x-protobuf']));
});
