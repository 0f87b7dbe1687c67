/** The Dead Letter API: look at what died, make it run again, or close it. */
import { Readable } from 'node:stream';
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { decodeCursor, encodeCursor } from '../../../shared/http/paging.ts';
import { sendJson } from '../../../shared/http/send-json.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Transactional } from '../../../shared/postgres/transaction.ts';
import { beginExport, exportLetters } from '../exporter.ts';
import { findLetters } from '../finder.ts';
import { renderLetter } from '../reader.ts';
import type { Replayer } from '../replayer.ts';
import {
  actHeaders,
  discardAnswer,
  discardBody,
  exportQuery,
  letterLines,
  letterPage,
  letterParams,
  letterView,
  listQuery,
  problem,
  replayAnswer,
  replayBody,
} from './dead-letters.schema.ts';
import { filterOf } from './letter-query.ts';

/** What the routes need. */
export interface DeadLetterRoutesDeps {
  readonly db: Transactional;
  readonly replayer: Pick<Replayer, 'replay' | 'discard'>;
}

/** A body here is a reason and a destination. */
const BODY_LIMITS = { maxBytes: 16_384, maxDepth: 4 } as const;
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
      const below = decodeCursor(query.cursor, z.uuid());
      const { items, next, isPartial } = await findLetters(db, { filter: filterOf(query), below, limit: query.limit });
      await sendJson(
        reply,
        JSON.stringify({
          items,
          ...(next === undefined ? {} : { nextCursor: encodeCursor(next) }),
          ...(isPartial ? { isPartial } : {}),
        }),
      );
    },
  );

  app.get(
    '/v1/dead-letters/export',
    {
      schema: {
        tags: ['dead letters'],
        summary: 'Write out whole dead letters as JSON Lines, newest first',
        querystring: exportQuery,
        response: { 200: letterLines, ...problems },
      },
    },
    async ({ query, actor }, reply) => {
      const filter = filterOf(query); // what cannot be read is refused before anything is written down
      const { why, ...selected } = query;
      const given = Object.entries(selected).filter(([, value]) => value !== undefined);
      await beginExport(db, { actor, asked: { ...Object.fromEntries(given), diedOf: query.reason, reason: why } });
      await sendLines(reply, exportLetters(db, filter));
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
      await sendJson(reply, letter.text, { etag: letter.etag });
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
        headers: actHeaders,
        body: rawBody(replayBody),
        response: { 200: replayAnswer, 202: replayAnswer, ...problems, 409: problem, 412: problem },
      },
    },
    async ({ params, headers, body, actor }, reply) => {
      const { reason, destination } = parseBody(body, replayBody, BODY_LIMITS).value;
      const done = await replayer.replay({
        letterId: params.id,
        actor,
        reason,
        destination,
        ifMatch: headers['if-match'],
      });
      await sendJson(reply, JSON.stringify(done), { status: done.state === 'replayed' ? 200 : 202 });
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
        headers: actHeaders,
        body: rawBody(discardBody),
        response: { 200: discardAnswer, ...problems, 409: problem, 412: problem },
      },
    },
    async ({ params: { id }, headers, body, actor }, reply) => {
      const { reason } = parseBody(body, discardBody, BODY_LIMITS).value;
      await replayer.discard({ letterId: id, actor, reason, ifMatch: headers['if-match'] });
      await sendJson(reply, JSON.stringify({ id, state: 'discarded' }));
    },
  );
}

/** Lines go out as fast as the client reads; where it goes, the stream is destroyed, and with it what makes the lines. */
async function sendLines(reply: unknown, lines: AsyncIterable<string>): Promise<void> {
  await (reply as StreamReply).code(200).type('application/jsonl; charset=utf-8').send(Readable.from(lines));
}

interface StreamReply {
  code(status: number): StreamReply;
  type(contentType: string): StreamReply;
  send(body: Readable): PromiseLike<unknown>;
}
