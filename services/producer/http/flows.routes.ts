/** The API of flows: start, look, list, cancel, signal. */
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { planFlow } from '../../../shared/flows/plan-flow.ts';
import { MOST_LEVELS } from '../../../shared/flows/flow-body.ts';
import type { FlowPlan } from '../../../shared/flows/planned-flow.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { decodeCursor, encodeCursor } from '../../../shared/http/paging.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Metrics } from '../../../shared/observability/metrics.ts';
import { isUuid, newId } from '../../../shared/tasks/ids.ts';
import { sliceMember } from '../../../shared/tasks/json.ts';
import type { SubmissionLimits } from '../../../shared/tasks/check-submission.ts';
import type { TypeCatalog } from '../../../shared/tasks/type-catalog.ts';
import type { FlowStarter } from '../flow-starter.ts';
import { endFlow, findFlow, findFlows, retryMany, retryOne, sendSignal } from '../flows.ts';
import type { FlowsDeps } from '../flows.ts';
import { registerFlowResults } from './flow-results.routes.ts';
import { isTask, listedFlowOf, planOf, renderFlow } from './flow-view.ts';
import {
  cancelFlowBody,
  flowBody,
  flowBodyShown,
  flowListQuery,
  flowPage,
  flowParams,
  flowPlan,
  listedFlow,
  retryAnswer,
  retryFlowBody,
  retryManyAnswer,
  retryManyBody,
  signalAnswer,
  signalBody,
  signalParams,
  startedFlow,
  wholeFlow,
} from './flows.schema.ts';
import { IdempotencyKeys, REPLAYED_HEADER } from './idempotency.ts';
import { idOf } from './ids.ts';
import { submitHeaders, traceOfRequest } from './submit-headers.ts';
import { documented, problem } from './tasks.schema.ts';

/** What the routes need. */
export interface FlowRoutesDeps extends FlowsDeps {
  readonly catalog: Pick<TypeCatalog, 'find' | 'hasQueue' | 'refreshAfterMiss'>;
  readonly limits: Pick<SubmissionLimits, 'messageBytes' | 'depth'>;
  readonly starter: FlowStarter;
  /** Bytes of the body of a flow. */
  readonly flowBytes: number;
  /** True where the outbox has reached its bound, because the broker has been away for long. */
  readonly isOutboxFull: () => boolean;
  readonly metrics: Pick<Metrics, 'tasksAccepted' | 'submissionsRefused' | 'submissionsRepeated' | 'flowsStarted'>;
}

const JSON_TYPE = 'application/json; charset=utf-8';
const CANCEL_BYTES = 4_096;
const NO_BODY = Buffer.from('{}');
/** Levels of a body around an input: the flow, its steps, one of them, the list of its inputs; three for each flow around that one. */
const LEVELS_AROUND = 4 + 3 * MOST_LEVELS;

const flowCursor = z.string().refine((key) => isUuid(key));

/** The body may be absent. */
const preValidation = async (request: { body: unknown }): Promise<void> => {
  request.body ??= { raw: NO_BODY };
  await Promise.resolve();
};

/** Adds the routes. */
export function registerFlowRoutes(app: App, deps: FlowRoutesDeps): void {
  addStart(app, deps);
  addGet(app, deps);
  registerFlowResults(app, deps);
  addList(app, deps);
  addCancel(app, deps);
  addSignal(app, deps);
  addRetry(app, deps);
  addRetryMany(app, deps);
}

function addStart(app: App, deps: FlowRoutesDeps): void {
  const { catalog, flowBytes, limits, metrics, starter } = deps;
  const keys = new IdempotencyKeys();
  const schema = {
    summary: 'Start a flow: tasks that wait for each other',
    headers: submitHeaders,
    body: rawBody(flowBodyShown),
    response: documented({ 200: z.union([flowPlan, startedFlow]), 202: startedFlow, '4xx': problem, 503: problem }),
  };
  app.post('/v1/flows', { ...requireRole('operator'), bodyLimit: flowBytes, schema }, async (request, reply) => {
    const { raw, value: body } = parseBody(request.body, flowBody, {
      maxBytes: flowBytes,
      maxDepth: limits.depth + LEVELS_AROUND,
    });
    const id = newId<string>();
    const text = raw.toString('utf8');
    const ids = { id, nestedId: newId<string> };
    let plan: FlowPlan = planFlow(body, text, catalog, limits, ids);
    if (
      plan.kind === 'refused' &&
      plan.faults.some(({ code }) => code === 'task-type-unknown' || code === 'queue-unknown')
    ) {
      await catalog.refreshAfterMiss();
      plan = planFlow(body, text, catalog, limits, ids);
    }
    if (plan.kind === 'refused') {
      const { faults } = plan;
      const [{ code, field, reason }] = faults;
      metrics.submissionsRefused.add(1, 'http', code);
      throw new WarrenError(code, { field, reason, faults });
    }
    void reply.type(JSON_TYPE);
    if (body.dryRun) return await reply.code(200).send(JSON.stringify(planOf(plan)));
    if (deps.isOutboxFull()) throw new WarrenError('outbox-full', { retryAfterSeconds: 10 });
    const createdBy = request.actor.name;
    const header = request.headers['idempotency-key'];
    const { kind: _kind, ...planned } = plan;
    const trace = traceOfRequest(request);
    const started = await keys.guard(
      { actor: createdBy, header, body: raw },
      async (idempotency) => await starter.start({ id, body, ...planned, createdBy, idempotency, trace }),
    );
    void reply.header('location', `/v1/flows/${started.id}`);
    if (started.kind === 'existing') {
      const { isReplayed } = started;
      metrics.submissionsRepeated.add(1, 'http', isReplayed ? 'idempotency key' : 'business key');
      if (isReplayed) void reply.header(REPLAYED_HEADER, 'true');
      const found = await findFlow(deps.db, started.id);
      const {
        name,
        state,
        created_at: createdAt,
      } = found?.flow ?? { name: body.name, state: 'pending', created_at: undefined };
      const about = {
        id: started.id,
        name,
        state,
        ...(createdAt === undefined ? {} : { createdAt: createdAt.toISOString() }),
      };
      return await reply
        .code(isReplayed ? 202 : 200)
        .send(JSON.stringify(isReplayed ? about : { ...about, duplicate: true }));
    }
    for (const step of [plan.steps, ...plan.nested.map((each) => each.steps)].flat()) {
      if (isTask(step)) metrics.tasksAccepted.add(1, step.task?.type ?? '', 'flow');
    }
    const { state, createdAt } = started;
    return await reply
      .code(202)
      .send(JSON.stringify({ id, name: body.name, state, createdAt: createdAt.toISOString() }));
  });
}

function addGet(app: App, { db }: FlowRoutesDeps): void {
  const schema = {
    summary: 'A flow, with its steps and how they stand',
    params: flowParams,
    response: documented({ 200: wholeFlow, '4xx': problem }),
  };
  app.get('/v1/flows/:id', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const flowId = idOf(request.params.id);
    const found = await findFlow(db, flowId);
    if (found === undefined) throw new WarrenError('flow-not-found', { flowId });
    if (found.flow.finished_at === null) void reply.header('retry-after', '2');
    return await reply.type(JSON_TYPE).send(renderFlow(found));
  });
}

function addList(app: App, { db }: FlowRoutesDeps): void {
  const schema = {
    summary: 'Flows, newest first',
    querystring: flowListQuery,
    response: documented({ 200: flowPage, '4xx': problem }),
  };
  app.get('/v1/flows', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const { limit, cursor, state, ...asked } = request.query;
    const below = decodeCursor(cursor, flowCursor);
    const filter = {
      ...asked,
      ...(asked.parent === undefined ? {} : { parent: idOf(asked.parent, 'parent') }),
      states: state === undefined ? undefined : [state],
    };
    const { rows, next, isPartial } = await findFlows(db, filter, { limit, below });
    const page = {
      items: rows.map((row) => listedFlowOf(row)),
      ...(next === undefined ? {} : { nextCursor: encodeCursor(next) }),
      ...(isPartial ? { partial: true } : {}),
    };
    return await reply.type(JSON_TYPE).send(JSON.stringify(page));
  });
}

function addCancel(app: App, deps: FlowRoutesDeps): void {
  const schema = {
    summary: 'Cancel a flow: what has not begun at once, what runs by aborting it',
    params: flowParams,
    body: rawBody(cancelFlowBody),
    response: documented({ 200: listedFlow, '4xx': problem }),
  };
  const options = { ...requireRole('operator'), bodyLimit: CANCEL_BYTES, schema, preValidation };
  app.post('/v1/flows/:id/cancel', options, async (request, reply) => {
    const id = idOf(request.params.id);
    const { reason } = parseBody(request.body, cancelFlowBody, { maxBytes: CANCEL_BYTES, maxDepth: 2 }).value;
    const flow = await endFlow(deps, id, { actor: request.actor, reason });
    const { name: actor, role } = request.actor;
    deps.log.info('flow cancelled', { flowId: id, actor, role, state: flow.state });
    return await reply.type(JSON_TYPE).send(JSON.stringify(listedFlowOf(flow)));
  });
}

function addSignal(app: App, deps: FlowRoutesDeps): void {
  const { messageBytes, depth } = deps.limits;
  const schema = {
    summary: 'Tell a flow of something that its steps wait for; once by each name',
    params: signalParams,
    body: rawBody(signalBody),
    response: documented({ 200: signalAnswer, '4xx': problem }),
  };
  const options = { ...requireRole('operator'), bodyLimit: messageBytes, schema, preValidation };
  app.post('/v1/flows/:id/signals/:name', options, async (request, reply) => {
    const id = idOf(request.params.id);
    const { name } = request.params;
    const { raw, members } = parseBody(request.body, signalBody, { maxBytes: messageBytes, maxDepth: depth + 1 });
    const span = members.get('data');
    const data = span === undefined ? Buffer.from('null') : sliceMember(raw, span);
    const isNew = await sendSignal(deps, id, { name, data, actor: request.actor });
    deps.log.info('signal for a flow', { flowId: id, signal: name, actor: request.actor.name, isNew });
    return await reply.type(JSON_TYPE).send(JSON.stringify({ id, signal: name, duplicate: !isNew }));
  });
}

function addRetry(app: App, { db, log }: FlowRoutesDeps): void {
  const schema = {
    summary: 'Have a flow that has ended go on: what failed or was cancelled is made anew',
    params: flowParams,
    body: rawBody(retryFlowBody),
    response: documented({ 200: retryAnswer, '4xx': problem }),
  };
  const options = { ...requireRole('operator'), bodyLimit: CANCEL_BYTES, schema, preValidation };
  app.post('/v1/flows/:id/retry', options, async (request, reply) => {
    const id = idOf(request.params.id);
    const { from, reason } = parseBody(request.body, retryFlowBody, { maxBytes: CANCEL_BYTES, maxDepth: 2 }).value;
    if (from !== undefined) await refuseUnknownStep(db, id, from);
    const tasks = await retryOne(db, id, { actor: request.actor, reason, from });
    log.info('flow retried', { flowId: id, actor: request.actor.name, tasks });
    return await reply.type(JSON_TYPE).send(JSON.stringify({ id, tasks }));
  });
}

async function refuseUnknownStep(db: FlowRoutesDeps['db'], id: string, from: string): Promise<void> {
  const found = await findFlow(db, id);
  if (found === undefined) throw new WarrenError('flow-not-found', { flowId: id });
  if (found.steps.some(({ kind, name }) => kind === 'step' && name === from)) return;
  throw new WarrenError('field-invalid', { field: 'from', reason: 'names no step of this flow' });
}

function addRetryMany(app: App, { db, log }: FlowRoutesDeps): void {
  const schema = {
    summary: 'Have all flows go on that ended so; send the same again with `nextCursor` where it gives one',
    body: rawBody(retryManyBody),
    response: documented({ 200: retryManyAnswer, '4xx': problem }),
  };
  app.post(
    '/v1/flows/retry',
    { ...requireRole('operator'), bodyLimit: CANCEL_BYTES, schema },
    async (request, reply) => {
      const body = parseBody(request.body, retryManyBody, { maxBytes: CANCEL_BYTES, maxDepth: 3 }).value;
      const { cursor, dryRun, reason, ...filter } = body;
      const below = decodeCursor(cursor, flowCursor);
      const order = { actor: request.actor, reason };
      const { next, ...done } = await retryMany(db, filter, { order, below, isDryRun: dryRun });
      if (!dryRun) log.info('flows retried', { actor: request.actor.name, ...done });
      const more = next === undefined ? {} : { nextCursor: encodeCursor(next) };
      return await reply.type(JSON_TYPE).send(JSON.stringify({ dryRun, ...done, ...more }));
    },
  );
}
