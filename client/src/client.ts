/** Hands tasks to Warren. One function for three ways: HTTP, AMQP, Postgres. */
import { AmqpClient } from './amqp-client.ts';
import type { AmqpOptions } from './amqp-client.ts';
import { HttpClient } from './http-client.ts';
import type { HttpOptions } from './http-transport.ts';
import { PoolClient } from './pool-client.ts';
import type { PoolOptions } from './pool-client.ts';
import { systemDeps } from './time.ts';
import type { ClientDeps } from './time.ts';

export type { AmqpClient, AmqpOptions, NewMessage, Published } from './amqp-client.ts';
export { defineFlow } from './flow.ts';
export type {
  FlowBuilder,
  FlowDefinition,
  FlowPolicy,
  NestedOptions,
  Ref,
  Step,
  StepOptions,
  WithRefs,
} from './flow.ts';
export type {
  Flow,
  FlowClient,
  FlowState,
  FlowStep,
  StartFlowOptions,
  StartedFlow,
  StepResult,
} from './flow-client.ts';
export { enqueueIn } from './enqueue-in.ts';
export type { PgQueryable, SchemaOptions } from './enqueue-in.ts';
export {
  InputRefusedError,
  ProblemError,
  TaskCancelledError,
  TaskDeadError,
  TaskEndedError,
  TaskExpiredError,
  UnreachableError,
  WaitTimeoutError,
  WarrenClientError,
} from './errors.ts';
export type { Problem } from './errors.ts';
export type {
  Cancelled,
  EnqueueManyOptions,
  EnqueuedOrRefused,
  HttpClient,
  NewTask,
  ResultOptions,
} from './http-client.ts';
export type { HttpOptions } from './http-transport.ts';
export type { CallOptions, EnqueueOptions, SubmissionOptions, UniqueOptions } from './options.ts';
export type { PoolClient, PoolOptions } from './pool-client.ts';
export type { Attempt, Task, TaskState } from './task.ts';
export type { Enqueued, TaskRef, TaskTypeLike, TypeOrName } from './task-type.ts';
export type { ClientDeps } from './time.ts';
export type { TraceOptions } from './trace.ts';

/** A client over HTTP: submits, waits for results, looks, cancels. */
export function createClient(options: HttpOptions, deps?: Partial<ClientDeps>): HttpClient;
/** A client over AMQP: publishes with confirms. Needs the package `amqplib`. */
export function createClient(options: AmqpOptions, deps?: Partial<ClientDeps>): AmqpClient;
/** A client over a pool of `pg`: accepts tasks in Postgres, also inside a transaction of the caller. */
export function createClient(options: PoolOptions, deps?: Partial<ClientDeps>): PoolClient;
export function createClient(
  options: HttpOptions | AmqpOptions | PoolOptions,
  deps: Partial<ClientDeps> = {},
): HttpClient | AmqpClient | PoolClient {
  const all: ClientDeps = { ...systemDeps, ...deps };
  if ('pool' in options) return new PoolClient(all, options);
  if ('amqpUrl' in options) return new AmqpClient(all, options);
  if ('url' in options) return new HttpClient(all, options);
  throw new TypeError('createClient takes { url, token }, { amqpUrl, prefix } or { pool }');
}
