/** What can go wrong, each with a code that never changes: programs compare `code`, people read `message`. */

/** The problem document that a service answered (RFC 9457). */
export interface Problem {
  /** The error code, such as `input-invalid`. */
  readonly type: string;
  readonly title: string;
  readonly status?: number;
  readonly detail?: string;
  /** The first field at fault: `priority`, `input.user.id`. */
  readonly field?: string;
  readonly reason?: string;
  /** All that is wrong with a submission. */
  readonly faults?: readonly { readonly code: string; readonly field: string; readonly reason: string }[];
  readonly [member: string]: unknown;
}

/** Base of all errors of this package. */
export class WarrenClientError extends Error {
  override readonly name: string = 'WarrenClientError';
  /** A code of Warren's catalogue of errors. */
  readonly code: string;

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** Warren refused, and said why. */
export class ProblemError extends WarrenClientError {
  override readonly name = 'ProblemError';
  readonly problem: Problem;
  /** HTTP status; `undefined` where Postgres refused. */
  readonly status: number | undefined;
  readonly field: string | undefined;
  readonly reason: string | undefined;

  constructor(problem: Problem, cause?: unknown) {
    const { type, title, status, field, reason } = problem;
    super(type, [title, field, reason].filter((part) => part !== undefined).join(' '), cause);
    this.problem = problem;
    this.status = status;
    this.field = field;
    this.reason = reason;
  }
}

/** An input or an option cannot be sent: JSON would change it. Nothing was sent. */
export class InputRefusedError extends WarrenClientError {
  override readonly name = 'InputRefusedError';
  /** The place: `input.user.createdAt`. */
  readonly field: string;
  readonly reason: string;

  constructor(field: string, reason: string, code = 'input-invalid') {
    super(code, `${field} ${reason}`);
    this.field = field;
    this.reason = reason;
  }
}

/** Nobody answered within the time, however often it was tried. What was sent may have been accepted. */
export class UnreachableError extends WarrenClientError {
  override readonly name = 'UnreachableError';

  constructor(message: string, cause?: unknown, code = 'server-unreachable') {
    super(code, message, cause);
  }
}

/** The wait was over before the task. It goes on. */
export class WaitTimeoutError extends WarrenClientError {
  override readonly name = 'WaitTimeoutError';
  readonly taskId: string;

  constructor(taskId: string, timeoutMs: number, state: string | undefined) {
    super(
      'wait-timeout',
      `task ${taskId} had not ended after ${timeoutMs} ms${state === undefined ? '' : `: it is ${state}`}`,
    );
    this.taskId = taskId;
  }
}

/** The task ended without a result. */
export class TaskEndedError extends WarrenClientError {
  override readonly name: string = 'TaskEndedError';
  readonly taskId: string;
  readonly state: 'dead' | 'cancelled' | 'expired';
  /** The error of its last attempt; `undefined` where none failed. */
  readonly error: { readonly type?: string; readonly code?: string; readonly message?: string } | undefined;
  /** Its open dead letter, which can be replayed. */
  readonly deadLetterId: string | undefined;

  constructor(
    taskId: string,
    state: 'dead' | 'cancelled' | 'expired',
    more: { readonly error?: TaskEndedError['error']; readonly deadLetterId?: string | undefined } = {},
  ) {
    const said = more.error?.message;
    super(`task-${state}`, `task ${taskId} is ${state}${said === undefined ? '' : `: ${said}`}`);
    this.taskId = taskId;
    this.state = state;
    this.error = more.error;
    this.deadLetterId = more.deadLetterId;
  }
}

/** The task failed for good. */
export class TaskDeadError extends TaskEndedError {
  override readonly name = 'TaskDeadError';
}

/** The task was cancelled. */
export class TaskCancelledError extends TaskEndedError {
  override readonly name = 'TaskCancelledError';
}

/** The task had not started by its deadline. */
export class TaskExpiredError extends TaskEndedError {
  override readonly name = 'TaskExpiredError';
}
