/** What takes traces by OTLP over HTTP, as a collector does: it decodes what services send, in either encoding. */
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import protobuf from 'protobufjs';
import { eventually } from './eventually.ts';

/** A span as it came. */
export interface SeenSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Absent for the first of a trace. */
  readonly parentSpanId: string | undefined;
  readonly kind: number;
  readonly service: string;
  readonly isError: boolean;
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly tookMs: number;
}

/** Kinds of spans, as OTLP counts them. */
export const KIND = { client: 3, producer: 4, consumer: 5 } as const;

/** The part of opentelemetry-proto v1 that a trace has. */
const PROTO = `
syntax = "proto3";
message Request { repeated ResourceSpans resource_spans = 1; }
message ResourceSpans { Resource resource = 1; repeated ScopeSpans scope_spans = 2; }
message Resource { repeated KeyValue attributes = 1; }
message ScopeSpans { repeated Span spans = 2; }
message KeyValue { string key = 1; AnyValue value = 2; }
message AnyValue { oneof value { string string_value = 1; bool bool_value = 2; int64 int_value = 3; double double_value = 4; } }
message Status { int32 code = 3; }
message Link { bytes trace_id = 1; bytes span_id = 2; }
message Span {
  bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; int32 kind = 6;
  fixed64 start_time_unix_nano = 7; fixed64 end_time_unix_nano = 8; repeated KeyValue attributes = 9;
  repeated Link links = 13; Status status = 15;
}`;
const REQUEST = protobuf.parse(PROTO).root.lookupType('Request');

interface Value {
  readonly stringValue?: string;
  readonly boolValue?: boolean;
  readonly intValue?: string | number;
  readonly doubleValue?: number;
}
interface KeyValue {
  readonly key: string;
  readonly value: Value;
}
interface SentSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind?: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes?: readonly KeyValue[];
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly status?: { readonly code?: number };
}
interface Sent {
  readonly resourceSpans?: readonly {
    readonly resource?: { readonly attributes?: readonly KeyValue[] };
    readonly scopeSpans?: readonly { readonly spans?: readonly SentSpan[] }[];
  }[];
}

/** How it answers: `hangs` never, `breaks` with 503. */
export type Mood = 'well' | 'hangs' | 'breaks';

/** Opens one on a port of its own. */
export async function openOtlpEndpoint(mood: Mood = 'well'): Promise<OtlpEndpoint> {
  const spans: SeenSpan[] = [];
  const contentTypes = new Set<string>();
  let asked = 0;
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    asked += 1;
    const body = await buffer(request);
    if (mood === 'hangs') return;
    if (mood === 'breaks') return void response.writeHead(503).end();
    const contentType = request.headers['content-type'] ?? '';
    contentTypes.add(contentType);
    const bytes = request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body;
    const isJson = contentType === 'application/json';
    const sent = isJson ? (JSON.parse(bytes.toString('utf8')) as Sent) : decode(bytes);
    if (request.url === '/v1/traces') spans.push(...spansOf(sent, isJson ? (id) => id : fromBase64));
    response.writeHead(200, { 'content-type': contentType }).end(isJson ? '{}' : undefined);
  };
  const server = createServer((request, response) => {
    take(request, response).catch((thrown: unknown) => response.writeHead(400).end(String(thrown)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return new OtlpEndpoint(server, spans, contentTypes, () => asked);
}

/** An endpoint. */
export class OtlpEndpoint implements AsyncDisposable {
  readonly spans: readonly SeenSpan[];
  readonly contentTypes: ReadonlySet<string>;
  readonly #server: Server;
  readonly #asked: () => number;

  constructor(server: Server, spans: readonly SeenSpan[], contentTypes: ReadonlySet<string>, asked: () => number) {
    this.#server = server;
    this.spans = spans;
    this.contentTypes = contentTypes;
    this.#asked = asked;
  }

  /** For `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Requests so far. */
  get asked(): number {
    return this.#asked();
  }

  /** Waits until `isEnough` of the spans of a trace, and gives them in the order of their names. */
  async trace(traceId: string, isEnough: (spans: readonly SeenSpan[]) => boolean): Promise<readonly SeenSpan[]> {
    return await eventually(() => {
      const found = this.spans.filter((span) => span.traceId === traceId);
      if (!isEnough(found)) throw new Error(`spans of ${traceId} so far: ${JSON.stringify(found, undefined, 1)}`);
      return found;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

function decode(bytes: Buffer): Sent {
  return REQUEST.toObject(REQUEST.decode(bytes), { longs: String, bytes: String }) as Sent;
}

const fromBase64 = (id: string): string => Buffer.from(id, 'base64').toString('hex');

function spansOf({ resourceSpans = [] }: Sent, hex: (id: string) => string): SeenSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans = [] }) => {
    const service = String(membersOf(resource?.attributes)['service.name']);
    return scopeSpans.flatMap(({ spans = [] }) =>
      spans.map((span) => ({
        name: span.name,
        traceId: hex(span.traceId),
        spanId: hex(span.spanId),
        parentSpanId: (span.parentSpanId ?? '') === '' ? undefined : hex(span.parentSpanId ?? ''),
        kind: span.kind ?? 0,
        service,
        isError: span.status?.code === 2,
        attributes: membersOf(span.attributes),
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ traceId: hex(traceId), spanId: hex(spanId) })),
        tookMs: Number((BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)) / 1_000_000n),
      })),
    );
  });
}

function membersOf(list: readonly KeyValue[] = []): Record<string, string | number | boolean> {
  return Object.fromEntries(
    list.map(({ key, value: { stringValue, boolValue, intValue, doubleValue } }) => [
      key,
      stringValue ?? boolValue ?? doubleValue ?? Number(intValue),
    ]),
  );
}
