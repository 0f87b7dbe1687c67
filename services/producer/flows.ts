/** Flows: started, shown, cancelled, told of signals. What moves them on is the end of their steps. */
import { Bug, WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import type { FlowBody } from '../../shared/flows/flow-body.ts';
import type { PlannedStep } from '../../shared/flows/plan-flow.ts';
import { arrayLiteral, run } from '../../shared/postgres/statement.ts';
import type { ParamsOf, Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { inTransaction, retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import { cancelEach } from './cancel.ts';
import {
  acceptFlows,
  cancelFlow,
  findFlowKey,
  inheritFlowKey,
  retryFlow,
  signalFlow,
  takeFlowKey,
} from './flows.sql.ts';
import { listFlows, readFlow, readFlowEdges, readFlowResults, readFlowSteps } from './flows-read.sql.ts';
import type { flowColumns } from './flows-read.sql.ts';

/** What flows need. */
export interface FlowsDeps {
  readonly db: Transactional;
  /** Publishes what was committed; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** Why what comes in for a queue is held back, where it is. */
  readonly holdReasonOf: (queue: string) => 'turn' | 'draining' | undefined;
}

/** A flow that was started, or the one that holds its business key. */
export type StartedFlow =
  | { readonly kind: 'started'; readonly id: string; readonly state: string; readonly createdAt: Date }
  | { readonly kind: 'existing'; readonly id: string };

/** A flow to be started. */
export interface PlannedFlow {
  readonly id: string;
  readonly body: FlowBody;
  readonly steps: readonly PlannedStep[];
  readonly createdBy: string;
}

/** A row of a list. */
export type FlowRow = RowOf<typeof flowColumns>;

/** Flows that are accepted by one statement; one of more tasks than `LARGE` goes alone. */
const MOST_TOGETHER = 50;
const LARGE = 200;
/** Times that the holder of a business key may vanish while it is asked for. */
const MOST_ROUNDS = 10;
const CANCEL_CHUNK = 500;
/** Milliseconds after which a retry of many answers, with what is done until then. */
const RETRY_WITHIN_MS = 5_000;
const RETRY_PAGE = 200;
/** What `retry_flow` says where another flow holds the business key. */
const KEY_IS_HELD = -1;

/** Starts planned flows, those that come at once together. */
export class FlowStarter {
  readonly #deps: FlowsDeps;
  readonly #batcher: Batcher<PlannedFlow, StartedFlow>;

  constructor(deps: FlowsDeps) {
    this.#deps = deps;
    this.#batcher = new Batcher(async (batch) => await this.#startTogether(batch), {
      maxBatch: MOST_TOGETHER,
      lanes: 2,
    });
  }

  /** Starts one. Throws `unique-conflict`, and as `Queryable.query`. */
  async start(flow: PlannedFlow): Promise<StartedFlow> {
    if (flow.steps.length <= LARGE && flow.body.businessKey === undefined) return await this.#batcher.add(flow);
    const { body, id } = flow;
    const { rows, holder } = await inTransaction(this.#deps.db, async (tx) => {
      const holder = await takeKey(tx, body, id);
      const numbered = this.#number(flow);
      return holder === id ? { rows: await this.#accept(tx, [numbered]), holder } : { rows: undefined, holder };
    });
    if (rows !== undefined) return rows()[0] as StartedFlow;
    if (body.onConflict === 'reject') {
      throw new WarrenError('unique-conflict', {
        field: 'businessKey',
        reason: `is held by flow ${holder}`,
        flowId: holder,
      });
    }
    return { kind: 'existing', id: holder };
  }

  /** Of those that have no key, none is left out. */
  async #startTogether(batch: readonly PlannedFlow[]): Promise<readonly StartedFlow[]> {
    const numbered = batch.map((flow) => this.#number(flow));
    return (await retryConflicts(this.#deps.db, async () => await this.#accept(this.#deps.db, numbered)))();
  }

  #number(flow: PlannedFlow): NumberedFlow {
    const steps = flow.steps.map((planned) => {
      const isFirst = planned.kind === 'step' && planned.waitsFor === 0;
      const isLate =
        planned.delayMs !== undefined ||
        planned.template !== undefined ||
        this.#deps.holdReasonOf(planned.task.queue) !== undefined;
      return {
        planned,
        taskId: planned.kind === 'step' ? newId<string>() : undefined,
        begins: isFirst ? (isLate ? ('late' as const) : ('start' as const)) : undefined,
      };
    });
    return { flow, steps };
  }

  /** Gives what is to be done once it is committed: publishes what starts, and says what was started. */
  async #accept(db: Queryable, flows: readonly NumberedFlow[]): Promise<() => readonly StartedFlow[]> {
    const rows = await run(db, acceptFlows, ...columnsOf(flows));
    return () => {
      const outboxId = rows.find(({ invited_by: id }) => id !== null)?.invited_by ?? undefined;
      if (outboxId !== undefined) void this.#deps.invite({ id: outboxId, invitations: invitationsOf(flows) }); // never rejects
      inviteFreed(rows, this.#deps.invite);
      const byId = new Map(rows.map((row) => [row.flow_id, row]));
      return flows.map(({ flow: { id } }) => {
        const row = byId.get(id);
        if (row === undefined || row.state === null || row.created_at === null)
          throw new Bug('a flow was accepted without an answer');
        return { kind: 'started', id, state: row.state, createdAt: row.created_at };
      });
    };
  }
}

function invitationsOf(flows: readonly NumberedFlow[]): OutboxRow['invitations'] {
  return flows.flatMap(({ steps }) =>
    steps
      .filter(({ begins }) => begins === 'start')
      .map(({ taskId = '', planned: { task } }) => ({
        taskId,
        type: task.type,
        queue: task.queue,
        priority: task.priority,
        generation: 1,
      })),
  );
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

/** A flow with its steps, what waits for what, and what it gave; `undefined` where there is none. */
export async function findFlow(
  db: Queryable,
  id: string,
): Promise<
  | {
      readonly flow: FlowRow;
      readonly steps: readonly RowOf<typeof readFlowSteps.columns>[];
      readonly edges: readonly RowOf<typeof readFlowEdges.columns>[];
      readonly results: readonly RowOf<typeof readFlowResults.columns>[];
    }
  | undefined
> {
  const [flow] = await run(db, readFlow, id);
  if (flow === undefined) return undefined;
  const [steps, edges, results] = await Promise.all([
    run(db, readFlowSteps, id),
    run(db, readFlowEdges, id),
    flow.finished_at === null ? [] : run(db, readFlowResults, id),
  ]);
  return { flow, steps, edges, results };
}

/** What a list of flows may ask for. */
export interface FlowFilter {
  readonly name?: string | undefined;
  readonly state?: string | undefined;
  readonly businessType?: string | undefined;
  readonly businessKey?: string | undefined;
}

const HIGHEST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** Flows, newest first. Throws as `Queryable.query`. */
export async function findFlows(
  db: Queryable,
  { name, state, businessType, businessKey }: FlowFilter,
  { limit, below = HIGHEST_ID }: { readonly limit: number; readonly below: string | undefined },
): Promise<readonly FlowRow[]> {
  return await run(db, listFlows, below, limit, name ?? null, state ?? null, businessType ?? null, businessKey ?? null);
}

/** Who has flows go on, why, and from where. */
export interface RetryOrder {
  readonly actor: Actor;
  readonly reason: string | undefined;
  /** A step that is made anew with all that comes after it. */
  readonly from?: string | undefined;
}

/** Tells a flow of a signal. Throws `flow-not-found`, `flow-finished`, and as `Queryable.query`. False: that came before. */
export async function sendSignal(
  { db, invite }: FlowsDeps,
  id: string,
  signal: { readonly name: string; readonly data: Buffer; readonly actor: Actor },
): Promise<boolean> {
  const rows = await run(db, signalFlow, id, signal.name, signal.data, signal.actor.name);
  if (rows.length === 0) await refuseEnded(db, id);
  inviteFreed(rows, invite);
  return rows.some((row) => row.is_new === true);
}

/** Cancels a flow: what waits at once, what runs through its worker. Throws `flow-not-found`, `flow-finished`, and as `Queryable.query`. */
export async function endFlow(
  { db }: FlowsDeps,
  id: string,
  { actor, reason }: { readonly actor: Actor; readonly reason: string | undefined },
): Promise<FlowRow> {
  const [cancelled] = await run(db, cancelFlow, id, actor.name, actor.role, actor.address ?? null, reason ?? null);
  const underWay = cancelled?.under_way ?? undefined;
  for (let at = 0; underWay !== undefined && at < underWay.length; at += CANCEL_CHUNK) {
    await cancelEach(db, underWay.slice(at, at + CANCEL_CHUNK), { actor, reason });
  }
  const [flow] = await run(db, readFlow, id);
  if (flow === undefined) throw new WarrenError('flow-not-found', { flowId: id });
  if (underWay === undefined && flow.cancelled_by === null)
    throw new WarrenError('flow-finished', { flowId: id, state: flow.state });
  return flow;
}

/** Has a flow that has ended go on; gives the tasks that were made. Throws `flow-not-found`, `flow-not-retryable`, `unique-conflict`, and as `Queryable.query`. */
export async function retryOne(db: Transactional, id: string, order: RetryOrder): Promise<number> {
  const made = await sendRetry(db, id, order);
  if (made === KEY_IS_HELD) {
    throw new WarrenError('unique-conflict', {
      field: 'businessKey',
      reason: 'another flow is about it by now',
      flowId: id,
    });
  }
  if (made !== undefined) return made;
  const [flow] = await run(db, readFlow, id);
  if (flow === undefined) throw new WarrenError('flow-not-found', { flowId: id });
  throw new WarrenError('flow-not-retryable', { flowId: id, state: flow.state, phase: flow.phase });
}

/** Retries flows below an id, newest first, until the time is over. Throws as `Queryable.query`. */
export async function retryMany(
  db: Transactional,
  { states, ...filter }: Omit<FlowFilter, 'state'> & { readonly states: readonly string[] },
  {
    order,
    below,
    isDryRun,
  }: { readonly order: RetryOrder; readonly below: string | undefined; readonly isDryRun: boolean },
): Promise<{
  readonly flows: number;
  readonly tasks: number;
  readonly skipped: number;
  readonly next: string | undefined;
}> {
  const { clock } = db.deps;
  const untilMs = clock.monotonicMs() + RETRY_WITHIN_MS;
  const done = { flows: 0, tasks: 0, skipped: 0 };
  let last = below;
  for (;;) {
    const rows = await findFlows(db, filter, { limit: RETRY_PAGE, below: last });
    for (const { id, state } of rows) {
      last = id;
      if (!states.includes(state)) continue;
      const made = isDryRun ? 1 : await sendRetry(db, id, order);
      if (made === undefined || made <= 0) done.skipped += 1;
      else {
        done.flows += 1;
        done.tasks += isDryRun ? 0 : made;
      }
      if (clock.monotonicMs() > untilMs) return { ...done, next: last };
    }
    if (rows.length < RETRY_PAGE) return { ...done, next: undefined };
    if (clock.monotonicMs() > untilMs) return { ...done, next: last };
  }
}

async function sendRetry(
  db: Transactional,
  id: string,
  { actor, reason, from }: RetryOrder,
): Promise<number | undefined> {
  const [row] = await retryConflicts(
    db,
    async () =>
      await run(db, retryFlow, id, from ?? null, actor.name, actor.role, actor.address ?? null, reason ?? null),
  );
  return row?.made ?? undefined;
}

async function refuseEnded(db: Queryable, id: string): Promise<never> {
  const [flow] = await run(db, readFlow, id);
  if (flow === undefined) throw new WarrenError('flow-not-found', { flowId: id });
  throw new WarrenError('flow-finished', { flowId: id, state: flow.state });
}

function inviteFreed(rows: readonly FreedRow[], invite: FlowsDeps['invite']): void {
  const freed = rows.flatMap((row) => (isFreed(row) ? [row] : []));
  for (const row of outboxRowsOf(freed, ({ id }) => id)) void invite(row); // never rejects
}

interface FreedRow {
  readonly id: string | null;
  readonly type: string | null;
  readonly queue: string | null;
  readonly priority: number | null;
  readonly generation: number | null;
  readonly outbox_id: string | null;
}

type Freed = { readonly [Key in keyof FreedRow]: NonNullable<FreedRow[Key]> };

const isFreed = (row: FreedRow): row is Freed => row.id !== null && row.outbox_id !== null;

interface NumberedFlow {
  readonly flow: PlannedFlow;
  readonly steps: readonly {
    readonly planned: PlannedStep;
    readonly taskId: string | undefined;
    /** `start`: its task is pending at once; `late`: its turn has come. */
    readonly begins: 'start' | 'late' | undefined;
  }[];
}

/** The columns of `acceptFlows`. A column that no step uses is null, so that it costs nothing. */
function columnsOf(flows: readonly NumberedFlow[]): ParamsOf<typeof acceptFlows> {
  const steps = flows.flatMap(({ flow, steps: own }) => own.map((step) => ({ ...step, flow })));
  type Step = (typeof steps)[number];
  const pick = <T>(read: (planned: PlannedStep) => T): T[] => steps.map(({ planned }) => read(planned));
  const some = <T>(read: (step: Step) => T | undefined): (T | null)[] | null =>
    steps.some((step) => read(step) !== undefined) ? steps.map((step) => read(step) ?? null) : null;
  return [
    flows.map(({ flow }) => flow.id),
    flows.map(({ flow }) => flow.body.name),
    flows.map(({ flow: { body } }) => body.businessType ?? (body.businessKey === undefined ? null : '')),
    flows.map(({ flow }) => flow.body.businessKey ?? null),
    flows.map(({ flow }) => flow.body.onFailure),
    flows.map(({ flow }) => tagsOf(flow) ?? null),
    flows.map(({ flow }) => flow.createdBy),
    steps.map(({ flow }) => flow.id),
    pick(({ step }) => step),
    pick(({ kind }) => kind),
    pick(({ name }) => name),
    pick(({ member }) => member ?? null),
    steps.map(({ taskId }) => taskId ?? null),
    pick(({ task }) => task.type),
    pick(({ task }) => task.queue),
    pick(({ task }) => task.priority),
    pick(({ task }) => task.maxAttempts),
    pick(({ task }) => Buffer.from(task.input)),
    some(({ planned }) => planned.task.concurrencyKey),
    some(({ planned }) => planned.task.rateKey),
    pick(({ waitsFor }) => waitsFor),
    pick(({ next }) => `{${next.join(',')}}`),
    pick(({ level }) => level),
    some(({ planned }) => planned.onFailure),
    some(({ planned }) => planned.undoOf),
    some(({ planned }) => planned.delayMs),
    some(({ planned }) => planned.signal?.name),
    some(({ planned }) => planned.signal?.timeoutMs),
    some(({ planned: { template } }) => (template === undefined ? undefined : arrayLiteral(template.pieces))),
    some(({ planned: { template } }) => (template === undefined ? undefined : JSON.stringify(template.refs))),
    some(({ planned: { kind, task } }) => (kind === 'step' ? undefined : JSON.stringify(task))),
    steps.map(({ begins }) => begins ?? null),
    steps.map(({ flow }) => flow.createdBy),
    some(({ flow }) => flow.body.businessKey),
    some(({ flow }) => tagsOf(flow)),
  ];
}

function tagsOf({ body: { tags = [] } }: PlannedFlow): string | undefined {
  return tags.length === 0 ? undefined : arrayLiteral(tags);
}
