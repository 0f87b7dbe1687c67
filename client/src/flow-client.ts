/** Flows over HTTP: start, look, wait, signal, retry, cancel. */
import { WaitTimeoutError } from './errors.ts';
import type { FlowDefinition } from './flow.ts';
import type { HttpTransport } from './http-transport.ts';
import { renderInput } from './input.ts';
import type { CallOptions } from './options.ts';
import { quoteKey } from './quote-key.ts';
import { startLimit } from './time.ts';
import { traceOf } from './trace.ts';
import type { TraceOptions } from './trace.ts';
import type { ClientDeps } from './time.ts';

/** What a start can ask for. */
export interface StartFlowOptions extends CallOptions, TraceOptions {
  /** What the flow is about: one at a time of its business type. */
  readonly businessKey?: string;
  /** While another flow holds the business key: answer with that (`return`, the default), or refuse (`reject`: `unique-conflict`). */
  readonly onConflict?: 'return' | 'reject';
  /** Marks for the tasks of its steps, at most 20 of 100 characters. */
  readonly tags?: readonly string[];
  /** The same call under the same key within seven days starts one flow. Default: a new key each call. */
  readonly idempotencyKey?: string;
}

/** A flow that was started. */
export interface StartedFlow {
  readonly id: string;
  /** True where there was one about the same thing already, and this is it. */
  readonly duplicate: boolean;
}

/** States of a flow. */
export type FlowState = 'pending' | 'running' | 'succeeded' | 'failed' | 'partial' | 'cancelled';

/** A step as it stands. */
export interface FlowStep {
  readonly name: string;
  readonly kind: 'step' | 'undo' | 'failure';
  readonly type?: string;
  readonly after: readonly string[];
  /** `planned`: its task is made when it comes to that. Of a group see `states`. */
  readonly state?: string;
  readonly taskId?: string;
  /** The flow that the step is, in place of a task. */
  readonly flow?: Pick<Flow, 'id' | 'name' | 'state' | 'steps'>;
  readonly deadLetterId?: string;
  readonly why?: string;
  /** Of a group: how many of its tasks are in which state. */
  readonly states?: Readonly<Record<string, number>>;
}

/** A flow as it stands. Members that are not here are answered too. */
export interface Flow {
  readonly id: string;
  readonly name: string;
  readonly state: FlowState;
  readonly businessType?: string;
  readonly businessKey?: string;
  /** The flow of which this one is a step. */
  readonly parent?: { readonly id: string; readonly step?: string };
  /** A nested flow is one. */
  readonly steps: { readonly total: number; readonly open: number; readonly failed: number };
  /** All tasks: its own, and those of the flows nested in it. */
  readonly tasks?: { readonly total: number; readonly open: number };
  readonly createdAt: string;
  readonly startedAt?: string;
  readonly finishedAt?: string;
  readonly graph: readonly FlowStep[];
  /** What the last step gave; of several an object, by their names. */
  readonly result?: unknown;
}

/** What a member of a group, or a single step, gave. */
export interface StepResult<Result = unknown> {
  /** Its place in the group, from 0; absent for a single step. */
  readonly member?: number;
  /** Absent for a step that is a flow. */
  readonly taskId?: string;
  /** State of its task; absent where the task is deleted by now. */
  readonly state?: string;
  /** Absent for what gave none, failed, or has not ended; of one in the store of files the reference to its file. */
  readonly result?: Result;
}

const WAIT_TIMEOUT_MS = 60_000;
/** As many as the API gives at once. */
const RESULTS_OF_A_PAGE = 200;
const FIRST_POLL_MS = 50;
const LONGEST_POLL_MS = 1_000;

/** Speaks to the API of flows. */
export class FlowClient {
  readonly #deps: ClientDeps;
  readonly #transport: HttpTransport;

  constructor(deps: ClientDeps, transport: HttpTransport) {
    this.#deps = deps;
    this.#transport = transport;
  }

  /**
   * Starts a flow; when it resolves, the flow is committed. Sent again by itself until it is answered, under a key, so that there is one.
   * Throws `InputRefusedError` before anything is sent, `ProblemError`, `UnreachableError`.
   */
  async start<Input>(
    definition: FlowDefinition<Input>,
    input: Input,
    options: StartFlowOptions = {},
  ): Promise<StartedFlow> {
    const {
      businessKey,
      onConflict,
      tags,
      idempotencyKey,
      traceparent: _parent,
      tracestate: _state,
      ...call
    } = options;
    const others = JSON.stringify({ businessKey, onConflict, tags }).slice(1, -1);
    const body = `${definition.render(input)}${others === '' ? '' : `,${others}`}}`;
    const key = quoteKey(idempotencyKey ?? this.#deps.newKey());
    const headers = { 'idempotency-key': key, ...(await traceOf(options)) };
    const { value } = await this.#transport.send({ method: 'POST', path: '/v1/flows', body, headers }, call);
    return { id: String(value['id']), duplicate: value['duplicate'] === true };
  }

  /** A flow as it is now. Throws `ProblemError` (`flow-not-found`), `UnreachableError`. */
  async get(id: string, options: CallOptions = {}): Promise<Flow> {
    const { value } = await this.#transport.send({ method: 'GET', path: pathOf(id) }, options);
    return value as unknown as Flow;
  }

  /**
   * What the members of a group gave, or a single step, in their order: fetched page by page as they are asked for. `timeoutMs` is of each page. Throws
   * `ProblemError` (`flow-not-found`, `step-not-found`), `UnreachableError`.
   */
  async *results<Result = unknown>(
    id: string,
    step: string,
    options: CallOptions = {},
  ): AsyncGenerator<StepResult<Result>, void, undefined> {
    const path = `${pathOf(id)}/steps/${segmentOf(step)}/results?limit=${RESULTS_OF_A_PAGE}`;
    for (let cursor: unknown = ''; typeof cursor === 'string';) {
      const more = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const { value } = await this.#transport.send({ method: 'GET', path: `${path}${more}` }, options);
      yield* value['items'] as readonly StepResult<Result>[];
      cursor = value['nextCursor'];
    }
  }

  /** Waits for the end of a flow, whatever that is. Throws `WaitTimeoutError` where it goes on; `timeoutMs` is 60 000 by default. */
  async ended(id: string, options: CallOptions = {}): Promise<Flow> {
    const { signal, timeoutMs = WAIT_TIMEOUT_MS } = options;
    const limit = startLimit(this.#deps, timeoutMs, signal);
    let pollMs = FIRST_POLL_MS;
    let state: string | undefined;
    try {
      for (;;) {
        const flow = await this.#lookWithin(id, limit.leftMs(), signal);
        if (flow?.finishedAt !== undefined) return flow;
        state = flow?.state ?? state;
        if (flow === undefined || limit.leftMs() === 0) throw new WaitTimeoutError(id, timeoutMs, state);
        await this.#deps.sleep(Math.min(pollMs, limit.leftMs()), limit.signal);
        signal?.throwIfAborted();
        pollMs = Math.min(pollMs * 1.5, LONGEST_POLL_MS);
      }
    } finally {
      limit.end();
    }
  }

  /** `undefined` where nobody answered while the wait lasted. */
  async #lookWithin(id: string, timeoutMs: number, signal: AbortSignal | undefined): Promise<Flow | undefined> {
    try {
      return await this.get(id, { timeoutMs, ...(signal === undefined ? {} : { signal }) });
    } catch (thrown) {
      signal?.throwIfAborted();
      if ((thrown as { readonly code?: unknown }).code === 'server-unreachable') return undefined;
      throw thrown;
    }
  }

  /** Tells a flow of a signal; false where it was told before. Throws `ProblemError` (`flow-finished`, `flow-not-found`). */
  async signal(id: string, name: string, data?: object, options: CallOptions = {}): Promise<boolean> {
    const body = data === undefined ? '{}' : `{"data":${renderInput(data, 'data')}}`;
    const path = `${pathOf(id)}/signals/${encodeURIComponent(name)}`;
    const { value } = await this.#transport.send({ method: 'POST', path, body }, options);
    return value['duplicate'] !== true;
  }

  /** Cancels a flow. Throws `ProblemError` (`flow-finished`, `flow-not-found`). */
  async cancel(id: string, options: CallOptions & { readonly reason?: string } = {}): Promise<void> {
    const { reason, ...call } = options;
    await this.#transport.send(
      { method: 'POST', path: `${pathOf(id)}/cancel`, body: JSON.stringify({ reason }) },
      call,
    );
  }
}

function pathOf(id: string): string {
  return `/v1/flows/${segmentOf(id)}`;
}

/** Dots alone would lead elsewhere. */
function segmentOf(name: string): string {
  return /^\.{1,2}$/.test(name) ? '-' : encodeURIComponent(name);
}
