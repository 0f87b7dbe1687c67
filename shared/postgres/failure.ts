/** What a failed statement means for whoever sent it: wait, try again, split the batch, or give up. */
import { codeOf, toError } from '../errors/to-error.ts';
import { isWarrenError } from '../errors/warren-error.ts';

/**
 * - `unavailable`: Postgres is away, starting, stopping, read-only, full, or did not answer in time. Wait.
 * - `conflict`: a deadlock or a serialization failure; the same transaction may succeed at once.
 * - `lock-timeout`: somebody holds a row for longer than `lock_timeout`.
 * - `bad-data`: a value that Postgres refuses; find the guilty row of the batch.
 * - `other`: a fault of ours, or of the installation.
 */
export type FailureKind = 'unavailable' | 'conflict' | 'lock-timeout' | 'bad-data' | 'other';

/** Source: nodejs.org/api/errors.html, "Common system errors"; DNS and TLS errors of a server that is half up. */
const NETWORK_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENOENT', // a socket file that is not there
  'EACCES',
  'EMFILE',
]);

/** Source: postgresql.org/docs/current/errcodes-appendix.html. Class 08 is tested apart. */
const UNAVAILABLE_STATES = new Set([
  '57P01', // admin_shutdown
  '57P02', // crash_shutdown
  '57P03', // cannot_connect_now
  '57P05', // idle_session_timeout
  '57014', // query_canceled: statement_timeout
  '53000',
  '53100', // disk_full
  '53200', // out_of_memory
  '53300', // too_many_connections
  '25006', // read_only_sql_transaction: we reached a standby, or the primary became one
  '25P03', // idle_in_transaction_session_timeout
  '58030', // io_error
]);

/** Errors that pg raises without a code. */
const UNAVAILABLE_MESSAGES =
  /connection terminated|connection timeout|timeout exceeded when trying to connect|connection error and is not queryable|client was closed|pool after calling end|before secure TLS/i;

/** Says what a thrown value means. Looks through `database-unavailable` at its cause. Never throws. */
export function classifyFailure(thrown: unknown): FailureKind {
  if (isWarrenError(thrown, 'database-unavailable')) {
    return codeOf(thrown.cause) === '55P03' ? 'lock-timeout' : 'unavailable';
  }
  const code = codeOf(thrown);
  if (code === undefined) return UNAVAILABLE_MESSAGES.test(toError(thrown).message) ? 'unavailable' : 'other';
  if (code === '40P01' || code === '40001') return 'conflict';
  if (code === '55P03') return 'lock-timeout';
  if (NETWORK_CODES.has(code) || UNAVAILABLE_STATES.has(code) || /^08...$/.test(code)) return 'unavailable';
  if (/^2[123]...$/.test(code)) return 'bad-data';
  return 'other';
}

/** True where only waiting helps. */
export function isUnavailable(thrown: unknown): boolean {
  return classifyFailure(thrown) === 'unavailable';
}

/** True where the same statements, sent again at once, may succeed. */
export function isConflict(thrown: unknown): boolean {
  return classifyFailure(thrown) === 'conflict';
}

/** True where one value of the batch is guilty and the others are not (SQLSTATE class 21, 22 or 23). */
export function isBadData(thrown: unknown): boolean {
  return classifyFailure(thrown) === 'bad-data';
}

/**
 * True where the connection must not be used again: it broke, its server became read-only, or its prepared
 * statements are void (a changed table under a cached plan, a pooler that forgot them).
 */
export function isConnectionSpent(thrown: unknown): boolean {
  const code = codeOf(thrown);
  if (code === '0A000' || code === '26000') return true;
  // A cancelled statement leaves the session whole.
  return code !== '57014' && isUnavailable(thrown);
}
