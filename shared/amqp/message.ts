/** THE message contract: what a message of Warren holds, header names, properties, limits. */
import type { ErrorCode } from '../errors/catalogue.ts';
import { headersBytes } from './headers.ts';
import type { Headers } from './headers.ts';
import { countCharacters } from '../text/characters.ts';
import { isStorableText } from '../text/storable.ts';
import { isQueueName } from './topology.ts';

/** Limits of what comes in. The first three can be configured; these are their defaults. */
export const MESSAGE_LIMITS = {
  /** Bytes of a message body. */
  bodyBytes: 262_144,
  /** Levels of JSON. */
  depth: 64,
  /** Bytes of all headers. */
  headersBytes: 16_384,
  /** Milliseconds that a task can be put off: 366 days. */
  delayMs: 31_622_400_000,
  /** Runs of a task. */
  maxAttempts: 100,
  tags: 20,
  tagLength: 100,
  businessKeyLength: 200,
  uniqueKeyLength: 200,
  webhookUrlLength: 2_048,
} as const;

/** Content type of all that Warren publishes and takes. */
export const JSON_CONTENT_TYPE = 'application/json';

/** Headers of the front door: a closed set. */
export const SUBMISSION_HEADERS = {
  queue: 'warren-queue',
  delayMs: 'warren-delay-ms',
  runAt: 'warren-run-at',
  deadline: 'warren-deadline',
  maxAttempts: 'warren-max-attempts',
  tags: 'warren-tags',
  businessKey: 'warren-business-key',
  uniqueKey: 'warren-unique-key',
  uniqueWhile: 'warren-unique-while',
  uniqueWithinMs: 'warren-unique-within-ms',
  onConflict: 'warren-on-conflict',
  replyOutcome: 'warren-reply-outcome',
  webhookUrl: 'warren-webhook-url',
  webhookStates: 'warren-webhook-states',
} as const;

/** While what a task holds its unique key. */
export const UNIQUE_WHILE = ['waiting', 'unfinished'] as const;
/** What happens to a submission while another task holds its unique key. */
export const CONFLICT_RULES = ['return', 'replace', 'reject'] as const;
/** One of them. */
export type ConflictRule = (typeof CONFLICT_RULES)[number];

/** The message in a work queue: names a task, carries no payload. */
export interface Invitation {
  readonly taskId: string;
  readonly type: string;
  /** Of the task's row when it was invited, 1 to 2 147 483 647; a stale one loses its claim. */
  readonly generation: number;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const SAFE_TYPE = /^[\w.:/-]+$/;
const LONGEST_TYPE = 200;
const MOST_INVITATION_BYTES = 2_048;
const HIGHEST_GENERATION = 2_147_483_647;

/** The body of an invitation. Written by hand where nothing needs escaping: this runs once per task. */
export function encodeInvitation({ taskId, type, generation }: Invitation): Buffer {
  const quoted = SAFE_TYPE.test(type) ? `"${type}"` : JSON.stringify(type);
  return Buffer.from(`{"taskId":"${taskId}","type":${quoted},"generation":${generation}}`);
}

/** Reads an invitation; `undefined` for anything that is not exactly one. Never throws. */
export function parseInvitation(body: Buffer): Invitation | undefined {
  if (body.length > MOST_INVITATION_BYTES) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch {
    return undefined; // not ours
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value) || Object.keys(value).length !== 3)
    return undefined;
  const { taskId, type, generation } = value as Record<string, unknown>;
  if (typeof taskId !== 'string' || !UUID.test(taskId)) return undefined;
  if (typeof type !== 'string' || type === '' || type.length > LONGEST_TYPE) return undefined;
  if (!isIntegerFrom(generation, 1, HIGHEST_GENERATION)) return undefined;
  return { taskId, type, generation };
}

/** What the headers of the front door ask for. */
export interface SubmissionValues {
  queue?: string;
  delayMs?: number;
  runAt?: Date;
  deadline?: Date;
  maxAttempts?: number;
  tags?: readonly string[];
  businessKey?: string;
  uniqueKey?: string;
  uniqueWhile?: (typeof UNIQUE_WHILE)[number];
  uniqueWithinMs?: number;
  onConflict?: ConflictRule;
  replyOutcome?: boolean;
  webhookUrl?: string;
  /** Names of states; which there are, is not known here. */
  webhookStates?: readonly string[];
}

/** Why a submission is refused: the header at fault, in words, with the code of the catalogue. */
export interface SubmissionFault {
  readonly field: string;
  readonly reason: string;
  readonly code: ErrorCode;
}

/** Read headers, or the first fault in them. */
export type ParsedSubmission =
  | { readonly ok: true; readonly values: SubmissionValues }
  | { readonly ok: false; readonly fault: SubmissionFault };

/**
 * Reads the headers of a submission. Names that do not start with `warren-` are nobody's business here and pass; an
 * unknown `warren-*` name is refused, so that a misspelt one is not silently without effect. Values are typed: numbers
 * are AMQP numbers, instants are AMQP timestamps or ISO 8601 texts with an offset.
 */
export function parseSubmissionHeaders(
  headers: Headers,
  limits: { readonly headersBytes: number } = MESSAGE_LIMITS,
): ParsedSubmission {
  if (headersBytes(headers) > limits.headersBytes) {
    return refused('headers', `must be at most ${limits.headersBytes} bytes together`, 'headers-too-large');
  }
  const values: SubmissionValues = {};
  for (const [name, value] of Object.entries(headers)) {
    if (!name.toLowerCase().startsWith('warren-')) continue;
    const key = KEY_OF.get(name);
    if (key === undefined) return refused(name.slice(0, 100), 'is not a header that Warren knows', 'header-unknown');
    const reason = readInto(values, key, value);
    if (reason === undefined) continue;
    return refused(name, reason, reason.includes('U+0000') ? 'text-invalid' : 'field-invalid');
  }
  if (values.delayMs !== undefined && values.runAt !== undefined) {
    return refused(
      SUBMISSION_HEADERS.runAt,
      `must not be given together with ${SUBMISSION_HEADERS.delayMs}`,
      'field-invalid',
    );
  }
  const fault = findUniqueFault(values) ?? findWebhookFault(values);
  return fault === undefined ? { ok: true, values } : refused(...fault, 'field-invalid');
}

function findUniqueFault(values: SubmissionValues): readonly [field: string, reason: string] | undefined {
  const { uniqueKey, uniqueWhile, uniqueWithinMs, onConflict } = values;
  if (uniqueWhile !== undefined && uniqueWithinMs !== undefined) {
    return [SUBMISSION_HEADERS.uniqueWithinMs, `must not be given together with ${SUBMISSION_HEADERS.uniqueWhile}`];
  }
  const isAlone = uniqueKey === undefined && (uniqueWhile ?? uniqueWithinMs ?? onConflict) !== undefined;
  return isAlone ? [SUBMISSION_HEADERS.uniqueKey, 'is required where the other headers of uniqueness are'] : undefined;
}

function findWebhookFault(values: SubmissionValues): readonly [field: string, reason: string] | undefined {
  const { replyOutcome, webhookUrl, webhookStates } = values;
  if (webhookUrl === undefined) {
    return webhookStates === undefined
      ? undefined
      : [SUBMISSION_HEADERS.webhookUrl, 'is required where the states are'];
  }
  if (replyOutcome !== true) return undefined;
  return [SUBMISSION_HEADERS.webhookUrl, `must not be given together with ${SUBMISSION_HEADERS.replyOutcome}`];
}

type SubmissionKey = keyof typeof SUBMISSION_HEADERS;

const KEY_OF: ReadonlyMap<string, SubmissionKey> = new Map(
  (Object.entries(SUBMISSION_HEADERS) as [SubmissionKey, string][]).map(([key, name]) => [name, key]),
);

/** Puts one read value in; returns why it cannot, in words. */
function readInto(values: SubmissionValues, key: SubmissionKey, value: unknown): string | undefined {
  switch (key) {
    case 'queue':
      if (typeof value !== 'string' || !isQueueName(value)) return 'must be the name of a queue';
      values.queue = value;
      return undefined;
    case 'delayMs':
      if (!isIntegerFrom(value, 0, MESSAGE_LIMITS.delayMs)) {
        return `must be an integer from 0 to ${MESSAGE_LIMITS.delayMs}, sent as a number`;
      }
      values.delayMs = value;
      return undefined;
    case 'runAt':
    case 'deadline': {
      const instant = parseInstant(value);
      if (instant === undefined) return 'must be an AMQP timestamp or an ISO 8601 text with an offset';
      values[key] = instant;
      return undefined;
    }
    case 'maxAttempts':
      if (!isIntegerFrom(value, 1, MESSAGE_LIMITS.maxAttempts)) {
        return `must be an integer from 1 to ${MESSAGE_LIMITS.maxAttempts}, sent as a number`;
      }
      values.maxAttempts = value;
      return undefined;
    case 'tags': {
      const tags = listOf(value);
      const reason = findTagsFault(tags);
      if (reason !== undefined) return reason;
      values.tags = [...new Set(tags as string[])];
      return undefined;
    }
    case 'businessKey':
    case 'uniqueKey':
    case 'webhookUrl': {
      const reason = findTextFault(value, MESSAGE_LIMITS[`${key}Length`]);
      if (reason !== undefined) return reason;
      values[key] = value as string;
      return undefined;
    }
    case 'uniqueWhile':
      if (!isOneOf(value, UNIQUE_WHILE)) return `must be one of ${UNIQUE_WHILE.join(', ')}`;
      values.uniqueWhile = value;
      return undefined;
    case 'uniqueWithinMs':
      if (!isIntegerFrom(value, 1, MESSAGE_LIMITS.delayMs)) {
        return `must be an integer from 1 to ${MESSAGE_LIMITS.delayMs}, sent as a number`;
      }
      values.uniqueWithinMs = value;
      return undefined;
    case 'onConflict':
      if (!isOneOf(value, CONFLICT_RULES)) return `must be one of ${CONFLICT_RULES.join(', ')}`;
      values.onConflict = value;
      return undefined;
    case 'replyOutcome':
      if (typeof value !== 'boolean') return 'must be true or false, sent as a boolean';
      values.replyOutcome = value;
      return undefined;
    case 'webhookStates': {
      const states = listOf(value);
      const reason = findTagsFault(states);
      if (reason !== undefined) return reason.replaceAll('tag', 'state');
      values.webhookStates = [...new Set(states as string[])];
      return undefined;
    }
  }
}

/** A list, also where it came as one text with commas. */
const listOf = (value: unknown): unknown =>
  typeof value === 'string' ? value.split(',').map((each) => each.trim()) : value;

function findTagsFault(tags: unknown): string | undefined {
  if (!Array.isArray(tags)) return 'must be a list of texts, or one text with commas';
  if (tags.length > MESSAGE_LIMITS.tags) return `must be at most ${MESSAGE_LIMITS.tags} tags`;
  for (const tag of tags) {
    const reason = findTextFault(tag, MESSAGE_LIMITS.tagLength);
    if (reason !== undefined) return `each tag ${reason}`;
  }
  return undefined;
}

function findTextFault(text: unknown, longest: number): string | undefined {
  if (typeof text !== 'string' || text === '' || countCharacters(text) > longest)
    return `must be a text of 1 to ${longest} characters`;
  return isStorableText(text) ? undefined : 'must not hold U+0000 or a lone surrogate';
}

const ISO_INSTANT = /^(\d{4})-(\d{2})-(\d{2})T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/;

/** Reads an AMQP timestamp (seconds) or an ISO 8601 text with an offset, years 1970 to 9999; `undefined` for anything else. */
export function parseInstant(value: unknown): Date | undefined {
  if (typeof value === 'string') {
    const match = ISO_INSTANT.exec(value);
    if (match === null) return undefined;
    const instant = new Date(value);
    // V8 reads 30 February as 1 March.
    const lastDay = new Date(Date.UTC(Number(match[1]), Number(match[2]), 0)).getUTCDate();
    return Number(match[3]) > lastDay ? undefined : within(instant);
  }
  if (typeof value !== 'object' || value === null || !('!' in value) || value['!'] !== 'timestamp') return undefined;
  if (!('value' in value) || typeof value.value !== 'number') return undefined;
  return within(new Date(value.value * 1_000));
}

function within(instant: Date): Date | undefined {
  const ms = instant.getTime();
  return ms >= 0 && ms < 253_402_300_800_000 ? instant : undefined;
}

function isOneOf<Value extends string>(value: unknown, values: readonly Value[]): value is Value {
  return (values as readonly unknown[]).includes(value);
}

function isIntegerFrom(value: unknown, lowest: number, highest: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= lowest && value <= highest;
}

function refused(field: string, reason: string, code: ErrorCode): ParsedSubmission {
  return { ok: false, fault: { field, reason, code } };
}
