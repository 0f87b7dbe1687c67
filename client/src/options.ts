/** What a submission can ask for, and how it is written. */
import { InputRefusedError } from './errors.ts';
import type { TraceOptions } from './trace.ts';

/** One task at a time under a key. */
export interface UniqueOptions {
  readonly key: string;
  /** How long the key is held: until the task starts (`waiting`), or until it has ended (`unfinished`, the default). */
  readonly while?: 'waiting' | 'unfinished';
  /** Milliseconds for which the key is held, whatever becomes of the task. Not together with `while`. */
  readonly withinMs?: number;
  /**
   * While the key is held: answer with the task that holds it (`return`, the default); let that task, where it waits, become this
   * one (`replace`, not in Postgres); or refuse (`reject`: `unique-conflict`).
   */
  readonly onConflict?: 'return' | 'replace' | 'reject';
}

/** What a submission can ask for. All may be left out. */
export interface SubmissionOptions {
  /** 0 to 9, 9 first. Default: that of the type. */
  readonly priority?: number;
  /** Default: that of the type. */
  readonly queue?: string;
  /** Milliseconds from acceptance until it may start, 0 to 31 622 400 000. Not together with `runAt`. */
  readonly delayMs?: number;
  /** Not before this instant; a text is RFC 3339. */
  readonly runAt?: Date | string;
  /** A task that has not started by then expires. */
  readonly deadline?: Date | string;
  /** Runs that may fail, 1 to 100, the first included. Default: that of the type. */
  readonly maxAttempts?: number;
  /** Marks to find the task by, at most 20 of 100 characters. */
  readonly tags?: readonly string[];
  /** What the task is about, to find it by. */
  readonly businessKey?: string;
  readonly unique?: UniqueOptions;
  /** The first task runs; further ones under the key within so many milliseconds are answered with it. */
  readonly throttle?: { readonly key: string; readonly withinMs: number };
  /** Runs once, with the last input, so many milliseconds after the last submission under the key. Over HTTP alone. */
  readonly debounce?: { readonly key: string; readonly delayMs: number; readonly maxWaitMs?: number };
  /** Called, signed, when the task has ended; over HTTP and in Postgres. `states`: the ends that are told of, all by default. */
  readonly webhook?: {
    readonly url: string;
    readonly states?: readonly ('succeeded' | 'dead' | 'cancelled' | 'expired')[];
  };
  /** The same call under the same key within seven days makes one task. Default: a new key each call. */
  readonly idempotencyKey?: string;
}

/** How long one call may take, and what ends it sooner. */
export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Milliseconds for the whole call, tries included. Default 30 000. */
  readonly timeoutMs?: number;
}

/** All options of `enqueue`. */
export interface EnqueueOptions extends SubmissionOptions, CallOptions, TraceOptions {}

/** The members of a body, in which instants are texts. `idempotencyKey` is not among them. */
export type SubmissionMembers = Omit<SubmissionOptions, 'idempotencyKey' | 'runAt' | 'deadline'> & {
  readonly runAt?: string;
  readonly deadline?: string;
};

const MEMBERS = [
  'priority',
  'queue',
  'delayMs',
  'runAt',
  'deadline',
  'maxAttempts',
  'tags',
  'businessKey',
  'unique',
  'throttle',
  'debounce',
  'webhook',
] as const;
const OTHERS = ['idempotencyKey', 'signal', 'timeoutMs', 'traceparent', 'tracestate'];

/** The members that options ask for; what is undefined is left out. Throws `InputRefusedError` for what is none. */
export function membersOf(options: EnqueueOptions): SubmissionMembers {
  const unknown = Object.keys(options).find(
    (name) => !(MEMBERS as readonly string[]).includes(name) && !OTHERS.includes(name),
  );
  if (unknown !== undefined) throw new InputRefusedError(unknown, 'is no option of a submission', 'field-invalid');
  const members: Record<string, unknown> = {};
  for (const name of MEMBERS) {
    const value = options[name];
    if (value !== undefined) members[name] = name === 'runAt' || name === 'deadline' ? instantOf(name, value) : value;
  }
  return members as SubmissionMembers;
}

/** JSON text of a body, around an input that is JSON text already. */
export function renderBody(type: string, input: string, members: SubmissionMembers): string {
  const others = JSON.stringify(members).slice(1, -1);
  return `{"type":${JSON.stringify(type)},"input":${input}${others === '' ? '' : `,${others}`}}`;
}

/**
 * Milliseconds by which the `index`-th of `count` tasks is put off, where they are to start spread over `spreadMs`: each at an
 * arbitrary moment of its own share.
 */
export function spreadDelayMs(index: number, count: number, spreadMs: number, random: () => number): number {
  return Math.floor(((index + random()) * spreadMs) / count);
}

function instantOf(name: string, value: unknown): string {
  if (typeof value === 'string') return value;
  const isDate = Object.prototype.toString.call(value) === '[object Date]';
  if (!isDate || Number.isNaN((value as Date).getTime())) {
    throw new InputRefusedError(name, 'must be a valid Date, or an RFC 3339 text', 'field-invalid');
  }
  return (value as Date).toISOString();
}
