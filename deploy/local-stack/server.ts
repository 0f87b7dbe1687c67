/** A server of the stack, whoever runs it. */
import type { ServerUser } from './server-user.ts';

/** Where a server comes from: an URL that the user named, a private process, or a container. */
export type ServerSource = 'named' | 'private' | 'docker';

/** What a stack can do with one server. Those of a user's own are never touched: each verb throws for them. */
export interface ServerControl {
  readonly source: ServerSource;
  /** Of a private server that was started; `undefined` otherwise. */
  readonly pid: number | undefined;
  /** Starts it and waits until it answers. False when it ran already. */
  start(): Promise<boolean>;
  /** Ends it in order, with its data kept. Nothing happens when it does not run. */
  stop(): Promise<void>;
  /** SIGKILL: as a crash. */
  kill(): Promise<void>;
  /** Runs `rabbitmqctl` against a private broker and gives what it printed; absent for any other server. */
  ctl?(...args: readonly string[]): Promise<string>;
}

/** What a private server is told. */
export interface PrivateServerOptions {
  /** Folder of its own: state, data, log. Exists. */
  readonly dir: string;
  /** Instance, such as `dev` or `test`. Lower-case letters, digits, hyphens. */
  readonly name: string;
  readonly user: ServerUser | undefined;
  readonly tell: (line: string) => void;
  /** Further lines of `rabbitmq.conf`. Default: none. */
  readonly brokerLines?: readonly string[];
}

/** Milliseconds that a private server may take to answer: ten times what it takes on two idle cores. */
export const START_WITHIN_MS = 60_000;
/** Milliseconds that it may take to end in order before it is killed. */
export const STOP_WITHIN_MS = 30_000;
