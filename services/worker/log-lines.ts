/**
 * The lines that one attempt logs, as they are kept with it: the first and the last, since what went wrong is said at the end and
 * what it was about at the beginning.
 */
import type { LogFields, Logger } from '../../shared/observability/log.ts';
import { redact, redactText } from '../../shared/observability/redact.ts';
import type { Clock } from '../../shared/time/clock.ts';

/** Lines as they are stored. */
export interface KeptLines {
  /** A JSON array of lines, oldest first: `at`, `level`, `message`, and `fields`, or `cut` where they were too large. */
  readonly json: string;
  /** Lines that were left out between the first and the last. */
  readonly dropped: number;
}

/** Lines and bytes of each half, of the first lines and of the last ones: 200 lines and 64 KiB together. */
const HALF = { lines: 100, bytes: 32_768 } as const;
/** Bytes of one line; beyond them its fields are cut. */
const LONGEST_LINE_BYTES = 8_192;
const CUT_CHARACTERS = 1_000;

interface Line {
  readonly json: string;
  readonly bytes: number;
}

type Level = 'error' | 'warn' | 'info' | 'debug';

/** Keeps the lines of one attempt, redacted as they are logged: what they name may change or grow afterwards. */
export class LogLines {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #first: Line[] = [];
  #last: Line[] = [];
  /** Where the last lines begin: those before were dropped. Cut off from time to time. */
  #lastFrom = 0;
  #firstBytes = 0;
  #lastBytes = 0;
  #dropped = 0;
  #isFirstFull = false;
  #isClosed = false;

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  /** A logger that writes to `target` and keeps what it writes; debug lines where they are written at all. */
  listen(target: Logger, base: LogFields = {}): Logger {
    const write =
      (level: Level) =>
      (message: string, fields?: LogFields): void => {
        target[level](message, fields);
        if (level !== 'debug' || target.isDebug) this.#keep(level, message, { ...base, ...fields });
      };
    return {
      error: write('error'),
      warn: write('warn'),
      info: write('info'),
      debug: write('debug'),
      child: (fields) => this.listen(target.child(fields), { ...base, ...fields }),
      isDebug: target.isDebug,
    };
  }

  /** Hears no more. `undefined` where nothing was logged. */
  close(): KeptLines | undefined {
    this.#isClosed = true;
    const kept = [...this.#first, ...this.#last.slice(this.#lastFrom)];
    if (kept.length === 0) return undefined;
    return { json: `[${kept.map(({ json }) => json).join(',')}]`, dropped: this.#dropped };
  }

  #keep(level: Level, message: string, fields: LogFields): void {
    if (this.#isClosed) return;
    const line = renderLine(this.#clock.now(), level, message, fields);
    this.#isFirstFull ||= this.#first.length >= HALF.lines || this.#firstBytes + line.bytes > HALF.bytes;
    if (!this.#isFirstFull) {
      this.#first.push(line);
      this.#firstBytes += line.bytes;
      return;
    }
    this.#last.push(line);
    this.#lastBytes += line.bytes;
    while (this.#last.length - this.#lastFrom > HALF.lines || this.#lastBytes > HALF.bytes) {
      this.#lastBytes -= this.#last[this.#lastFrom]?.bytes ?? 0;
      this.#lastFrom += 1;
      this.#dropped += 1;
    }
    if (this.#lastFrom > HALF.lines) {
      this.#last = this.#last.slice(this.#lastFrom);
      this.#lastFrom = 0;
    }
  }
}

/** JSON escapes U+0000 and lone surrogates, so any text survives. With a comma behind it. */
function renderLine(now: Date, level: Level, message: unknown, fields: LogFields): Line {
  const at = now.toISOString();
  const text = typeof message === 'string' ? redactText(message.slice(0, LONGEST_LINE_BYTES)) : '[no text]';
  const hasFields = Object.keys(fields).length > 0;
  const whole = JSON.stringify({ at, level, message: text, ...(hasFields ? { fields: redact(fields) } : {}) });
  const bytes = Buffer.byteLength(whole) + 1;
  if (bytes <= LONGEST_LINE_BYTES) return { json: whole, bytes };
  const cut = hasFields ? JSON.stringify(redact(fields)) : text;
  const json = JSON.stringify({
    at,
    level,
    message: text.slice(0, CUT_CHARACTERS),
    cut: { characters: cut.length, start: cut.slice(0, CUT_CHARACTERS) },
  });
  return { json, bytes: Buffer.byteLength(json) + 1 };
}
