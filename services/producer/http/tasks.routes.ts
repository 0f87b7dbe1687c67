/** The Task API: submit, look, list, cancel, edit. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { etagOf } from '../../../shared/http/etag.ts';
import { decodeCursor, encodeCursor } from '../../../shared/http/paging.ts';
import { problemOf } from '../../../shared/http/problem.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Logger } from '../../../shared/observability/log.ts';
import type { Metrics } from '../../../shared/observability/metrics.ts';
import { isUuid } from '../../../shared/tasks/ids.ts';
import { renderWithRaw } from '../../../shared/tasks/json.ts';
import { submissionBody } from '../../../shared/tasks/submission-body.ts';
import type { TypeCatalog } from '../../../shared/tasks/type-catalog.ts';
import { cancelTask } from '../cancel.ts';
import type { EditDeps } from '../edit.ts';
import type { Estimates } from '../estimates.ts';
import { retryAfterSeconds } from '../outlook.ts';
import { claimBatchKey } from '../repeats.ts';
import type { TaskFinder } from '../task-finder.ts';
import { listTasks, lookAt, readTasks } from '../tasks.ts';
import { splitBatch, spreadDelayMs } from './batch-body.ts';
import { addEditRoute } from './edit.routes.ts';
import type { EditRouteDeps } from './edit.routes.ts';
import { IdempotencyKeys, itemKeyOf, REPLAYED_HEADER } from './idempotency.ts';
import { addManyRoutes } from './many.routes.ts';
import { waitAsPreferred } from './prefer.ts';
import type { WaitDeps } from './prefer.ts';
import { idOf } from './ids.ts';
import { acceptItem, acceptSubmission } from './submissions.ts';
import type { AcceptedSubmission, ExistingTask, SubmissionDeps } from './submissions.ts';
import { submitHeaders, traceOfRequest } from './submit-headers.ts';
import { filterOf } from './task-query.ts';
import { acceptedTaskOf, listedTaskOf, renderTask, taskTypeOf } from './task-view.ts';
import {
  acceptedTask,
  batchAnswer,
  batchBody,
  cancelAnswer,
  cancelBody,
  documented,
  existingTask,
  listQuery,
  preferHeader,
  problem,
  taskPage,
  taskParams,
  taskTypes,
  wholeTask,
} from './tasks.schema.ts';

/** What the routes need. */
export interface TaskRoutesDeps extends SubmissionDeps, WaitDeps, Omit<EditDeps, 'metrics'> {
  readonly log: Logger;
  readonly metrics: SubmissionDeps['metrics'] & Pick<Metrics, 'cancels' | 'edits'>;
  readonly estimates: Pick<Estimates, 'finishOf' | 'startOf'>;
  /** Bytes of the body of a batch. */
  readonly batchBytes: number;
  readonly inputs: EditRouteDeps['inputs'];
  readonly finder: Pick<TaskFinder, 'find'>;
  readonly catalog: Pick<TypeCatalog, 'find' | 'hasQueue' | 'refreshAfterMiss' | 'types' | 'queues'>;
}

const JSON_TYPE = 'application/json; charset=utf-8';
const CANCEL_BYTES = 4_096;
const NO_BODY = Buffer.from('{}');

/** Adds the routes. */
export function registerTaskRoutes(app: App, deps: TaskRoutesDeps): void {
  addSubmit(app, deps);
  addBatch(app, deps);
  addGet(app, deps);
  addList(app, deps);
  addCancel(app, deps);
  addEditRoute(app, deps);
  addManyRoutes(app, deps);
  addTypes(app, deps);
}

function addSubmit(app: App, deps: TaskRoutesDeps): void {
  const keys = new IdempotencyKeys();
  const schema = {
    summary: 'Submit a task',
    headers: submitHeaders.extend(preferHeader.shape),
    body: rawBody(submissionBody),
    response: documented({ 200: z.union([existingTask, wholeTask]), 202: acceptedTask, '4xx': problem, 503: problem }),
  };
  const options = { ...requireRole('operator'), bodyLimit: deps.limits.messageBytes, schema };
  app.post('/v1/tasks', options, async (request, reply) => {
    const { raw } = request.body;
    const publisher = request.actor.name;
    const header = request.headers['idempotency-key'];
    const trace = traceOfRequest(request);
    const submitted = await keys.guard(
      { actor: publisher, header, body: raw },
      async (idempotency) => await acceptSubmission(raw, { publisher, idempotency, trace }, deps),
    );
    if (submitted.isReplayed) void reply.header(REPLAYED_HEADER, 'true');
    void reply.type(JSON_TYPE);
    if (submitted.kind === 'existing') {
      await waitAsPreferred(request, reply, submitted.id, deps);
      const [task] = await existingTasks([submitted], deps);
      return await reply.code(200).header('location', `/v1/tasks/${submitted.id}`).send(JSON.stringify(task));
    }
    const { submission, accepted } = submitted;
    void reply.header('location', `/v1/tasks/${accepted.id}`);
    if (await waitAsPreferred(request, reply, accepted.id, deps)) {
      return await reply.code(200).send(await renderStanding(reply, accepted.id, deps));
    }
    const task = renderWithRaw(acceptedTaskOf(submission, accepted), { input: submission.input });
    return await reply.code(202).send(task);
  });
}

function addBatch(app: App, deps: TaskRoutesDeps): void {
  const keys = new IdempotencyKeys();
  const schema = {
    summary: 'Submit up to 1 000 tasks; a result per item, in order',
    headers: submitHeaders,
    body: rawBody(batchBody),
    response: documented({ 200: batchAnswer, 207: batchAnswer, '4xx': problem, 503: problem }),
  };
  app.post(
    '/v1/tasks/batch',
    { ...requireRole('operator'), bodyLimit: deps.batchBytes, schema },
    async (request, reply) => {
      const { raw } = request.body;
      const { items, spreadMs } = splitBatch(raw);
      const digest = spreadMs === undefined ? undefined : createHash('sha256').update(raw).digest();
      const publisher = request.actor.name;
      const header = request.headers['idempotency-key'];
      const trace = traceOfRequest(request);
      const results = await keys.guard({ actor: publisher, header, body: raw }, async (whole) => {
        if (whole !== undefined) await claimBatchKey(deps.db, publisher, whole);
        return await Promise.all(
          items.map(async (item, index) => {
            const idempotency = whole === undefined ? undefined : itemKeyOf(whole, index);
            const delayMs =
              spreadMs === undefined || digest === undefined
                ? undefined
                : spreadDelayMs({ index, count: items.length, spreadMs }, digest);
            return await acceptItem(item, { publisher, idempotency, delayMs, trace }, deps);
          }),
        );
      });
      const failures = results.filter((result) => 'code' in result);
      const [failure] = failures;
      // Nothing was accepted and all may be sent again: an answer that says so, not a thousand that do.
      if (failure?.code === 'database-unavailable' || failure?.code === 'outbox-full') {
        if (failures.length === items.length) throw failure;
      }
      const held = results.filter((result) => 'kind' in result && result.kind === 'existing');
      const tasks = await existingTasks(held, deps);
      const existing = new Map(held.map((result, index) => [result, tasks[index]]));
      const answer = {
        accepted: items.length - failures.length,
        refused: failures.length,
        results: results.map((result) => itemOf(result, existing)),
      };
      return await reply
        .code(failure === undefined ? 200 : 207)
        .type(JSON_TYPE)
        .send(JSON.stringify(answer));
    },
  );
}

function itemOf(
  result: AcceptedSubmission | ExistingTask | WarrenError,
  existing: ReadonlyMap<ExistingTask, unknown>,
): Record<string, unknown> {
  if ('code' in result) {
    const document = problemOf(result);
    return { status: document.status, problem: document };
  }
  if (result.kind === 'existing') return { status: 200, task: existing.get(result) };
  return { status: 202, task: acceptedTaskOf(result.submission, result.accepted) };
}

/** The tasks that hold unique keys, as they are now. Of one that retention removed meanwhile only the id is left. */
async function existingTasks(
  held: readonly ExistingTask[],
  deps: TaskRoutesDeps,
): Promise<readonly Record<string, unknown>[]> {
  if (held.length === 0) return [];
  const ids = [...new Set(held.map(({ id }) => id))];
  const found = new Map((await readTasks(deps.db, ids)).map((row) => [row.id, row]));
  return held.map(({ id, isReplaced }) => {
    const row = found.get(id);
    return {
      ...(row === undefined ? { id } : listedTaskOf(row)),
      duplicate: true,
      ...(isReplaced ? { replaced: true } : {}),
    };
  });
}

function addGet(app: App, deps: TaskRoutesDeps): void {
  const schema = {
    summary: 'A task, with its attempts',
    params: taskParams,
    headers: preferHeader,
    response: documented({ 200: wholeTask, '4xx': problem }),
  };
  app.get('/v1/tasks/:id', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const taskId = idOf(request.params.id);
    await waitAsPreferred(request, reply, taskId, deps);
    return await reply.type(JSON_TYPE).send(await renderStanding(reply, taskId, deps));
  });
}

/** A task as it stands, with what is expected of it; sets its ETag, and when to look again. Throws `task-not-found`. */
async function renderStanding(
  reply: { header(name: string, value: string): unknown },
  taskId: string,
  { finder, estimates }: TaskRoutesDeps,
): Promise<string> {
  const found = await finder.find(taskId);
  if (found === undefined) throw new WarrenError('task-not-found', { taskId });
  const { task, attempts } = found;
  const seen = lookAt(task);
  const estimatedFinish = estimates.finishOf(task.type, seen);
  const { id, queue, priority } = task;
  const estimatedStart = await estimates.startOf({ ...seen, id, queue, priority });
  const againInSeconds = retryAfterSeconds(seen.state, estimatedFinish, estimatedStart);
  void reply.header('etag', etagOf(task.generation));
  if (againInSeconds !== undefined) void reply.header('retry-after', String(againInSeconds));
  return renderTask(task, attempts, { estimatedStart, estimatedFinish });
}

function addList(app: App, deps: TaskRoutesDeps): void {
  const schema = {
    summary: 'Tasks, newest first',
    querystring: listQuery,
    response: documented({ 200: taskPage, '4xx': problem }),
  };
  app.get('/v1/tasks', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const { limit, cursor, ...asked } = request.query;
    const below = decodeCursor(
      cursor,
      z.string().refine((key) => isUuid(key) || /^f{8}-/.test(key)),
    );
    const { rows, next, isPartial } = await listTasks(deps.db, filterOf(asked), { limit, below });
    const page = {
      items: rows.map((row) => listedTaskOf(row)),
      ...(next === undefined ? {} : { nextCursor: encodeCursor(next) }),
      ...(isPartial ? { partial: true } : {}),
    };
    return await reply.type(JSON_TYPE).send(JSON.stringify(page));
  });
}

function addCancel(app: App, deps: TaskRoutesDeps): void {
  const schema = {
    summary: 'Cancel a task: at once where it waits, by aborting its attempt where it runs',
    params: taskParams,
    body: rawBody(cancelBody),
    response: documented({ 200: cancelAnswer, 202: cancelAnswer, '4xx': problem }),
  };
  const options = {
    ...requireRole('operator'),
    bodyLimit: CANCEL_BYTES,
    schema,
    // The body may be absent.
    preValidation: async (request: { body: unknown }): Promise<void> => {
      request.body ??= { raw: NO_BODY };
      await Promise.resolve();
    },
  };
  app.post('/v1/tasks/:id/cancel', options, async (request, reply) => {
    const id = idOf(request.params.id);
    const { reason } = parseBody(request.body, cancelBody, {
      maxBytes: CANCEL_BYTES,
      maxDepth: deps.limits.depth,
    }).value;
    const cancelled = await cancelTask(deps.db, id, { actor: request.actor, reason });
    const { name: actor, role } = request.actor;
    deps.metrics.cancels.add(1, cancelled.kind);
    deps.log.info('cancel asked for', { taskId: id, actor, role, became: cancelled.kind });
    if (cancelled.kind === 'cancelled') return await reply.code(200).send({ id, state: 'cancelled' as const });
    const cancelRequestedAt = cancelled.requestedAt.toISOString();
    return await reply.code(202).send({ id, state: 'running' as const, cancelRequestedAt });
  });
}

function addTypes(app: App, { catalog }: TaskRoutesDeps): void {
  const types = { summary: 'Task types as workers announced them', response: documented({ 200: taskTypes }) };
  app.get('/v1/task-types', { ...requireRole('viewer'), schema: types }, async (_request, reply) => {
    const items = catalog.types().map((type) => taskTypeOf(type));
    return await reply.type(JSON_TYPE).send(JSON.stringify({ items }));
  });
}
