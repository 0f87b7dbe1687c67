/**
 * Where a task stands in a trace, as W3C Trace Context says it, without any SDK: a publisher's `traceparent` and `tracestate` are kept
 * with its task as one text, and given on to whatever the task leads to.
 */

/** A `traceparent`, and where there is a `tracestate` a space and that. At most 568 characters of ASCII. */
export type TraceText = string;

const TRACEPARENT_LENGTH = 55;
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);
/** Characters that everybody must give on; a longer one is dropped as a whole. */
const LONGEST_TRACESTATE = 512;
const MOST_MEMBERS = 32;
const MEMBER = /^[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]$/;

/**
 * Reads the two headers, of whatever types they came in. `undefined` where there is no valid `traceparent`: as W3C says, such a one is
 * ignored and never a reason to refuse. A `tracestate` that is not valid is left out. Never throws.
 */
export function readTrace(traceparent: unknown, tracestate?: unknown): TraceText | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const text = traceparent.trim();
  const parts = TRACEPARENT.exec(text);
  if (parts === null) return undefined;
  const [, version, traceId, spanId, flags] = parts;
  if (version === 'ff' || traceId === NO_TRACE || spanId === NO_SPAN) return undefined;
  // Versions that are yet to come may have more behind it, never less.
  if (text.length > TRACEPARENT_LENGTH && (version === '00' || text[TRACEPARENT_LENGTH] !== '-')) return undefined;
  const kept = `00-${traceId}-${spanId}-${flags}`;
  const state = readTracestate(tracestate);
  return state === undefined ? kept : `${kept} ${state}`;
}

function readTracestate(value: unknown): string | undefined {
  if (typeof value !== 'string' || value.length > 2 * LONGEST_TRACESTATE) return undefined;
  const members = value
    .split(',')
    .map((member) => member.trim())
    .filter((member) => member !== '');
  if (members.length === 0 || members.length > MOST_MEMBERS) return undefined;
  if (!members.every((member) => MEMBER.test(member))) return undefined;
  const state = members.join(',');
  return state.length > LONGEST_TRACESTATE ? undefined : state;
}

/** Its trace: 32 hexadecimal digits. */
export function traceIdOf(trace: TraceText): string {
  return trace.slice(3, 35);
}

/** Its span: 16 hexadecimal digits. */
export function spanIdOf(trace: TraceText): string {
  return trace.slice(36, 52);
}

/** The `traceparent` alone. */
export function traceparentOf(trace: TraceText): string {
  return trace.slice(0, TRACEPARENT_LENGTH);
}

/** The `tracestate`, where there is one. */
export function tracestateOf(trace: TraceText): string | undefined {
  return trace.length > TRACEPARENT_LENGTH ? trace.slice(TRACEPARENT_LENGTH + 1) : undefined;
}

/** The headers by which it goes on: of HTTP and of AMQP alike. None for `undefined`. */
export function traceHeaders(trace: TraceText | null | undefined): Readonly<Record<string, string>> {
  if (trace === null || trace === undefined) return {};
  const tracestate = tracestateOf(trace);
  return { traceparent: traceparentOf(trace), ...(tracestate === undefined ? {} : { tracestate }) };
}
