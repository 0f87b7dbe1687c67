/** Problem documents (RFC 9457): every failure that an API answers, and nothing of what only the log may hold. */
import { CATALOGUE } from '../errors/catalogue.ts';
import type { ErrorCode } from '../errors/catalogue.ts';
import { WarrenError, isWarrenError } from '../errors/warren-error.ts';
import { codeOf } from '../errors/to-error.ts';

/** The media type of a problem document. */
export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';

/** A problem document. The facts of the error are members too, such as `field` and `reason`. */
export interface Problem {
  /** The error code, as a relative URI. */
  readonly type: ErrorCode;
  readonly title: string;
  readonly status: number;
  /** What it is about, for people. */
  readonly detail?: string;
  /** The path that was asked for. */
  readonly instance?: string;
  readonly [fact: string]: unknown;
}

/** Seconds after which trying again may help, where the error does not say. */
const RETRY_AFTER_SECONDS = 5;

/** Makes the document of an error. */
export function problemOf(error: WarrenError, instance?: string): Problem {
  const { status, title } = CATALOGUE[error.code];
  const detail = detailOf(error.facts);
  return {
    ...error.facts,
    type: error.code,
    title,
    status,
    ...(detail === undefined ? {} : { detail }),
    ...(instance === undefined ? {} : { instance }),
  };
}

/** Headers that go with a problem: `retry-after`, `www-authenticate`. */
export function problemHeaders(problem: Problem): Readonly<Record<string, string>> {
  if (problem.status === 401) return { 'www-authenticate': 'Bearer' };
  const { retryAfterSeconds } = problem;
  if (typeof retryAfterSeconds === 'number') return { 'retry-after': String(retryAfterSeconds) };
  return problem.status === 503 ? { 'retry-after': String(RETRY_AFTER_SECONDS) } : {};
}

/**
 * The error to answer for whatever was thrown while a request was handled. What is not known to be the caller's fault
 * becomes `internal`, of which nothing is shown. `bodyLimit`: bytes that the route takes.
 */
export function errorToAnswer(thrown: unknown, bodyLimit?: number): WarrenError {
  if (isWarrenError(thrown)) return thrown;
  const known = FRAMEWORK_CODES.get(codeOf(thrown) ?? '');
  if (known === 'body-too-large' && bodyLimit !== undefined) {
    return new WarrenError(known, { field: 'body', reason: `the limit is ${bodyLimit} bytes` }, thrown);
  }
  if (known !== undefined) return new WarrenError(known, {}, thrown);
  return new WarrenError(isCallersFault(thrown) ? 'request-invalid' : 'internal', {}, thrown);
}

/** Source: fastify.dev/docs/latest/Reference/Errors. */
const FRAMEWORK_CODES: ReadonlyMap<string, ErrorCode> = new Map([
  ['FST_ERR_CTP_BODY_TOO_LARGE', 'body-too-large'],
  ['FST_ERR_CTP_INVALID_MEDIA_TYPE', 'content-type-unsupported'],
  ['FST_ERR_CTP_EMPTY_JSON_BODY', 'body-invalid'],
  ['FST_ERR_CTP_INVALID_JSON_BODY', 'body-invalid'],
]);

function detailOf({ detail, field, reason, hint }: WarrenError['facts']): string | undefined {
  if (typeof detail === 'string') return detail;
  if (typeof reason === 'string') return typeof field === 'string' ? `${field}: ${reason}` : reason;
  return typeof hint === 'string' ? hint : undefined;
}

function isCallersFault(thrown: unknown): boolean {
  if (typeof thrown !== 'object' || thrown === null || !('statusCode' in thrown)) return false;
  return typeof thrown.statusCode === 'number' && thrown.statusCode >= 400 && thrown.statusCode < 500;
}
