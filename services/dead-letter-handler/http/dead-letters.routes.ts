/** The Dead Letter API: look at what died, make it run again, or close it. */
import { z } from 'zod';
import { parseInstant } from '../../../shared/amqp/message.ts';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { decodeCursor, pageOf } from '../../../shared/http/paging.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import { findLetters, renderLetter } from '../reader.ts';
import type { Replayer } from '../replayer.ts';
import {
  discardAnswer,
  discardBody,
  letterPage,
  letterParams,
  letterView,
  listQuery,
  problem,
  replayAnswer,
  replayBody,
} from './dead-letters.schema.ts';

/** What the routes need. */
export interface DeadLetterRoutesDeps {
  readonly db: Queryable;
  readonly replayer: Pick<Replayer, 'replay' | 'discard'>;
}

/** A body here is a reason and a destination. */
const BODY_LIMITS = { maxBytes: 16_384, maxDepth: 4 } as const;
const JSON_TYPE = 'application/json; charset=utf-8';
const problems = { 400: problem, 401: problem, 403: problem, 404: problem, 503: problem };

/** Adds the routes. */
export function addDeadLetterRoutes(app: App, { db, replayer }: DeadLetterRoutesDeps): void {
  app.get(
    '/v1/dead-letters',
    {
      schema: {
        tags: ['dead letters'],
        summary: 'List dead letters, newest first',
        querystring: listQuery,
        response: { 200: letterPage, ...problems },
      },
    },
    async ({ query }, reply) => {
      const states = [query.state].flat();
      const letters = await findLetters(db, {
        states: states.includes('all') ? undefined : states,
        kinds: query.kind === undefined ? undefined : [query.kind].flat(),
        reason: query.reason,
        type: query.type,
        queue: query.queue,
        taskId: query.taskId,
        diedAfter: query.diedAfter === undefined ? undefined : parseInstant(query.diedAfter),
        diedBefore: query.diedBefore === undefined ? undefined : parseInstant(query.diedBefore),
        before: decodeCursor(query.cursor, z.uuid()),
        limit: query.limit + 1,
      });
      await sendJson(reply, JSON.stringify(pageOf(letters, query.limit, ({ id }) => id)));
    },
  );

  app.get(
    '/v1/dead-letters/:id',
    {
      schema: {
        tags: ['dead letters'],
        summary: 'Show a whole dead letter',
        params: letterParams,
        response: { 200: letterView, ...problems },
      },
    },
    async ({ params: { id } }, reply) => {
      const letter = await renderLetter(db, id);
      if (letter === undefined) throw new WarrenError('dead-letter-not-found', { id });
      await sendJson(reply, letter);
    },
  );

  app.post(
    '/v1/dead-letters/:id/replay',
    {
      ...requireRole('operator'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        tags: ['dead letters'],
        summary: 'Make it run again: exactly one new run, however often this is called',
        params: letterParams,
        body: rawBody(replayBody),
        response: { 200: replayAnswer, 202: replayAnswer, ...problems, 409: problem },
      },
    },
    async ({ params, body, actor }, reply) => {
      const { reason, destination } = parseBody(body, replayBody, BODY_LIMITS).value;
      const done = await replayer.replay({ letterId: params.id, actor, reason, destination });
      await sendJson(reply, JSON.stringify(done), done.state === 'replayed' ? 200 : 202);
    },
  );

  app.post(
    '/v1/dead-letters/:id/discard',
    {
      ...requireRole('operator'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        tags: ['dead letters'],
        summary: 'Close it unrun',
        params: letterParams,
        body: rawBody(discardBody),
        response: { 200: discardAnswer, ...problems, 409: problem },
      },
    },
    async ({ params: { id }, body, actor }, reply) => {
      const { reason } = parseBody(body, discardBody, BODY_LIMITS).value;
      await replayer.discard({ letterId: id, actor, reason });
      await sendJson(reply, JSON.stringify({ id, state: 'discarded' }));
    },
  );
}

interface Reply {
  code(status: number): Reply;
  type(contentType: string): Reply;
  send(body: string): PromiseLike<unknown>;
}

/** Text goes out as it is: an input must come back byte for byte, which no serializer can promise. */
async function sendJson(reply: unknown, body: string, status = 200): Promise<void> {
  await (reply as Reply).code(status).type(JSON_TYPE).send(body);
}
