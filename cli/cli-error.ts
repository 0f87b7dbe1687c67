/** What went wrong, in the shape of a problem document (RFC 9457), with the exit code that says it to scripts. */
import { codeOf, toError } from '../shared/errors/to-error.ts';
import { CATALOGUE } from '../shared/errors/catalogue.ts';
import { isWarrenError } from '../shared/errors/warren-error.ts';
import { EXIT_CODES } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';

/** A problem as the command line shows it. Members that it does not know are kept for `--json`. */
export interface Problem {
  /** A code of the catalogue, or of a newer service's. */
  readonly code: string;
  /** One sentence: what is wrong. */
  readonly title: string;
  readonly status?: number;
  readonly field?: string;
  readonly reason?: string;
  /** What to do about it. */
  readonly hint?: string;
  readonly [fact: string]: unknown;
}

/** An error that ends the command with `exitCode` after showing `problem`. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: ExitCode;
  readonly problem: Problem;

  constructor(exitCode: ExitCode, problem: Problem, cause?: unknown) {
    super(problem.title, cause === undefined ? undefined : { cause });
    this.exitCode = exitCode;
    this.problem = problem;
  }
}

/** The command line itself is wrong; exit 2. */
export function usageError(title: string, hint?: string): CliError {
  return new CliError(EXIT_CODES.usage, { code: 'usage', title, ...(hint === undefined ? {} : { hint }) });
}

/** Gives any thrown value an exit code and a problem. */
export function toCliError(thrown: unknown): CliError {
  if (isCliError(thrown)) return thrown;
  if (isWarrenError(thrown)) {
    const { title, status } = CATALOGUE[thrown.code];
    return new CliError(
      exitCodeOf(thrown.code, status),
      withHint({ code: thrown.code, title, status, ...thrown.facts }),
      thrown,
    );
  }
  const { message, stack } = toError(thrown);
  if (ADDRESS_FAULTS.has(codeOf(thrown) ?? '')) {
    const hint = 'Something else listens there, or it is not allowed: choose another http.host or port.';
    return new CliError(EXIT_CODES.configuration, { code: 'config-invalid', title: message, hint }, thrown);
  }
  return new CliError(
    EXIT_CODES.internal,
    { code: 'internal', title: message, ...(stack === undefined ? {} : { stack }) },
    thrown,
  );
}

/** Adds what to do, where the code alone says it. */
export function withHint(problem: Problem): Problem {
  const hint = problem.hint ?? HINTS.get(problem.code);
  return hint === undefined ? problem : { ...problem, hint };
}

/** The exit code of a problem: by its code, else by its HTTP status. */
export function exitCodeOf(code: string, status: number): ExitCode {
  const known = EXIT_BY_CODE.get(code);
  if (known !== undefined) return known;
  if (status === 401 || status === 403) return EXIT_CODES.notAllowed;
  if (status === 404 || status === 409) return EXIT_CODES.failed;
  if (status >= 400 && status < 500) return EXIT_CODES.badData;
  return status === 502 || status === 503 || status === 504 ? EXIT_CODES.unreachable : EXIT_CODES.internal;
}

const EXIT_BY_CODE: ReadonlyMap<string, ExitCode> = new Map<string, ExitCode>([
  ['wait-timeout', EXIT_CODES.waitTimeout],
  ['config-invalid', EXIT_CODES.configuration],
  ['prefix-mismatch', EXIT_CODES.configuration],
  ['database-outdated', EXIT_CODES.configuration],
  ['migration-changed', EXIT_CODES.configuration],
  ['topology-drift', EXIT_CODES.configuration],
  ['task-module-invalid', EXIT_CODES.configuration],
  ['broker-refused-login', EXIT_CODES.notAllowed],
  ['destination-not-allowed', EXIT_CODES.failed],
  ['request-timeout', EXIT_CODES.unreachable],
]);

const HINTS: ReadonlyMap<string, string> = new Map([
  ['token-missing', 'Set WARREN_TOKEN, or WARREN_TOKEN_FILE or --token-file to a file that holds the token.'],
  ['token-invalid', 'Check WARREN_TOKEN, WARREN_TOKEN_FILE or --token-file against WARREN_TOKENS of the service.'],
  [
    'role-insufficient',
    'Use a token with a greater role: a viewer only looks, an operator submits, cancels and replays.',
  ],
  ['task-type-unknown', 'Start a worker that has the type, or run `warren types apply --tasks <module>`.'],
  ['task-not-found', 'Check the id, and that WARREN_URL is the right installation.'],
  ['dead-letter-not-found', 'Check the id: it is that of the dead letter (`warren dead list`), not of the task.'],
  ['replay-not-found', 'Check the id: `warren replay list` shows those that there are.'],
  ['precondition-failed', 'Look again and repeat what you want.'],
  ['selection-empty', 'Check what is selected: `warren dead list` shows the open letters.'],
  ['prefix-mismatch', 'Use the other prefix, or another database or schema.'],
  ['database-unavailable', 'Is Postgres running, and is DATABASE_URL right? `warren doctor` says more.'],
  ['broker-unavailable', 'Is RabbitMQ running, and is AMQP_URL right? `warren doctor` says more.'],
]);

/** The configured address cannot be listened on. */
const ADDRESS_FAULTS: ReadonlySet<string> = new Set(['EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES']);

function isCliError(thrown: unknown): thrown is CliError {
  return typeof thrown === 'object' && thrown !== null && 'name' in thrown && thrown.name === 'CliError';
}
