/** The contract of everything that lives inside a process. */

/**
 * Anything with a beginning and an end inside a process.
 *
 * `start` twice, `stop` twice and `stop` before `start` are harmless. `stop` resolves only when nothing of the part
 * runs any more, or when `deadlineMs` (monotonic, see Clock) has passed and it has given up what remained, saying so in the log.
 */
export interface Part {
  start(): Promise<void>;
  stop(deadlineMs: number): Promise<void>;
}
