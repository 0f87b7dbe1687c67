/** Flows: shown, told of signals, retried, cancelled. What moves them on is the end of their steps. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { cancelEach } from './cancel.ts';
import { inviteFreed } from './flow-invitations.ts';
import { cancelFlow, retryFlow, signalFlow } from './flows.sql.ts';
import {
  countFlowTasks,
  pageFlows,
  pageFlowsByKey,
  pageFlowsByName,
  pageFlowsByParent,
  pageFlowsByState,
  readFlow,
  readFlowEdges,
  readFlowResult,
  readFlowSteps,
} from './flows-read.sql.ts';
import type { flowColumns } from './flows-read.sql.ts';

/** What flows need. */
export interface FlowsDeps {
  readonly log: Logger;
  readonly db: Transactional;
  /** Publishes what was committed; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** Why what comes in for a queue is held back, where it is. */
  readonly holdReasonOf: (queue: string) => 'turn' | 'draining' | undefined;
}

/** A row of a list. */
export type FlowRow = RowOf<typeof flowColumns>;

const CANCEL_CHUNK = 500;
/** Milliseconds after which a retry of many answers, with what is done until then. */
const RETRY_WITHIN_MS = 5_000;
const RETRY_PAGE = 200;
/** What `retry_flow` says where another flow holds the business key. */
const KEY_IS_HELD = -1;
/** And where a step that was replayed by itself has not ended. */
const STEP_IS_UNDER_WAY = -2;

/** A flow with its steps, what waits for what, and what it gave; `undefined` where there is none. */
export async function findFlow(
  db: Queryable,
  id: string,
): Promise<
  | {
      readonly flow: FlowRow;
      readonly steps: readonly RowOf<typeof readFlowSteps.columns>[];
      readonly edges: readonly RowOf<typeof readFlowEdges.columns>[];
      /** JSON text. */
      readonly result: string | undefined;
      /** Of it and all that is nested in it. */
      readonly tasks: { readonly total: number; readonly open: number };
    }
  | undefined
> {
  const [flow] = await run(db, readFlow, id);
  if (flow === undefined) return undefined;
  const [steps, edges, [counted], [gave]] = await Promise.all([
    run(db, readFlowSteps, id),
    run(db, readFlowEdges, id),
    run(db, countFlowTasks, id),
    flow.finished_at === null ? [] : run(db, readFlowResult, id),
  ]);
  const tasks = { total: counted?.total ?? 0, open: counted?.open ?? 0 };
  return { flow, steps, edges, tasks, result: gave?.result ?? undefined };
}

/** What a list of flows may ask for. */
export interface FlowFilter {
  readonly name?: string | undefined;
  /** Any of these. */
  readonly states?: readonly string[] | undefined;
  readonly businessType?: string | undefined;
  readonly businessKey?: string | undefined;
  /** Those that are nested in this one; absent: the outermost. */
  readonly parent?: string | undefined;
}

/** A page of flows. */
export interface FlowPage {
  readonly rows: readonly FlowRow[];
  /** Where the next page begins; `undefined` at the end. */
  readonly next: string | undefined;
  /** True where the bound was met before the page was full: there may be more further down. */
  readonly isPartial: boolean;
}

const HIGHEST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
/** Flows that one statement looks at, and one request. */
const CHUNK = 1_000;
const MOST_LOOKED_AT = 20_000;

/** Flows, newest first, along whatever index fits best, with a bound on what one request looks at. Throws as `Queryable.query`. */
export async function findFlows(
  db: Queryable,
  filter: FlowFilter,
  { limit, below = HIGHEST_ID }: { readonly limit: number; readonly below: string | undefined },
): Promise<FlowPage> {
  const { name, states, businessType } = filter;
  const [statement, key] = chooseIndex(filter);
  const rows: FlowRow[] = [];
  let last = below;
  let lookAt = limit + 1;
  for (let lookedAt = 0; lookedAt < MOST_LOOKED_AT; lookedAt += lookAt, lookAt = CHUNK) {
    const found = await run(db, statement, last, lookAt, key, name ?? null, states ?? null, businessType ?? null);
    rows.push(...found.filter(({ fits }) => fits === true));
    if (rows.length > limit) return { rows: rows.slice(0, limit), next: rows[limit - 1]?.id, isPartial: false };
    if (found.length < lookAt) return { rows, next: undefined, isPartial: false };
    last = found.at(-1)?.id ?? last;
  }
  return { rows, next: last, isPartial: true };
}

/** The index that names the fewest flows, and what is looked for in it. */
function chooseIndex({ name, states, businessKey, parent }: FlowFilter): readonly [typeof pageFlows, string | null] {
  if (parent !== undefined) return [pageFlowsByParent, parent];
  if (businessKey !== undefined) return [pageFlowsByKey, businessKey];
  const [state, ...others] = states ?? [];
  if (state !== undefined && state !== 'succeeded' && others.length === 0) return [pageFlowsByState, state];
  return name === undefined ? [pageFlows, null] : [pageFlowsByName, name];
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
  if (made !== undefined && made !== STEP_IS_UNDER_WAY) return made;
  const [flow] = await run(db, readFlow, id);
  if (flow === undefined) throw new WarrenError('flow-not-found', { flowId: id });
  const reason = made === STEP_IS_UNDER_WAY ? { reason: 'a step that was replayed by itself has not ended' } : {};
  throw new WarrenError('flow-not-retryable', { flowId: id, state: flow.state, phase: flow.phase, ...reason });
}

/** Retries flows below an id, newest first, until the time is over. Throws as `Queryable.query`. */
export async function retryMany(
  db: Transactional,
  filter: FlowFilter,
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
    const page = await findFlows(db, filter, { limit: RETRY_PAGE, below: last });
    for (const { id } of page.rows) {
      const made = isDryRun ? 1 : await sendRetry(db, id, order);
      if (made === undefined || made <= 0) done.skipped += 1;
      else {
        done.flows += 1;
        done.tasks += isDryRun ? 0 : made;
      }
      if (clock.monotonicMs() > untilMs) return { ...done, next: id };
    }
    last = page.next;
    if (last === undefined || clock.monotonicMs() > untilMs) return { ...done, next: last };
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
