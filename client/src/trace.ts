/** The trace that a call belongs to: given by the caller, or else the span that is active where the program uses OpenTelemetry. */
import type * as OpenTelemetry from '@opentelemetry/api';

/** Where a call stands in a trace. */
export interface TraceOptions {
  /**
   * The span that hands in, as W3C Trace Context writes it (`00-…-…-01`). Default: the active span of OpenTelemetry, where
   * `@opentelemetry/api` is installed and has one.
   */
  readonly traceparent?: string;
  /** What goes along with a given `traceparent`. */
  readonly tracestate?: string;
}

/** Loaded once; `undefined` where it is not installed, so that nobody traces. */
let loading: Promise<typeof OpenTelemetry | undefined> | undefined;

/** Gives what is to be sent along, nothing where there is no trace. Never rejects. */
export async function traceOf({ traceparent, tracestate }: TraceOptions): Promise<TraceOptions> {
  if (traceparent !== undefined) return { traceparent, ...(tracestate === undefined ? {} : { tracestate }) };
  loading ??= import('@opentelemetry/api').catch(() => undefined);
  const api = await loading;
  const active = api?.trace.getSpanContext(api.context.active());
  if (api === undefined || active === undefined || !api.isSpanContextValid(active)) return {};
  const { traceId, spanId, traceFlags, traceState } = active;
  const state = traceState?.serialize() ?? '';
  return {
    traceparent: `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`,
    ...(state === '' ? {} : { tracestate: state }),
  };
}
