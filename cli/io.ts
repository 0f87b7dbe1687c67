/** The world of one run of the command line, handed in so that a test can hold every end of it. */
import type { Clock } from '../shared/time/clock.ts';

/** Where text goes. */
export interface Output {
  write(text: string): void;
  readonly isTTY: boolean;
  /** Characters in a line of the terminal; `undefined` where it is none. */
  readonly columns: number | undefined;
}

/** Everything outside that a command may touch. */
export interface CliIo {
  readonly stdout: Output;
  readonly stderr: Output;
  /** Reads standard input to its end. */
  readStdin(): Promise<Buffer>;
  /** Asks a person and resolves to the line that they type; absent where standard input is no terminal. */
  readonly ask?: ((question: string) => Promise<string>) | undefined;
  /** The environment of the process. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  /** 0 inclusive to 1 exclusive. */
  readonly random: () => number;
  readonly fetch: typeof globalThis.fetch;
  /** Aborts at the first Ctrl-C (or SIGTERM). */
  readonly interrupted: AbortSignal;
}
