/** The audit over HTTP: to be read by whoever may look, to be written by nobody. */
import { parseInstant } from '../../../shared/amqp/message.ts';
import { decodeCursor, pageOf } from '../../../shared/http/paging.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import { auditKey, findAudit } from '../audit.ts';
import { auditPage, auditQuery } from './audit.schema.ts';
import { problem } from './dead-letters.schema.ts';

/** Adds the route. */
export function addAuditRoutes(app: App, { db }: { readonly db: Queryable }): void {
  app.get(
    '/v1/audit',
    {
      schema: {
        tags: ['audit'],
        summary: 'List who did what, newest first',
        querystring: auditQuery,
        response: { 200: auditPage, 400: problem, 401: problem, 403: problem, 503: problem },
      },
    },
    async ({ query: { target, actor, action, after, before, cursor, limit } }) => {
      const found = await findAudit(db, {
        target,
        actor,
        action,
        after: after === undefined ? undefined : parseInstant(after),
        before: before === undefined ? undefined : parseInstant(before),
        past: decodeCursor(cursor, auditKey),
        limit: limit + 1,
      });
      const { items, nextCursor } = pageOf(found, limit, ({ key }) => key);
      return {
        items: items.map(({ line }) => ({ ...line, detail: line.detail as Record<string, unknown> })),
        nextCursor,
      };
    },
  );
}
