/**
 * How a task type is made: name, input schema, policy, handler. Everything about it is checked where it is defined, so
 * that a mistake shows when the module loads and not when the first task runs.
 */
import type { Readable } from 'node:stream';
import { z } from 'zod';
import { WarrenError } from '../errors/warren-error.ts';
import type { FileDescription, FileReference } from '../files/file-reference.ts';
import type { Logger } from '../observability/log.ts';
import type { AddStep } from './add-step.ts';
import type { StepResults } from './step-results.ts';
import type { TaskId } from './ids.ts';
import { isLimitKey } from './limit-key.ts';
import type { Once } from './once.ts';
import type { SettlingClient } from './settling-client.ts';
import { DEFAULT_RETRY } from './retry-policy.ts';
import type { ErrorRule, RetryPolicy } from './retry-policy.ts';
import type { SchemaInput, SchemaOutput, StandardSchema } from './standard-schema.ts';

/** Where a handler runs: on the worker's event loop, or in a thread that can be killed at the timeout. */
export type Isolation = 'loop' | 'thread';

/** How many tasks of a type run at once in the whole fleet. */
export interface ConcurrencyLimit {
  /** 1 to 1 000. */
  readonly limit: number;
  /** Member of the input whose values have a limit each, such as `input.tenantId`; without it the type has one. */
  readonly key?: string;
}

/** How many tasks of a type start within a time in the whole fleet. */
export interface RateLimit {
  /** 1 to 1 000. For more, take a shorter time: 6 000 a minute are 100 a second. */
  readonly limit: number;
  /** Milliseconds, 100 to 86 400 000 (a day): in no span of so long do more start. */
  readonly perMs: number;
  /** As for the concurrency. */
  readonly key?: string;
}

/** What an author writes. */
export interface TaskDefinition<Schema extends StandardSchema, Result> {
  /** `report.csv`: lower case, digits, words joined by `.`, `_` or `-`; at most 100 characters. Also the routing key. */
  readonly name: string;
  /** Schema of the input: zod or any Standard Schema. */
  readonly input: Schema;
  /** Named queue, in the form of a name. Default `default`. */
  readonly queue?: string;
  /** 0 to 9, 9 first. Default 4. */
  readonly priority?: number;
  /** Retry policy; what is left out is DEFAULT_RETRY's. */
  readonly retry?: Partial<RetryPolicy>;
  /** Longest run of one attempt, in milliseconds. 1 to 2 592 000 000 (30 days). Default 900 000 (15 min). */
  readonly timeoutMs?: number;
  /** Default `loop`. */
  readonly isolation?: Isolation;
  /** Tasks that run at once, fleet-wide; what is beyond waits without holding a slot. Default: no limit. */
  readonly concurrency?: ConcurrencyLimit;
  /** Tasks that start within a time, fleet-wide. Default: no limit. */
  readonly rate?: RateLimit;
  /** Keeps the log lines of attempts that succeed as well; those of all others are kept anyway. Default false. */
  readonly keepLogs?: boolean;
  /** The handler. Its value is stored as JSON; whatever it throws fails the attempt. */
  run(input: SchemaOutput<Schema>, ctx: TaskContext): Promise<Result> | Result;
}

/** A task type. `Input` is what a submitter sends, `Result` what the handler returns. Frozen. */
export interface TaskType<Input = unknown, Result = unknown> {
  /** Tells a task type from any other export of a module, over realms and copies of this file. */
  readonly warren: 'task-type';
  readonly name: string;
  readonly input: StandardSchema<Input, unknown>;
  readonly queue: string;
  readonly priority: number;
  readonly retry: RetryPolicy;
  readonly timeoutMs: number;
  readonly isolation: Isolation;
  readonly concurrency: ConcurrencyLimit | undefined;
  readonly rate: RateLimit | undefined;
  /** Whether log lines of attempts that succeed are kept; absent in what an older copy of this file made. */
  readonly keepLogs?: boolean;
  /** Called by the worker with what the schema gave. */
  run(input: unknown, ctx: TaskContext): Promise<Result> | Result;
}

/** What a file is read from: a path, bytes, or a stream of bytes. */
export type FileSource = string | Uint8Array | Readable;

/** What a handler gets for one attempt. What it does not touch costs nothing. */
export interface TaskContext {
  /** Aborts at the timeout, on cancel, at shutdown after the grace time, and when the worker lost its lease. */
  readonly signal: AbortSignal;
  readonly taskId: TaskId;
  /** Number of this attempt, from 1. */
  readonly attempt: number;
  /**
   * For outside systems: it only ever rises for one `taskId`, over retries, hand-backs and replays. A system that keeps the
   * highest it has seen for a task and refuses lower ones is safe from an attempt that was cut off and does not know it.
   */
  readonly fencingToken: number;
  /**
   * Where this attempt stands in a trace (W3C Trace Context), to send along with calls; absent where its task was submitted in none. Where
   * OpenTelemetry runs in the worker, instrumented calls do so by themselves.
   */
  readonly traceparent?: string | undefined;
  /** What goes along with `traceparent`, where there is such. */
  readonly tracestate?: string | undefined;
  /**
   * Lines carry the task's id, type and attempt, and where there are such its trace, flow and business key. Those of an attempt that does not succeed are kept with it, as are those of
   * types with `keepLogs`: the first and the last, 200 lines and 64 KiB together.
   */
  readonly log: Logger;
  /**
   * Tells how far it is: 0 to 1 (cut to that), in what step (at most 200 characters), and what there is to say of it (at most
   * 1 000). The last word wins and is readable within a second; cheap, so that it may be called for every row.
   */
  readonly progress: (fraction: number, step?: string, message?: string) => void;
  /**
   * Calls `fn` behind the circuit breaker `name`, one per name and process. While the breaker is open, `fn` is not
   * called and the task is deferred, which costs no attempt. `signal` aborts with the attempt or at the breaker's
   * timeout: pass it on, else the call goes on unseen.
   */
  readonly breaker: <T>(name: string, fn: (signal: AbortSignal) => Promise<T>) => Promise<T>;
  /** A directory of this attempt's own, made at the first call, removed after the attempt. */
  readonly tempDir: () => Promise<string>;
  /**
   * Keeps a file beyond the attempt: its bytes go to the store as they are read. Put the reference that it gives into the result. A
   * file counts only if its attempt succeeds; those of other attempts are deleted. Throws what `source` throws,
   * `file-store-unavailable` (a retry may help), `file-too-large`, and `file-store-missing` where no store is configured.
   */
  readonly saveFile: (source: FileSource, description: FileDescription) => Promise<FileReference>;
  /** Ends the attempt: run again after `delayMs` (100 to 2 592 000 000, cut to that), without counting it as failed. */
  readonly defer: (delayMs: number) => never;
  /**
   * Does a side effect once for the task: the finished result of `fn` is kept under `key` and given to later attempts, which do
   * not call `fn` again. Throws `once-unknown` where an earlier run was cut in the middle, unless `ifUnknown` decides;
   * `claim-lost` where the attempt has lost its claim; `once-invalid` for a key, or a result, that cannot be kept.
   */
  readonly once: Once;
  /**
   * Settles this attempt as succeeded with `result` inside the open transaction of `client`, which must be on Warren's own
   * database: what the handler wrote there and the task's success are committed together or not at all. Call it last, then
   * commit. Throws `claim-lost`, after which the transaction cannot be committed any more, and `settle-refused` with `reason`.
   */
  readonly settleWith: (client: SettlingClient, result?: unknown) => Promise<void>;
  /**
   * Adds a step to the flow of which this task is a step, or with `inputs` a group of so many. What is added begins once this step has succeeded, and
   * whatever waits for this step waits for it too. Once for each name: a later attempt, or another call, that adds the same is given what is there
   * (`duplicate`). What an attempt added stays, whatever becomes of the attempt. Throws `step-refused` where the task is no step of a flow, its flow
   * has stopped, or the name was added with other content; `field-invalid`, `task-type-unknown` and what else a submission is refused for, with
   * `field`; `claim-lost` where the attempt has lost its claim: then nothing was added.
   */
  readonly addStep: AddStep;
  /**
   * The results of a step of the flow of which this task is one, in their order: of each member of a group, of a single step one. They are fetched page by
   * page as they are asked for, so that there may be any number. Null for a member that gave nothing, failed, or has not ended: name the step in `after` to
   * have waited for it. A result that is too large for its row is the reference to its file. Throws, where it is first asked for a result,
   * `step-not-found` where the task is no step of a flow, or its flow has no step of that name; `field-invalid` for a path that is none; once the
   * signal has aborted, its reason.
   */
  readonly stepResults: StepResults;
}

/** What workers announce of a task type, so that others validate and show it without loading its code. */
export interface TaskTypeDescription {
  readonly name: string;
  readonly queue: string;
  readonly priority: number;
  readonly timeoutMs: number;
  readonly isolation: Isolation;
  readonly keepLogs: boolean;
  readonly retry: { readonly maxAttempts: number; readonly firstDelayMs: number; readonly maxDelayMs: number };
  readonly concurrency?: ConcurrencyLimit | undefined;
  readonly rate?: RateLimit | undefined;
  /** JSON Schema 2020-12 of the input, `undefined` where the schema's library makes none: then workers alone check. */
  readonly inputSchema: Record<string, unknown> | undefined;
}

/** Queue of a type that names none. */
export const DEFAULT_QUEUE = 'default';
/** Priority of a type that names none. */
export const DEFAULT_PRIORITY = 4;
/** Timeout of a type that names none, in milliseconds. */
export const DEFAULT_TIMEOUT_MS = 900_000;

const NAME = /^[a-z][a-z0-9]*([._-][a-z0-9]+)*$/;
const LONGEST_NAME = 100;
const LONGEST_TIMEOUT_MS = 2_592_000_000;
const LONGEST_FIRST_DELAY_MS = 86_400_000;
const MOST_UNDER_A_LIMIT = 1_000;
const LONGEST_RATE_MS = 86_400_000;

/** Defines a task type. Throws `task-module-invalid` with `field` and `reason` for the first rule that is broken. */
export function defineTask<Schema extends StandardSchema, Result>(
  definition: TaskDefinition<Schema, Result>,
): TaskType<SchemaInput<Schema>, Result> {
  const retry = compileRetryPolicy(definition.name, definition.retry);
  const type: TaskType<SchemaInput<Schema>, Result> = {
    warren: 'task-type',
    name: definition.name,
    input: definition.input as StandardSchema<SchemaInput<Schema>, unknown>,
    queue: definition.queue ?? DEFAULT_QUEUE,
    priority: definition.priority ?? DEFAULT_PRIORITY,
    retry,
    timeoutMs: definition.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    isolation: definition.isolation ?? 'loop',
    concurrency: definition.concurrency,
    rate: definition.rate,
    keepLogs: definition.keepLogs ?? false,
    run: (input, ctx) => definition.run(input as SchemaOutput<Schema>, ctx),
  };
  checkType(type, typeof definition.run);
  return Object.freeze(type);
}

/** True for what `defineTask` made, also in another realm or by another copy of this file. */
export function isTaskType(value: unknown): value is TaskType {
  return (
    typeof value === 'object' &&
    value !== null &&
    'warren' in value &&
    value.warren === 'task-type' &&
    'run' in value &&
    typeof value.run === 'function' &&
    'name' in value &&
    isName(value.name)
  );
}

/** True for a name of a task type or a queue. Names that every object has (`constructor`) are none. */
export function isName(value: unknown): value is string {
  return (
    typeof value === 'string' &&
    value.length <= LONGEST_NAME &&
    NAME.test(value) &&
    !(value in Object.prototype) &&
    value !== 'prototype'
  );
}

/** Describes a type for its announcement. */
export function describeTask(type: TaskType): TaskTypeDescription {
  const { name, queue, priority, timeoutMs, isolation, keepLogs = false, concurrency, rate } = type;
  const { maxAttempts, firstDelayMs, maxDelayMs } = type.retry;
  return {
    name,
    queue,
    priority,
    timeoutMs,
    isolation,
    keepLogs,
    retry: { maxAttempts, firstDelayMs, maxDelayMs },
    concurrency,
    rate,
    inputSchema: jsonSchemaOf(type),
  };
}

function jsonSchemaOf(type: TaskType): Record<string, unknown> | undefined {
  const standard = type.input['~standard'];
  try {
    if (standard.vendor === 'zod' && '_zod' in type.input) {
      return z.toJSONSchema(type.input as unknown as z.ZodType, { io: 'input', target: 'draft-2020-12' });
    }
    return standard.jsonSchema?.input({ target: 'draft-2020-12' });
  } catch {
    return undefined; // a schema beyond JSON (z.date(), a transform): only workers can check it
  }
}

function checkType(type: TaskType, kindOfRun: string): void {
  const fail = (field: string, reason: string): never => {
    throw new WarrenError('task-module-invalid', { taskType: String(type.name), field, reason });
  };
  if (!isName(type.name)) {
    fail(
      'name',
      `must look like report.csv: ${NAME.source}, at most ${LONGEST_NAME} characters, and not a name that every object has`,
    );
  }
  if (!isName(type.queue)) fail('queue', `must look like a task type's name, at most ${LONGEST_NAME} characters`);
  if (!isIntegerIn(type.priority, 0, 9)) fail('priority', 'must be an integer from 0 to 9');
  if (!isIntegerIn(type.timeoutMs, 1, LONGEST_TIMEOUT_MS)) {
    fail('timeoutMs', `must be an integer from 1 to ${LONGEST_TIMEOUT_MS} milliseconds`);
  }
  if (type.isolation !== 'loop' && type.isolation !== 'thread') fail('isolation', "must be 'loop' or 'thread'");
  checkLimits(type, fail);
  if (typeof type.keepLogs !== 'boolean') fail('keepLogs', 'must be true or false');
  if (kindOfRun !== 'function') fail('run', 'must be a function');
  if (!isStandardSchema(type.input)) fail('input', 'must be a zod schema or another Standard Schema');
}

function checkLimits({ concurrency, rate }: TaskType, fail: (field: string, reason: string) => never): void {
  for (const [name, limit] of [
    ['concurrency', concurrency],
    ['rate', rate],
  ] as const) {
    if (limit === undefined) continue;
    if (typeof limit !== 'object' || limit === null) fail(name, 'must be an object with a limit');
    if (!isIntegerIn(limit.limit, 1, MOST_UNDER_A_LIMIT)) {
      fail(`${name}.limit`, `must be an integer from 1 to ${MOST_UNDER_A_LIMIT}`);
    }
    if (limit.key !== undefined && !isLimitKey(limit.key)) {
      fail(`${name}.key`, 'must name a member of the input, such as input.tenantId');
    }
  }
  if (rate !== undefined && !isIntegerIn(rate.perMs, 100, LONGEST_RATE_MS)) {
    fail('rate.perMs', `must be an integer from 100 to ${LONGEST_RATE_MS} milliseconds`);
  }
}

function compileRetryPolicy(taskType: unknown, given: Partial<RetryPolicy> = {}): RetryPolicy {
  const retry = { ...DEFAULT_RETRY, ...given };
  const fail = (field: string, reason: string): never => {
    throw new WarrenError('task-module-invalid', { taskType: String(taskType), field: `retry.${field}`, reason });
  };
  if (!isIntegerIn(retry.maxAttempts, 1, 100)) fail('maxAttempts', 'must be an integer from 1 to 100');
  if (!isIntegerIn(retry.firstDelayMs, 0, LONGEST_FIRST_DELAY_MS)) {
    fail('firstDelayMs', `must be an integer from 0 to ${LONGEST_FIRST_DELAY_MS} milliseconds`);
  }
  if (!isIntegerIn(retry.maxDelayMs, retry.firstDelayMs, LONGEST_TIMEOUT_MS)) {
    fail('maxDelayMs', `must be an integer from firstDelayMs to ${LONGEST_TIMEOUT_MS} milliseconds`);
  }
  if (!isErrorRule(retry.retryOn)) fail('retryOn', 'must be an array of error codes and names, or a predicate');
  if (!isErrorRule(retry.neverOn)) fail('neverOn', 'must be an array of error codes and names, or a predicate');
  return Object.freeze(retry);
}

function isErrorRule(value: unknown): value is ErrorRule | undefined {
  if (value === undefined || typeof value === 'function') return true;
  return Array.isArray(value) && value.every((entry) => typeof entry === 'string');
}

function isStandardSchema(value: unknown): boolean {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null || !('~standard' in value))
    return false;
  const standard = value['~standard'];
  return (
    typeof standard === 'object' &&
    standard !== null &&
    'validate' in standard &&
    typeof standard.validate === 'function'
  );
}

function isIntegerIn(value: unknown, least: number, most: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most;
}
