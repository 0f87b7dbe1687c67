/** What the local stack throws for people: one message that says what to do, and the exit code that goes with it. */

/** sysexits: a service is unavailable. */
export const EXIT_UNAVAILABLE = 69;
/** sysexits: try again later, somebody else is at it. */
export const EXIT_TRY_LATER = 75;

/** An expected failure. `message` may have several lines and is shown without a stack. */
export class StackFailure extends Error {
  override readonly name = 'StackFailure';
  /** For the process that shows it. */
  readonly exitCode: number;

  constructor(message: string, exitCode: number = EXIT_UNAVAILABLE, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.exitCode = exitCode;
  }
}

/** True for a StackFailure, whichever realm made it. */
export function isStackFailure(thrown: unknown): thrown is StackFailure {
  return typeof thrown === 'object' && thrown !== null && 'name' in thrown && thrown.name === 'StackFailure';
}
