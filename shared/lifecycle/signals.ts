/** The operating system's wish that a process end. */
import type { EventEmitter } from 'node:events';

/** What of a process the signals and the main function touch; tests hand in their own. */
export interface ProcessHost {
  readonly argv: readonly string[];
  readonly stderr: { write(text: string): unknown };
  on(event: string, listener: (first: unknown) => void): void;
  off(event: string, listener: (first: unknown) => void): void;
  exit(code: number): void;
}

/** The process itself. */
export function thisProcess(): ProcessHost {
  const events: EventEmitter = process;
  return {
    argv: process.argv,
    stderr: process.stderr,
    on: (event, listener) => void events.on(event, listener),
    off: (event, listener) => void events.off(event, listener),
    exit: (code) => process.exit(code),
  };
}

/** Signals that ask to stop, with the exit code of a process that they kill (128 and the signal's number). */
export const STOP_SIGNALS = { SIGINT: 130, SIGTERM: 143 } as const;
/** One of `STOP_SIGNALS`. */
export type StopSignal = keyof typeof STOP_SIGNALS;

/**
 * Calls `onFirst` at the first signal, and `onSecond` at the second: whoever asks twice wants no more waiting.
 * Returns the function that stops listening.
 */
export function onStopSignals(
  host: ProcessHost,
  onFirst: (signal: StopSignal) => void,
  onSecond: (signal: StopSignal) => void,
): () => void {
  let seen = 0;
  const listeners = (Object.keys(STOP_SIGNALS) as StopSignal[]).map((signal) => {
    const listener = (): void => {
      seen += 1;
      if (seen === 1) onFirst(signal);
      else onSecond(signal);
    };
    host.on(signal, listener);
    return { signal, listener };
  });
  return () => {
    for (const { signal, listener } of listeners) host.off(signal, listener);
  };
}
