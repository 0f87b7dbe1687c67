/** Flows: started, shown, cancelled, told of signals. What moves them on is the end of their steps. */
import { Bug, WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import type { FlowBody } from '../../shared/flows/flow-body.ts';
import type { PlannedStep } from '../../shared/flows/plan-flow.ts';
import { arrayLiteral, run } from '../../shared/postgres/statement.ts';
import type { ParamsOf, Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import { cancelEach } from './cancel.ts';
import {
  acceptFlow,
  cancelFlow,
  findFlowKey,
  inheritFlowKey,
  signalFlow,
  takeFlowKey,
  unblockSteps,
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

/** A row of a list. */
export type FlowRow = RowOf<typeof flowColumns>;

/** Times that the holder of a business key may vanish while it is asked for. */
const MOST_ROUNDS = 10;
const CANCEL_CHUNK = 500;

/** Starts a planned flow. Throws `unique-conflict`, and as `Queryable.query`. */
export async function startFlow(
  { db, invite, holdReasonOf }: FlowsDeps,
  id: string,
  {
    body,
    steps,
    createdBy,
  }: { readonly body: FlowBody; readonly steps: readonly PlannedStep[]; readonly createdBy: string },
): Promise<StartedFlow> {
  const numbered = steps.map((planned) => {
    const isHeld = planned.delayMs !== undefined || holdReasonOf(planned.task.queue) !== undefined;
    const isFirst = planned.kind === 'step' && planned.waitsFor === 0;
    return {
      planned,
      taskId: planned.kind === 'step' ? newId<string>() : undefined,
      startsNow: isFirst && !isHeld && planned.template === undefined,
      isFirst,
    };
  });
  const started = await inTransaction(db, async (tx) => {
    const holder = await takeKey(tx, body, id);
    if (holder !== id) return holder;
    const [flow] = await run(tx, acceptFlow, ...columnsOf(id, body, createdBy, numbered));
    if (flow === undefined) throw new Bug('a flow was accepted without an answer');
    const late = numbered.filter(({ isFirst, startsNow }) => isFirst && !startsNow).map(({ planned }) => planned.step);
    const freed = late.length === 0 ? [] : await run(tx, unblockSteps, id, late);
    return { flow, freed };
  });
  if (typeof started === 'string') {
    if (body.onConflict === 'reject') {
      throw new WarrenError('unique-conflict', {
        field: 'businessKey',
        reason: `is held by flow ${started}`,
        flowId: started,
      });
    }
    return { kind: 'existing', id: started };
  }
  const { flow, freed } = started;
  if (flow.outbox_id !== null) {
    const invitations = numbered
      .filter(({ startsNow }) => startsNow)
      .map(({ taskId, planned: { task } }) => ({
        taskId: taskId ?? '',
        type: task.type,
        queue: task.queue,
        priority: task.priority,
        generation: 1,
      }));
    void invite({ id: flow.outbox_id, invitations }); // never rejects; the answer does not wait for the broker
  }
  inviteFreed(freed, invite);
  return { kind: 'started', id, state: flow.state, createdAt: flow.created_at };
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

interface Numbered {
  readonly planned: PlannedStep;
  readonly taskId: string | undefined;
  readonly startsNow: boolean;
}

function columnsOf(
  id: string,
  body: FlowBody,
  createdBy: string,
  steps: readonly Numbered[],
): ParamsOf<typeof acceptFlow> {
  const pick = <T>(read: (planned: PlannedStep) => T): T[] => steps.map(({ planned }) => read(planned));
  return [
    id,
    body.name,
    body.businessKey === undefined ? (body.businessType ?? null) : (body.businessType ?? ''),
    body.businessKey ?? null,
    body.onFailure,
    body.tags ?? null,
    createdBy,
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
    pick(({ task }) => task.concurrencyKey ?? null),
    pick(({ task }) => task.rateKey ?? null),
    pick(({ waitsFor }) => waitsFor),
    pick(({ next }) => `{${next.join(',')}}`),
    pick(({ level }) => level),
    pick(({ onFailure }) => onFailure ?? null),
    pick(({ undoOf }) => undoOf ?? null),
    pick(({ delayMs }) => delayMs ?? null),
    pick(({ signal }) => signal?.name ?? null),
    pick(({ signal }) => signal?.timeoutMs ?? null),
    pick(({ template }) => (template === undefined ? null : arrayLiteral(template.pieces))),
    pick(({ template }) => (template === undefined ? null : JSON.stringify(template.refs))),
    pick(({ kind, task }) => (kind === 'step' ? null : JSON.stringify(task))),
    steps.map(({ startsNow }) => startsNow),
  ];
}
