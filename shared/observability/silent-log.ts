/** The logger that writes nothing: for threads and tests, without loading what writes. */
import type { Logger } from './log.ts';

/** A logger that writes nothing. */
export const silentLogger: Logger = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
  child: () => silentLogger,
  isDebug: false,
};
