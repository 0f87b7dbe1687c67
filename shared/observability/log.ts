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

/** Characters that wait in memory for whoever reads the log, some thousands of lines; what is beyond is dropped, and counted. */
const MOST_WAITING = 2_097_152;
/** What is logged as an error is dropped later than all else. */
const MOST_WAITING_ERRORS = 2 * MOST_WAITING;

/** Makes the process's logger. Where nobody reads what it writes, it keeps `MOST_WAITING` of it and does not wait. `base` stands in every line. */
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
  return wrap(
    root,
    new Gate(stream, (count) => wrap(root, undefined, options.base).warn(...tellOf(count))),
    options.base,
  );
}

const tellOf = (count: number): [message: string, fields: LogFields] => [
  'log lines dropped',
  { count, hint: 'whoever reads the log of this process does not keep up' },
];

/** Keeps what waits to be read within bounds: a pipe takes some 64 KiB, and a stream takes anything. */
class Gate {
  readonly #stream: NodeJS.WritableStream & { readonly writableLength?: number };
  readonly #tell: (count: number) => void;
  #dropped = 0;

  constructor(stream: NodeJS.WritableStream, tell: (count: number) => void) {
    this.#stream = stream;
    this.#tell = tell;
  }

  /** False where a line of this level is to be dropped. */
  lets(level: string): boolean {
    const waiting = this.#stream.writableLength ?? 0;
    if (waiting > (level === 'error' ? MOST_WAITING_ERRORS : MOST_WAITING)) {
      // Told as soon as it is read again, be there more to say or not.
      if (this.#dropped === 0) this.#stream.once('drain', () => this.#tellDropped());
      this.#dropped += 1;
      return false;
    }
    return true;
  }

  #tellDropped(): void {
    const count = this.#dropped;
    this.#dropped = 0;
    this.#tell(count);
  }
}

function wrap(root: winston.Logger, gate: Gate | undefined, base: LogFields): Logger {
  const write = (level: string, message: string, fields: LogFields | undefined): void => {
    if (gate?.lets(level) === false) return;
    root.log(level, message, { fields: fields === undefined ? base : { ...base, ...fields } });
  };
  return {
    error: (message, fields) => write('error', message, fields),
    warn: (message, fields) => write('warn', message, fields),
    info: (message, fields) => write('info', message, fields),
    debug: (message, fields) => write('debug', message, fields),
    child: (fields) => wrap(root, gate, { ...base, ...fields }),
    isDebug: root.isDebugEnabled() && !root.silent,
  };
}

function render(info: winston.Logform.TransformableInfo): string {
  const { level, message } = info;
  const fields = info['fields'] as LogFields;
  const own = { at: new Date().toISOString(), level, message };
  return JSON.stringify(redact({ ...own, ...fields, ...own })); // first in the line, and no field takes their place
}
