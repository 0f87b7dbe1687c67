/** Structured logs: one JSON line an event, on stdout. The only file that knows winston. */
import winston from 'winston';
import { redact } from './redact.ts';

/** Facts of one event. `err` is an error; it is written with code, message, stack and causes. */
export type LogFields = Readonly<Record<string, unknown>>;

/** What the program says. Messages are constant, lower case, at most 60 characters; facts go in the fields. */
export interface Logger {
  /** Someone must act; `hint` says how. */
  error(message: string, fields?: LogFields): void;
  /** Handled, worth a look. */
  warn(message: string, fields?: LogFields): void;
  /** Life cycle, and what did not simply succeed. */
  info(message: string, fields?: LogFields): void;
  /** Each step. */
  debug(message: string, fields?: LogFields): void;
  /** A logger whose lines carry `fields` as well. */
  child(fields: LogFields): Logger;
  /** False where a debug line would go nowhere, so that the hot path need not build its fields. */
  readonly isDebug: boolean;
}

/** Severity below which nothing is written. */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug' | 'silent';

/** Makes the process's logger. `base` stands in every line. */
export function createLogger(options: {
  readonly level: LogLevel;
  readonly base: LogFields;
  /** Where lines go. Default: stdout. */
  readonly stream?: NodeJS.WritableStream;
}): Logger {
  const stream = options.stream ?? process.stdout;
  const root = winston.createLogger({
    level: options.level === 'silent' ? 'error' : options.level,
    silent: options.level === 'silent',
    format: winston.format.printf((info) => render(info)),
    transports: [new winston.transports.Stream({ stream })],
  });
  // Who reads the log may go (a closed pipe). Without a listener each line would then be a crash that logs a line.
  stream.on('error', () => {
    root.silent = true;
  });
  return wrap(root, options.base);
}

function wrap(root: winston.Logger, base: LogFields): Logger {
  const write = (level: string, message: string, fields: LogFields | undefined): void => {
    root.log(level, message, { fields: fields === undefined ? base : { ...base, ...fields } });
  };
  return {
    error: (message, fields) => write('error', message, fields),
    warn: (message, fields) => write('warn', message, fields),
    info: (message, fields) => write('info', message, fields),
    debug: (message, fields) => write('debug', message, fields),
    child: (fields) => wrap(root, { ...base, ...fields }),
    isDebug: root.isDebugEnabled() && !root.silent,
  };
}

function render(info: winston.Logform.TransformableInfo): string {
  const { level, message } = info;
  const fields = info['fields'] as LogFields;
  const own = { at: new Date().toISOString(), level, message };
  return JSON.stringify(redact({ ...own, ...fields, ...own })); // first in the line, and no field takes their place
}
