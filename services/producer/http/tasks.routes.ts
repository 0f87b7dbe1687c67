/** The Task API: submit, look, list, cancel. */
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { decodeCursor, encodeCursor } from '../../../shared/http/paging.ts';
import { problemOf } from '../../../shared/http/problem.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Logger } from '../../../shared/observability/log.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import { isUuid } from '../../../shared/tasks/ids.ts';
import { renderWithRaw } from '../../../shared/tasks/json.ts';
import { submissionBody } from '../../../shared/tasks/submission-body.ts';
import type { TypeCatalog } from '../../../shared/tasks/type-catalog.ts';
import { cancelTask } from '../cancel.ts';
import { findTask, listTasks } from '../tasks.ts';
import { splitBatch } from './batch-body.ts';
import { acceptItem, acceptSubmission } from './submissions.ts';
import type { AcceptedSubmission, SubmissionDeps } from './submissions.ts';
import { acceptedTaskOf, listedTaskOf, renderTask, taskTypeOf } from './task-view.ts';
import {
  acceptedTask,
  batchAnswer,
  batchBody,
  cancelAnswer,
  cancelBody,
  listQuery,
  problem,
  queues,
  taskPage,
  taskTypes,
  wholeTask,
} from './tasks.schema.ts';

/** What the routes need. */
export interface TaskRoutesDeps extends SubmissionDeps {
  readonly db: Queryable;
  readonly log: Logger;
  readonly catalog: Pick<TypeCatalog, 'find' | 'hasQueue' | 'refreshAfterMiss' | 'types' | 'queues'>;
}

const JSON_TYPE = 'application/json; charset=utf-8';
/** Bodies of a batch, in bodies of one task. */
const BATCH_FACTOR = 32;
const CANCEL_BYTES = 4_096;
const NO_BODY = Buffer.from('{}');
const params = z.object({ id: z.string().max(100).describe('Id of the task.') });

/** Answers are written as text, with bodies in them that no serializer may touch: the schemas are for the document. */
const documented = (response: Readonly<Record<string, z.ZodType>>): Readonly<Record<string, z.ZodType>> => response;

/** Adds the routes. */
export function registerTaskRoutes(app: App, deps: TaskRoutesDeps): void {
  addSubmit(app, deps);
  addBatch(app, deps);
  addGet(app, deps);
  addList(app, deps);
  addCancel(app, deps);
  addCatalog(app, deps);
}

function addSubmit(app: App, deps: TaskRoutesDeps): void {
  const schema = {
    summary: 'Submit a task',
    body: rawBody(submissionBody),
    response: documented({ 202: acceptedTask, '4xx': problem, 503: problem }),
  };
  const options = { ...requireRole('operator'), bodyLimit: deps.limits.messageBytes, schema };
  app.post('/v1/tasks', options, async (request, reply) => {
    const { submission, accepted } = await acceptSubmission(request.body.raw, request.actor.name, deps);
    const task = renderWithRaw(acceptedTaskOf(submission, accepted), { input: submission.input });
    return await reply.code(202).header('location', `/v1/tasks/${accepted.id}`).type(JSON_TYPE).send(task);
  });
}

function addBatch(app: App, deps: TaskRoutesDeps): void {
  const schema = {
    summary: 'Submit up to 1 000 tasks; a result per item, in order',
    body: rawBody(batchBody),
    response: documented({ 200: batchAnswer, 207: batchAnswer, '4xx': problem, 503: problem }),
  };
  const bodyLimit = deps.limits.messageBytes * BATCH_FACTOR;
  app.post('/v1/tasks/batch', { ...requireRole('operator'), bodyLimit, schema }, async (request, reply) => {
    const items = splitBatch(request.body.raw);
    const results = await Promise.all(items.map(async (item) => await acceptItem(item, request.actor.name, deps)));
    const failures = results.filter((result) => 'code' in result);
    const [failure] = failures;
    // Nothing was accepted and all may be sent again: an answer that says so, not a thousand that do.
    if (failure?.code === 'database-unavailable' || failure?.code === 'outbox-full') {
      if (failures.length === items.length) throw failure;
    }
    const answer = {
      accepted: items.length - failures.length,
      refused: failures.length,
      results: results.map((result) => itemOf(result)),
    };
    return await reply
      .code(failure === undefined ? 200 : 207)
      .type(JSON_TYPE)
      .send(JSON.stringify(answer));
  });
}

function itemOf(result: AcceptedSubmission | WarrenError): Record<string, unknown> {
  if ('accepted' in result) return { status: 202, task: acceptedTaskOf(result.submission, result.accepted) };
  const document = problemOf(result);
  return { status: document.status, problem: document };
}

function addGet(app: App, deps: TaskRoutesDeps): void {
  const schema = {
    summary: 'A task, with its attempts',
    params,
    response: documented({ 200: wholeTask, '4xx': problem }),
  };
  app.get('/v1/tasks/:id', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const taskId = idOf(request.params.id);
    const found = await findTask(deps.db, taskId);
    if (found === undefined) throw new WarrenError('task-not-found', { taskId });
    return await reply.type(JSON_TYPE).send(renderTask(found.task, found.attempts));
  });
}

function addList(app: App, deps: TaskRoutesDeps): void {
  const schema = {
    summary: 'Tasks, newest first',
    querystring: listQuery,
    response: documented({ 200: taskPage, '4xx': problem }),
  };
  app.get('/v1/tasks', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const { limit, cursor, state, ...filter } = request.query;
    const below = decodeCursor(
      cursor,
      z.string().refine((key) => isUuid(key) || /^f{8}-/.test(key)),
    );
    const states = state === undefined ? undefined : [state].flat();
    const { rows, next, isPartial } = await listTasks(deps.db, { ...filter, states }, { limit, below });
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
    params,
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
    const cancelled = await cancelTask(deps.db, { taskId: id, actor: request.actor, reason });
    const { name: actor, role } = request.actor;
    deps.log.info('cancel asked for', { taskId: id, actor, role, became: cancelled.kind });
    if (cancelled.kind === 'cancelled') return await reply.code(200).send({ id, state: 'cancelled' as const });
    const cancelRequestedAt = cancelled.requestedAt.toISOString();
    return await reply.code(202).send({ id, state: 'running' as const, cancelRequestedAt });
  });
}

function addCatalog(app: App, { catalog }: TaskRoutesDeps): void {
  const types = { summary: 'Task types as workers announced them', response: documented({ 200: taskTypes }) };
  app.get('/v1/task-types', { ...requireRole('viewer'), schema: types }, async (_request, reply) => {
    const items = catalog.types().map((type) => taskTypeOf(type));
    return await reply.type(JSON_TYPE).send(JSON.stringify({ items }));
  });
  const named = { summary: 'Queues, with the task types that go there', response: documented({ 200: queues }) };
  app.get('/v1/queues', { ...requireRole('viewer'), schema: named }, async (_request, reply) => {
    const items = catalog.queues().map((name) => ({
      name,
      taskTypes: catalog
        .types()
        .filter(({ queue }) => queue === name)
        .map((type) => type.name),
    }));
    return await reply.type(JSON_TYPE).send(JSON.stringify({ items }));
  });
}

/** An id in its canonical form. Throws `field-invalid` for what cannot be one. */
function idOf(text: string): string {
  const id = text.toLowerCase();
  if (!isUuid(id)) throw new WarrenError('field-invalid', { field: 'id', reason: 'must be a UUID' });
  return id;
}
