/** The Task API on the life of a task: its history, the lines of its attempts, what it did once. */
import { z } from 'zod';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { decodeCursor, encodeCursor } from '../../../shared/http/paging.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Logger } from '../../../shared/observability/log.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import { NO_LINES, findAttemptLog } from '../../../shared/tasks/attempt-logs.ts';
import { renderWithRaw } from '../../../shared/tasks/json.ts';
import { findHistory, historyKey } from '../history.ts';
import { findOnceRuns, forgetOnceRun } from '../once-keys.ts';
import type { OnceRow } from '../once-keys.ts';
import {
  attemptLogs,
  attemptParams,
  forgetAnswer,
  forgetBody,
  historyPage,
  historyQuery,
  onceRuns,
} from './history.schema.ts';
import { idOf } from './ids.ts';
import { problem } from './tasks.schema.ts';

/** What the routes need. */
export interface HistoryRoutesDeps {
  readonly db: Queryable;
  readonly log: Logger;
  /** How deep a body may nest. */
  readonly depth: number;
}

const JSON_TYPE = 'application/json; charset=utf-8';
const FORGET_BYTES = 8_192;
const params = z.object({ id: z.string().max(100).describe('Id of the task.') });
/** Answers are written as text: the schemas are for the document. */
const documented = (response: Readonly<Record<string, z.ZodType>>): Readonly<Record<string, z.ZodType>> => response;

/** Adds the routes. */
export function registerHistoryRoutes(app: App, deps: HistoryRoutesDeps): void {
  addHistory(app, deps);
  addLogs(app, deps);
  addOnce(app, deps);
  addForget(app, deps);
}

function addHistory(app: App, { db }: HistoryRoutesDeps): void {
  const schema = {
    summary: 'Everything that happened to a task, oldest first, with who or what caused it',
    params,
    querystring: historyQuery,
    response: documented({ 200: historyPage, '4xx': problem }),
  };
  app.get('/v1/tasks/:id/history', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const taskId = idOf(request.params.id);
    const { limit, cursor } = request.query;
    const { state, entries, next } = await findHistory(db, taskId, { limit, after: decodeCursor(cursor, historyKey) });
    const page = {
      taskId,
      state,
      items: entries,
      ...(next === undefined ? {} : { nextCursor: encodeCursor(next) }),
    };
    return await reply.type(JSON_TYPE).send(JSON.stringify(page));
  });
}

function addLogs(app: App, { db }: HistoryRoutesDeps): void {
  const schema = {
    summary: 'What an attempt logged',
    params: attemptParams,
    response: documented({ 200: attemptLogs, '4xx': problem }),
  };
  app.get('/v1/tasks/:id/attempts/:attempt/logs', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const taskId = idOf(request.params.id);
    const { attempt, outcome, dropped, why, json } = await findAttemptLog(db, taskId, request.params.attempt);
    const members = { taskId, attempt, outcome, dropped, ...(why === undefined ? {} : { why, note: NO_LINES[why] }) };
    return await reply.type(JSON_TYPE).send(renderWithRaw(members, { lines: Buffer.from(json) }));
  });
}

function addOnce(app: App, { db }: HistoryRoutesDeps): void {
  const schema = {
    summary: 'What a task did once, with its results, and what was cut in the middle of it',
    params,
    response: documented({ 200: onceRuns, '4xx': problem }),
  };
  app.get('/v1/tasks/:id/once', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const taskId = idOf(request.params.id);
    const items = (await findOnceRuns(db, taskId)).map((row) => renderOnce(row));
    return await reply.type(JSON_TYPE).send(renderWithRaw({ taskId }, { items: Buffer.from(`[${items.join(',')}]`) }));
  });
}

function renderOnce({ key, attempt, started_at: startedAt, finished_at: finishedAt, result }: OnceRow): string {
  const members = {
    key,
    state: finishedAt === null ? 'begun' : 'finished',
    attempt,
    startedAt,
    ...(finishedAt === null ? {} : { finishedAt }),
  };
  return renderWithRaw(members, { result: result ?? undefined });
}

function addForget(app: App, { db, log, depth }: HistoryRoutesDeps): void {
  const schema = {
    summary: 'Forget what a task did once, so that its next attempt does it again',
    params,
    body: rawBody(forgetBody),
    response: documented({ 200: forgetAnswer, '4xx': problem }),
  };
  const options = { ...requireRole('operator'), bodyLimit: FORGET_BYTES, schema };
  app.post('/v1/tasks/:id/once/forget', options, async (request, reply) => {
    const taskId = idOf(request.params.id);
    const { key, reason } = parseBody(request.body, forgetBody, { maxBytes: FORGET_BYTES, maxDepth: depth }).value;
    await forgetOnceRun(db, { taskId, key, actor: request.actor, reason });
    log.info('side effect forgotten', { taskId, actor: request.actor.name, role: request.actor.role });
    return await reply.code(200).send({ id: taskId, key, forgotten: true });
  });
}
