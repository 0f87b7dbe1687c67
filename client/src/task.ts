/** A task as the Task API shows it, and what its end means to whoever waits for it. */
import { TaskCancelledError, TaskDeadError, TaskExpiredError } from './errors.ts';

/** States of a task. The last four are ends. */
export type TaskState =
  | 'pending'
  | 'scheduled'
  | 'blocked'
  | 'running'
  | 'retrying'
  | 'succeeded'
  | 'dead'
  | 'cancelled'
  | 'expired';

/** An attempt that did not succeed at once. */
export interface Attempt {
  readonly attempt: number;
  readonly worker: string;
  readonly startedAt: string;
  readonly finishedAt: string;
  readonly outcome: 'failed' | 'timeout' | 'deferred' | 'interrupted' | 'cancelled' | 'lost';
  readonly codeVersion?: string;
  readonly error?: {
    readonly type?: string;
    readonly code?: string;
    readonly message?: string;
    readonly stack?: string;
  };
}

/** A task. Instants are RFC 3339 texts. */
export interface Task<Result = unknown> {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly state: TaskState;
  readonly priority: number;
  readonly generation: number;
  readonly attempt: number;
  readonly failures: number;
  readonly maxAttempts: number;
  readonly lostAttempts: number;
  readonly acceptedAt: string;
  readonly invitedAt?: string;
  readonly runAt?: string;
  readonly deadline?: string;
  readonly startedAt?: string;
  readonly finishedAt?: string;
  readonly worker?: string;
  readonly businessKey?: string;
  readonly externalId?: string;
  readonly publisher?: string;
  readonly correlationId?: string;
  readonly tags?: readonly string[];
  /** The trace that it belongs to, 32 hexadecimal digits, where it was submitted in one. */
  readonly traceId?: string;
  readonly progress?: {
    readonly fraction: number;
    readonly step?: string;
    readonly message?: string;
    readonly updatedAt: string;
  };
  /** While it waits: when it may start. */
  readonly estimatedStart?: {
    readonly position?: number;
    readonly secondsP50?: number;
    readonly secondsP90?: number;
    readonly atP50?: string;
    readonly atP90?: string;
    readonly from: 'rates' | 'run-at';
  };
  /** While it runs: when the attempt may end. */
  readonly estimatedFinish?: {
    readonly secondsLeft: number;
    readonly at: string;
    readonly from: 'pace' | 'history' | 'both';
  };
  readonly cancelRequestedAt?: string;
  readonly deadLetterId?: string;
  /** The flow that it is a step of; `why`: why that cancelled it. */
  readonly flow?: { readonly id: string; readonly step?: string; readonly why?: string };
  readonly attempts: readonly Attempt[];
  /** As it was sent; with an `inputFile` an outline of it. */
  readonly input: Readonly<Record<string, unknown>>;
  /** Where the whole input is, where it is too large to stand here. */
  readonly inputFile?: { readonly id: string; readonly bytes: number; readonly sha256: string; readonly link: string };
  readonly result?: Result;
  /** What the handler returned, where it is too large to stand here; `result(id)` reads it. */
  readonly resultFile?: {
    readonly id: string;
    readonly name: string;
    readonly contentType: string;
    readonly bytes: number;
    readonly sha256: string;
    readonly link: string;
  };
}

/** True for the four ends. */
export function hasEnded({ state }: Pick<Task, 'state'>): boolean {
  return state === 'succeeded' || state === 'dead' || state === 'cancelled' || state === 'expired';
}

/** The result of a task that has ended. Throws `TaskDeadError`, `TaskCancelledError`, `TaskExpiredError`. */
export function resultOf<Result>(task: Task<Result>): Result {
  const { id, state, deadLetterId } = task;
  const error = task.attempts.findLast((attempt) => attempt.error !== undefined)?.error;
  switch (state) {
    case 'succeeded':
      return task.result as Result;
    case 'cancelled':
      throw new TaskCancelledError(id, state);
    case 'expired':
      throw new TaskExpiredError(id, state);
    case 'dead':
      throw new TaskDeadError(id, state, { ...(error === undefined ? {} : { error }), deadLetterId });
    case 'pending':
    case 'scheduled':
    case 'blocked':
    case 'running':
    case 'retrying':
      throw new TypeError(`task ${id} has not ended: it is ${state}`);
  }
}
