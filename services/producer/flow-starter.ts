/** Starts flows: their rows, their steps, and a task for each step that is made now. */
import { toError } from '../../shared/errors/to-error.ts';
import { Bug, WarrenError } from '../../shared/errors/warren-error.ts';
import type { FlowBody } from '../../shared/flows/flow-body.ts';
import type { PlannedNested, PlannedTasks } from '../../shared/flows/planned-flow.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { runSplitting } from '../../shared/postgres/split.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import type { Submission } from '../../shared/tasks/submission.ts';
import { columnsOf } from './flow-columns.ts';
import { inviteFreed } from './flow-invitations.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Tracing } from '../../shared/observability/tracing.ts';
import type { TraceText } from '../../shared/observability/trace-context.ts';
import type { FlowsDeps } from './flows.ts';
import { acceptFlows, findFlowKey, inheritFlowKey, takeFlowKey } from './flows.sql.ts';
import { takeWholeKey } from './repeats.ts';
import { moveIdempotencyKey } from './repeats.sql.ts';

/** A flow that was started, or the one that holds its business key. */
export type StartedFlow =
  | { readonly kind: 'started'; readonly id: string; readonly state: string; readonly createdAt: Date }
  /** `isReplayed`: the same request came before. */
  | { readonly kind: 'existing'; readonly id: string; readonly isReplayed: boolean };

/** A flow to be started. */
export interface PlannedFlow extends PlannedTasks {
  readonly id: string;
  readonly body: FlowBody;
  /** The flows that are steps of it, at every level. */
  readonly nested: readonly PlannedNested[];
  readonly createdBy: string;
  /** The Idempotency-Key of the request, of `createdBy`. */
  readonly idempotency?: Submission['idempotency'];
  /** Where it stands in a trace, and with it all its steps. */
  readonly trace?: TraceText | undefined;
}

/** What starting needs. */
export interface FlowStarterDeps extends FlowsDeps {
  readonly metrics: Pick<Metrics, 'flowsStarted'>;
  /** Makes spans; `undefined` where nobody wants any. */
  readonly tracing?: Tracing | undefined;
}

/** Flows that are accepted by one statement; one of more tasks than `LARGE` goes alone. */
const MOST_TOGETHER = 50;
const LARGE = 200;
/** Times that the holder of a business key may vanish while it is asked for. */
const MOST_ROUNDS = 10;

/** Starts planned flows, those that come at once together. */
export class FlowStarter {
  readonly #deps: FlowStarterDeps;
  readonly #batcher: Batcher<PlannedFlow, StartedFlow | WarrenError>;

  constructor(deps: FlowStarterDeps) {
    this.#deps = deps;
    this.#batcher = new Batcher(async (batch) => await this.#startTogether(batch), {
      maxBatch: MOST_TOGETHER,
      lanes: 2,
    });
  }

  /** Starts one. Throws `unique-conflict`, and as `Queryable.query`. */
  async start(flow: PlannedFlow): Promise<StartedFlow> {
    const { tracing, metrics } = this.#deps;
    const span = tracing?.publish({ queue: flow.body.name, flowId: flow.id }, flow.trace);
    try {
      const started = await this.#start(span === undefined ? flow : { ...flow, trace: span.trace });
      if (started.kind === 'started') metrics.flowsStarted.add(1, flow.body.name);
      span?.end({ 'warren.flow.id': started.id, 'warren.acceptance': started.kind });
      return started;
    } catch (thrown) {
      span?.threw(thrown);
      throw thrown;
    }
  }

  async #start(flow: PlannedFlow): Promise<StartedFlow> {
    const { body, id, idempotency, createdBy } = flow;
    const isSimple = body.businessKey === undefined && idempotency === undefined;
    if (isSimple && flow.nested.length === 0 && flow.steps.length <= LARGE) {
      const started = await this.#batcher.add(flow);
      if ('kind' in started) return started;
      throw started;
    }
    const { started, holder, isReplayed } = await inTransaction(this.#deps.db, async (tx) => {
      const becomes = { id, became: 'accepted' as const };
      const earlier = idempotency === undefined ? undefined : await takeWholeKey(tx, createdBy, idempotency, becomes);
      if (earlier !== undefined) return { holder: earlier, isReplayed: true };
      const holder = await takeKey(tx, body, id);
      if (holder === id) return { started: await this.accept(tx, [flow]), holder, isReplayed: false };
      // Thrown in here, so that the key of a refused request is not kept.
      if (body.onConflict === 'reject') throw refusal(holder);
      if (idempotency !== undefined) await run(tx, moveIdempotencyKey, createdBy, idempotency.key, holder);
      return { holder, isReplayed: false };
    });
    if (started !== undefined) return started()[0] as StartedFlow;
    return { kind: 'existing', id: holder, isReplayed };
  }

  /**
   * Takes the business key of a flow, inside a transaction; gives the flow that holds it from now on. Before the flow is accepted, so that
   * the same transaction may decide otherwise.
   */
  async takeKey(tx: Queryable, { body, id }: Pick<PlannedFlow, 'body' | 'id'>): Promise<string> {
    return await takeKey(tx, body, id);
  }

  /**
   * Accepts flows that hold their keys, inside a transaction. Gives what is to be done once that is committed: it publishes what starts, and
   * says what was started.
   */
  async accept(tx: Queryable, flows: readonly PlannedFlow[]): Promise<() => readonly StartedFlow[]> {
    const { invite, holdReasonOf } = this.#deps;
    const { params, invitations } = columnsOf(flows, (queue) => holdReasonOf(queue) !== undefined);
    const rows = await run(tx, acceptFlows, ...params);
    return () => {
      const outboxId = rows.find(({ invited_by: id }) => id !== null)?.invited_by ?? undefined;
      if (outboxId !== undefined) void invite({ id: outboxId, invitations }); // never rejects
      inviteFreed(rows, invite);
      const byId = new Map(rows.map((row) => [row.flow_id, row]));
      return flows.map(({ id }) => {
        const row = byId.get(id);
        if (row === undefined || row.state === null || row.created_at === null)
          throw new Bug('a flow was accepted without an answer');
        return { kind: 'started', id, state: row.state, createdAt: row.created_at };
      });
    };
  }

  /** Of those that have no key, none is left out; one that Postgres refuses takes no other along. */
  async #startTogether(batch: readonly PlannedFlow[]): Promise<readonly (StartedFlow | WarrenError)[]> {
    const { db, log } = this.#deps;
    return await runSplitting<PlannedFlow, StartedFlow | WarrenError>(
      db,
      batch,
      async (flows) => (await this.accept(db, flows))(),
      ({ body }, thrown) => {
        const err = toError(thrown);
        log.warn('flow refused by postgres', { flow: body.name, err });
        return new WarrenError('field-invalid', { field: 'flow', reason: `cannot be stored: ${err.message}` }, err);
      },
    );
  }
}

function refusal(holder: string): WarrenError {
  return new WarrenError('unique-conflict', {
    field: 'businessKey',
    reason: `is held by flow ${holder}`,
    flowId: holder,
  });
}

/** Gives the flow that holds the key from now on. */
async function takeKey(tx: Queryable, { businessType = '', businessKey }: FlowBody, id: string): Promise<string> {
  if (businessKey === undefined) return id;
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    if ((await run(tx, takeFlowKey, businessType, businessKey, id)).length > 0) return id;
    if ((await run(tx, inheritFlowKey, businessType, businessKey, id)).length > 0) return id;
    const [held] = await run(tx, findFlowKey, businessType, businessKey);
    if (held !== undefined) return held.flow_id;
  }
  throw new Bug('a business key changes hands too often');
}
