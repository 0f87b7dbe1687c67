/**
 * Checks what comes in, at both front doors alike. Pure functions: the ingress refuses with them, and the
 * dead-letter-handler calls the same ones on what was refused to say why.
 */
import { createHash } from 'node:crypto';
import { UNDECODED_HEADERS } from '../amqp/header-guard.ts';
import { headersToStored } from '../amqp/headers.ts';
import type { Headers } from '../amqp/headers.ts';
import { parseInstant, parseSubmissionHeaders } from '../amqp/message.ts';
import { readTrace } from '../observability/trace-context.ts';
import { isStorableText } from '../text/storable.ts';
import type { SubmissionValues } from '../amqp/message.ts';
import { callTo, replyOf, webhookOf } from './asked-callback.ts';
import type { CallbackRules } from './asked-callback.ts';
import { WEBHOOK_TYPE } from './callback.ts';
import { checkBySchema } from './check-by-schema.ts';
import type { SchemaFault } from './check-by-schema.ts';
import { parseExact, sliceMember } from './json.ts';
import { clashOf, uniqueOf, uniqueValuesOf } from './unique-rule.ts';
import { limitKeyOf } from './limit-key.ts';
import type { Origin, Submission, SubmissionFault } from './submission.ts';
import { submissionBody } from './submission-body.ts';
import type { SubmissionBody } from './submission-body.ts';
import type { Catalog, KnownType } from './type-catalog.ts';

/** A submission that may be accepted, or everything that is wrong with it, at least one fault. */
export type CheckedSubmission =
  | { readonly kind: 'ok'; readonly submission: Submission }
  | { readonly kind: 'refused'; readonly faults: readonly [SubmissionFault, ...SubmissionFault[]] };

/** Limits of what comes in, and of who may be told of its end. */
export interface SubmissionLimits extends CallbackRules {
  /** Bytes of a body. */
  readonly messageBytes: number;
  /** Levels that the input may nest. */
  readonly depth: number;
  /** Bytes of all AMQP headers together. */
  readonly headerBytes: number;
  /** True to refuse AMQP publishes without message_id, which could be accepted twice. */
  readonly requireMessageId: boolean;
}

/** What is looked at of an AMQP message: a `Delivery` has all of it. */
export interface IncomingMessage {
  readonly body: Buffer;
  readonly exchange: string;
  readonly routingKey: string;
  readonly properties: Readonly<Record<string, unknown>>;
  /** Without the broker's own evidence (`x-death`, …) where the message has been dead-lettered since. */
  readonly headers: Headers;
}

/** Checks the body of `POST /v1/tasks`, or one item of a batch. Never throws. */
export function checkHttpSubmission(bytes: Buffer, catalog: Catalog, limits: SubmissionLimits): CheckedSubmission {
  // The object around the input is a level of its own, so that an input may be as deep here as over AMQP.
  const exact = parseExact(bytes, { maxBytes: limits.messageBytes, maxDepth: limits.depth + 1 });
  if (exact.kind === 'fault') return refused([exact]);
  if (!isObject(exact.value)) return refused([{ code: 'body-invalid', field: 'body', reason: 'must be an object' }]);
  const parsed = checkBySchema(submissionBody, exact.value);
  if (parsed.kind === 'refused') return refused(parsed.faults.map((each) => faultOf(each)));
  const { value: asked } = parsed;
  const span = exact.members.get('input');
  if (span === undefined) return refused([invalid('input', 'is required')]);
  if (asked.delayMs !== undefined && asked.runAt !== undefined) {
    return refused([invalid('runAt', 'must not be given together with delayMs')]);
  }
  const clash = clashOf(asked);
  if (clash !== undefined) return refused([clash]);
  const { webhook } = asked;
  const unfit = webhook === undefined ? undefined : limits.webhookFault(webhook.url);
  if (unfit !== undefined) return refused([invalid('webhook.url', unfit)]);
  return complete(
    {
      type: asked.type,
      value: exact.value['input'],
      input: sliceMember(bytes, span),
      extra: webhook === undefined ? {} : { callback: callTo(webhook.url, webhook.states) },
    },
    valuesOf(asked),
    HTTP_FIELDS,
    catalog,
  );
}

/** Checks a message that came to the front door: its body is the input, its routing key the type. Never throws. */
export function checkMessage(message: IncomingMessage, catalog: Catalog, limits: SubmissionLimits): CheckedSubmission {
  const { body, routingKey, properties } = message;
  const faults = propertyFaults(properties, limits);
  const headers = parseSubmissionHeaders(message.headers, { headersBytes: limits.headerBytes });
  if (!headers.ok) faults.push(headers.fault);
  const exact = parseExact(body, { maxBytes: limits.messageBytes, maxDepth: limits.depth });
  if (exact.kind === 'fault') faults.push({ ...exact, field: underInput(exact.field) });
  else if (!isObject(exact.value)) faults.push({ code: 'body-invalid', field: 'body', reason: 'must be an object' });
  if (!headers.ok || exact.kind === 'fault' || faults.length > 0) return refused(faults);
  const { replyOutcome, webhookUrl, webhookStates, ...values } = headers.values;
  const callback = replyOutcome === true ? replyOf(properties, limits) : webhookOf(webhookUrl, webhookStates, limits);
  if (callback !== undefined && 'code' in callback) return refused([callback]);
  const priority = properties['priority'] as number | undefined;
  const external = externalOf(message, priority);
  const origin = originOf(message, external !== undefined);
  const correlationId = textOf(properties['correlationId']);
  const trace = traceIn(message.headers);
  const extra = {
    ...(correlationId === undefined ? {} : { correlationId }),
    ...(external === undefined ? {} : { external }),
    ...(origin === undefined ? {} : { origin }),
    ...(callback === undefined ? {} : { callback }),
    ...(trace === undefined ? {} : { trace }),
  };
  return complete(
    { type: routingKey, value: exact.value, input: body, extra },
    priority === undefined ? values : { ...values, priority },
    AMQP_FIELDS,
    catalog,
  );
}

/** Checks an input by itself, as if it came with a message of that type; gives what is wrong with it. Never throws. */
export function checkInput(
  input: Buffer,
  type: string,
  catalog: Catalog,
  limits: Pick<SubmissionLimits, 'messageBytes' | 'depth'>,
): readonly SubmissionFault[] {
  const known = catalog.find(type);
  if (known === undefined) {
    return [{ code: 'task-type-unknown', field: 'type', reason: 'names no announced task type' }];
  }
  const exact = parseExact(input, { maxBytes: limits.messageBytes, maxDepth: limits.depth });
  if (exact.kind === 'fault') return [{ code: exact.code, field: underInput(exact.field), reason: exact.reason }];
  if (!isObject(exact.value)) return [{ code: 'input-invalid', field: 'input', reason: 'must be an object' }];
  return inputFaults(known, exact.value);
}

/** True where a look at Postgres could change the verdict: the type or the queue may have been announced a moment ago. */
export function isMiss(checked: CheckedSubmission): boolean {
  return (
    checked.kind === 'refused' &&
    checked.faults.some(({ code }) => code === 'task-type-unknown' || code === 'queue-unknown')
  );
}

interface FieldNames {
  readonly type: string;
  readonly queue: string;
}

const HTTP_FIELDS: FieldNames = { type: 'type', queue: 'queue' };
const AMQP_FIELDS: FieldNames = { type: 'routing key', queue: 'warren-queue' };

interface Core {
  readonly type: string;
  readonly value: unknown;
  readonly input: Buffer;
  readonly extra: Pick<Submission, 'correlationId' | 'external' | 'origin' | 'callback' | 'trace'>;
}

type Values = Readonly<Omit<SubmissionValues, 'replyOutcome' | 'webhookUrl' | 'webhookStates'>> & {
  readonly priority?: number;
  readonly maxWaitMs?: number;
};

/** What the catalog has to say, and the defaults of the type. */
function complete(core: Core, values: Values, fields: FieldNames, catalog: Catalog): CheckedSubmission {
  const type = catalog.find(core.type);
  if (type === undefined) {
    return refused([{ code: 'task-type-unknown', field: fields.type, reason: 'names no announced task type' }]);
  }
  if (type.name === WEBHOOK_TYPE) {
    const reason = 'is for Warren alone: it makes such tasks for those that ask for a webhook';
    return refused([invalid(fields.type, reason)]);
  }
  const { queue = type.queue, priority = type.priority, maxAttempts = type.maxAttempts, ...rest } = values;
  const { uniqueKey, uniqueWhile, uniqueWithinMs, onConflict, maxWaitMs, ...others } = rest;
  const faults: SubmissionFault[] = [];
  if (queue !== type.queue && !catalog.hasQueue(queue)) {
    faults.push({ code: 'queue-unknown', field: fields.queue, reason: 'names no queue that there is' });
  }
  faults.push(...inputFaults(type, core.value));
  if (isNonEmpty(faults)) return refused(faults);
  return {
    kind: 'ok',
    submission: {
      type: type.name,
      queue,
      priority,
      maxAttempts,
      input: core.input,
      ...others,
      ...core.extra,
      ...uniqueOf({ uniqueKey, uniqueWhile, uniqueWithinMs, onConflict, maxWaitMs }),
      ...limitKeysOf(type, core.value),
    },
  };
}

/** The keys under which an input counts towards the limits of its type. */
export function limitKeysOf(
  { concurrency, rate }: Pick<KnownType, 'concurrency' | 'rate'>,
  input: unknown,
): Pick<Submission, 'concurrencyKey' | 'rateKey'> {
  return {
    ...(concurrency === undefined ? {} : { concurrencyKey: limitKeyOf(concurrency.key, input) }),
    ...(rate === undefined ? {} : { rateKey: limitKeyOf(rate.key, input) }),
  };
}

function inputFaults(type: KnownType, value: unknown): SubmissionFault[] {
  const found = type.checkInput?.(value) ?? [];
  return found.map(({ field, reason }) => ({ code: 'input-invalid', field, reason }));
}

function valuesOf({
  queue,
  priority,
  delayMs,
  runAt,
  deadline,
  maxAttempts,
  tags,
  businessKey,
  unique,
  throttle,
  debounce,
}: SubmissionBody): Values {
  return {
    ...(queue === undefined ? {} : { queue }),
    ...(priority === undefined ? {} : { priority }),
    ...(delayMs === undefined ? {} : { delayMs }),
    ...instant('runAt', runAt),
    ...instant('deadline', deadline),
    ...(maxAttempts === undefined ? {} : { maxAttempts }),
    ...(tags === undefined ? {} : { tags: [...new Set(tags)] }),
    ...(businessKey === undefined ? {} : { businessKey }),
    ...uniqueValuesOf({ unique, throttle, debounce }),
  };
}

function instant<Name extends 'runAt' | 'deadline'>(name: Name, text: string | undefined): { [K in Name]?: Date } {
  const at = text === undefined ? undefined : parseInstant(text);
  return at === undefined ? {} : ({ [name]: at } as { [K in Name]?: Date });
}

function faultOf({ field, reason }: SchemaFault): SubmissionFault {
  if (field === 'input') return { code: 'input-invalid', field, reason };
  return { code: reason.includes('U+0000') ? 'text-invalid' : 'field-invalid', field, reason };
}

const TEXT_PROPERTIES = {
  messageId: 'message_id',
  correlationId: 'correlation_id',
  userId: 'user_id',
  appId: 'app_id',
} as const;

const JSON_TYPE = /^(application\/json\s*(;\s*charset\s*=\s*"?utf-?8"?\s*)?)?$/i;
/** Some clients name the character set here (kombu writes utf-8); everything else would need decoding. */
const PLAIN_ENCODING = /^(identity|utf-?8)?$/i;

function propertyFaults(properties: IncomingMessage['properties'], limits: SubmissionLimits): SubmissionFault[] {
  const faults: SubmissionFault[] = [];
  const { contentType = '', contentEncoding = '', priority } = properties;
  if (typeof contentType !== 'string' || !JSON_TYPE.test(contentType)) {
    faults.push({ code: 'content-type-unsupported', field: 'content_type', reason: 'must be application/json' });
  }
  if (typeof contentEncoding !== 'string' || !PLAIN_ENCODING.test(contentEncoding)) {
    const reason = 'must be absent: send plain UTF-8';
    faults.push({ code: 'content-type-unsupported', field: 'content_encoding', reason });
  }
  if (
    priority !== undefined &&
    !(Number.isInteger(priority) && (priority as number) >= 0 && (priority as number) <= 9)
  ) {
    faults.push(invalid('priority', 'must be an integer from 0 to 9'));
  }
  for (const [key, name] of Object.entries(TEXT_PROPERTIES)) {
    const text = properties[key];
    if (typeof text === 'string' && !isStorableText(text)) {
      faults.push({ code: 'text-invalid', field: name, reason: 'must not hold U+0000 or a lone surrogate' });
    }
  }
  if (properties[UNDECODED_HEADERS] !== undefined) faults.push(invalid('headers', 'cannot be decoded'));
  if (limits.requireMessageId && textOf(properties['messageId']) === undefined) {
    faults.push({ code: 'message-id-missing', field: 'message_id', reason: 'is required here' });
  }
  return faults;
}

/** The publisher's own id of the message, with a digest of all that Warren would make of it. */
function externalOf(message: IncomingMessage, priority: number | undefined): Submission['external'] {
  const messageId = textOf(message.properties['messageId']);
  if (messageId === undefined) return undefined;
  const { userId, appId } = message.properties;
  const asked = Object.entries(message.headers)
    .filter(([name]) => name.startsWith('warren-'))
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  const about = [message.routingKey, priority ?? null, headersToStored(Object.fromEntries(asked))];
  const digest = createHash('sha256').update(JSON.stringify(about)).update('\n').update(message.body).digest();
  return { publisher: textOf(userId) ?? textOf(appId) ?? '', messageId, digest };
}

/** What has no column of its own, so that a dead letter can show it and a foreign header survives; `undefined` for nothing. */
function originOf(
  { exchange, routingKey, properties, headers }: IncomingMessage,
  hasExternal: boolean,
): Origin | undefined {
  const { replyTo, type, timestamp, expiration, contentEncoding, userId, appId } = properties;
  const isWorthKeeping =
    [replyTo, type, timestamp, expiration, contentEncoding].some((property) => property !== undefined) ||
    (!hasExternal && (userId !== undefined || appId !== undefined)) ||
    (userId !== undefined && appId !== undefined) ||
    Object.keys(headers).some((name) => !name.startsWith('warren-') && !TRACE_HEADERS.includes(name));
  if (!isWorthKeeping) return undefined;
  // `headers` stand in the properties too; they are kept apart.
  const kept = Object.fromEntries(
    Object.entries(properties).filter(([name, value]) => name !== 'headers' && value !== undefined),
  );
  return {
    exchange,
    routingKey,
    properties: JSON.stringify(headersToStored(kept)),
    headers: JSON.stringify(headersToStored(headers)),
  };
}

/** A place in the body of a message, which is the input. */
function underInput(field: string): string {
  if (field === 'body') return field;
  return field.startsWith('[') ? `input${field}` : `input.${field}`;
}

/** They have a column of their own. */
const TRACE_HEADERS = ['traceparent', 'tracestate'];

/** Where a message stands in a trace. Headers are any publisher's. */
function traceIn(headers: Headers): string | undefined {
  if (!Object.hasOwn(headers, 'traceparent')) return undefined;
  return readTrace(headers['traceparent'], Object.hasOwn(headers, 'tracestate') ? headers['tracestate'] : undefined);
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const invalid = (field: string, reason: string): SubmissionFault => ({ code: 'field-invalid', field, reason });

const isNonEmpty = (faults: readonly SubmissionFault[]): faults is readonly [SubmissionFault, ...SubmissionFault[]] =>
  faults.length > 0;

function refused(faults: readonly SubmissionFault[]): CheckedSubmission {
  const [first, ...others] = faults.map(({ code, field, reason }) => ({ code, field, reason }));
  if (first === undefined) return refused([invalid('body', 'cannot be read')]);
  return { kind: 'refused', faults: [first, ...others] };
}
