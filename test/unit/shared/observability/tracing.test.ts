import { afterAll, beforeEach, expect, test } from '@jest/globals';
import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { WarrenError } from '../../../../shared/errors/warren-error.ts';
import { spanIdOf, traceIdOf } from '../../../../shared/observability/trace-context.ts';
import { openTracing, runInTrace } from '../../../../shared/observability/tracing.ts';
import type { Tracing } from '../../../../shared/observability/tracing.ts';

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 vendor=opaque';
const ABOUT = { taskType: 'mail.send', queue: 'mail', taskId: 'one' };

const withoutSdk = openTracing('1');
const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const tracing = openTracing('1') as Tracing;

beforeEach(() => exporter.reset());
afterAll(async () => {
  await provider.shutdown();
  trace.disable();
  context.disable();
});

test('without an SDK there are no spans, and what runs in a trace runs', () => {
  expect(withoutSdk).toBeUndefined();
  expect(runInTrace(undefined, () => 7)).toBe(7);
  expect(exporter.getFinishedSpans()).toEqual([]); // nor does the look for an SDK leave one
});

test('a publish is a child of what it is given, and goes on with its tracestate', () => {
  const span = tracing.publish(ABOUT, PARENT);
  span.end({ 'warren.acceptance': 'accepted' });
  const [made] = exporter.getFinishedSpans();
  expect(made).toMatchObject({
    name: 'publish mail',
    kind: SpanKind.PRODUCER,
    attributes: {
      'messaging.system': 'warren',
      'messaging.operation.name': 'publish',
      'messaging.operation.type': 'send',
      'messaging.destination.name': 'mail',
      'messaging.message.id': 'one',
      'warren.task.type': 'mail.send',
      'warren.acceptance': 'accepted',
    },
    parentSpanContext: { spanId: spanIdOf(PARENT), isRemote: true },
  });
  expect(traceIdOf(span.trace)).toBe(traceIdOf(PARENT));
  expect(span.trace).toBe(`00-${traceIdOf(PARENT)}-${made?.spanContext().spanId}-01 vendor=opaque`);
});

test('the span that is active is stronger than what came along', () => {
  trace.getTracer('test').startActiveSpan('request', (request) => {
    tracing.publish(ABOUT, PARENT).end();
    request.end();
  });
  const [made, request] = exporter.getFinishedSpans();
  expect(made?.parentSpanContext?.spanId).toBe(request?.spanContext().spanId);
});

test('receiving has lasted since the delivery; a run links to the attempt before it, and spans made in it are its children', () => {
  tracing.receive({ ...ABOUT, attempt: 2, flowId: 'flow' }, PARENT, 1_500);
  const run = tracing.process({ ...ABOUT, attempt: 2 }, PARENT, '00f067aa0ba902b7');
  const inner = runInTrace(run.trace, () => trace.getTracer('handler').startSpan('inner'));
  inner.end();
  run.end();
  const [received, , ran] = exporter.getFinishedSpans();
  expect(received).toMatchObject({
    name: 'receive mail',
    kind: SpanKind.CLIENT,
    attributes: { 'warren.flow.id': 'flow' },
  });
  const [seconds = 0, nanoseconds = 0] = received?.duration ?? [];
  expect(seconds + nanoseconds / 1e9).toBeCloseTo(1.5, 1);
  expect(ran).toMatchObject({
    name: 'process mail',
    kind: SpanKind.CONSUMER,
    links: [{ context: { traceId: traceIdOf(PARENT), spanId: '00f067aa0ba902b7' } }],
  });
  expect(exporter.getFinishedSpans()[1]?.parentSpanContext?.spanId).toBe(spanIdOf(run.trace));
});

test('what fails says how, by its code, and without secrets', () => {
  tracing.settle(ABOUT, PARENT).fail('fenced', 'no longer ours');
  tracing.settle(ABOUT, PARENT).threw(new WarrenError('database-unavailable', {}));
  tracing.settle(ABOUT, PARENT).threw(new TypeError('postgres://a:secret@b is away'));
  const spans = exporter.getFinishedSpans();
  expect(spans.map(({ attributes }) => attributes['error.type'])).toEqual([
    'fenced',
    'database-unavailable',
    'TypeError',
  ]);
  expect(spans.map(({ status }) => status.code)).toEqual(Array(3).fill(SpanStatusCode.ERROR));
  expect(spans[2]?.status.message).toBe('postgres://***@b is away');
});

test('a trace that its beginner does not sample is not sampled here, and goes on as such', () => {
  const span = tracing.publish(ABOUT, PARENT.replace('-01 ', '-00 '));
  span.end();
  expect(exporter.getFinishedSpans()).toEqual([]);
  expect(span.trace).toMatch(/-00 vendor=opaque$/);
  expect(traceIdOf(span.trace)).toBe(traceIdOf(PARENT));
});
