/**
 * The spans of Warren, by OpenTelemetry's conventions for messaging. The only file of the services that knows its API; without an SDK
 * behind that nobody makes spans, and contexts go on as they came (`trace-context.ts`).
 */
import { context, createTraceState, isSpanContextValid, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import type { Attributes, Context, Link, Span, SpanContext } from '@opentelemetry/api';
import { codeOf, toError } from '../errors/to-error.ts';
import { redactText } from './redact.ts';
import { spanIdOf, traceIdOf, traceparentOf, tracestateOf } from './trace-context.ts';
import type { TraceText } from './trace-context.ts';

/** What a span is about. */
export interface TracedTask {
  /** Absent for a flow. */
  readonly taskType?: string;
  /** Where it waits; of a flow its name. */
  readonly queue: string;
  /** Absent before there is one. */
  readonly taskId?: string;
  readonly attempt?: number;
  readonly flowId?: string | undefined;
}

/** A span of which nothing runs inside. */
export interface OpenSpan {
  /** What goes on from here. */
  readonly trace: TraceText;
  /** It went well; `more` is what there is to say of it. */
  end(more?: Attributes): void;
  /** It did not: `type` is an error's code or type, `message` is shown with it. */
  fail(type: string, message?: string): void;
  /** It threw that. */
  threw(thrown: unknown): void;
}

/** Makes spans. */
export interface Tracing {
  /** Something is handed in: `publish`. Its parent is the span that is active, else `parent`, else it begins a trace. */
  publish(about: TracedTask, parent: TraceText | undefined): OpenSpan;
  /** A worker takes a task: from its delivery `sinceMs` ago to now. Ended at once. */
  receive(about: TracedTask, parent: TraceText | undefined, sinceMs: number): TraceText;
  /** A handler runs. `after`: the span id of the attempt before it, in the same trace. */
  process(about: TracedTask, parent: TraceText, after: string | undefined): OpenSpan;
  /** An attempt is settled. */
  settle(about: TracedTask, parent: TraceText): OpenSpan;
}

/** Name of what makes the spans. */
const SCOPE = 'warren';
/** Of the conventions' lists none is this: a task is accepted by Postgres, and RabbitMQ carries invitations alone. */
const SYSTEM = 'warren';

/**
 * Makes spans where an SDK is registered in this process, by Warren or by whoever started it; `undefined` where none is. Asked once, as
 * a service is made.
 */
export function openTracing(version: string): Tracing | undefined {
  const tracer = trace.getTracer(SCOPE, version);
  // Without an SDK a span has no id. One that is not ended is exported nowhere.
  if (!isSpanContextValid(tracer.startSpan('probe', { root: true }).spanContext())) return undefined;

  const begin = (
    operation: 'publish' | 'receive' | 'process' | 'settle',
    kind: SpanKind,
    about: TracedTask,
    within: Context,
    more: { readonly startTime?: number; readonly links?: Link[] } = {},
  ): Span =>
    tracer.startSpan(
      `${operation} ${about.queue}`,
      { kind, attributes: attributesOf(operation, about), ...more },
      within,
    );

  return {
    publish: (about, parent) => {
      const active = context.active();
      const within = trace.getSpan(active) === undefined ? contextOf(parent) : active;
      return open(begin('publish', SpanKind.PRODUCER, about, within));
    },
    receive: (about, parent, sinceMs) => {
      const startTime = performance.timeOrigin + performance.now() - sinceMs;
      const span = begin('receive', SpanKind.CLIENT, about, contextOf(parent), { startTime });
      span.end();
      return textOf(span.spanContext());
    },
    process: (about, parent, after) => {
      const links =
        after === undefined ? [] : [{ context: { ...spanContextOf(parent), spanId: after, isRemote: true } }];
      return open(begin('process', SpanKind.CONSUMER, about, contextOf(parent), { links }));
    },
    settle: (about, parent) => open(begin('settle', SpanKind.CLIENT, about, contextOf(parent))),
  };
}

/** Runs `fn` with this context active, so that spans made in it are children. Without a context manager it is called, and that is all. */
export function runInTrace<T>(within: TraceText | undefined, fn: () => T): T {
  return within === undefined ? fn() : context.with(contextOf(within), fn);
}

function attributesOf(operation: string, { taskType, queue, taskId, attempt, flowId }: TracedTask): Attributes {
  return {
    'messaging.system': SYSTEM,
    'messaging.operation.name': operation,
    'messaging.operation.type': operation === 'publish' ? 'send' : operation,
    'messaging.destination.name': queue,
    ...(taskType === undefined ? {} : { 'warren.task.type': taskType }),
    ...(taskId === undefined ? {} : { 'messaging.message.id': taskId }),
    ...(attempt === undefined ? {} : { 'warren.task.attempt': attempt }),
    ...(flowId === undefined ? {} : { 'messaging.message.conversation_id': flowId, 'warren.flow.id': flowId }),
  };
}

function open(span: Span): OpenSpan {
  const fail = (type: string, message?: string): void => {
    span.setAttribute('error.type', type);
    span.setStatus({ code: SpanStatusCode.ERROR, ...(message === undefined ? {} : { message: redactText(message) }) });
    span.end();
  };
  return {
    trace: textOf(span.spanContext()),
    end: (more) => {
      if (more !== undefined) span.setAttributes(more);
      span.end();
    },
    fail,
    threw: (thrown) => {
      const { name, message } = toError(thrown);
      fail(codeOf(thrown) ?? name, message);
    },
  };
}

function contextOf(text: TraceText | undefined): Context {
  const root = trace.deleteSpan(context.active());
  return text === undefined ? root : trace.setSpanContext(root, spanContextOf(text));
}

function spanContextOf(text: TraceText): SpanContext {
  const state = tracestateOf(text);
  return {
    traceId: traceIdOf(text),
    spanId: spanIdOf(text),
    traceFlags: Number.parseInt(traceparentOf(text).slice(-2), 16),
    isRemote: true,
    ...(state === undefined ? {} : { traceState: createTraceState(state) }),
  };
}

function textOf({ traceId, spanId, traceFlags, traceState }: SpanContext): TraceText {
  const traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
  const state = traceState?.serialize() ?? '';
  return state === '' ? traceparent : `${traceparent} ${state}`;
}
