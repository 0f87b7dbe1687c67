/** Failure groups in the Dead Letter API: what died of the same, and what people say about it. */
import { z } from 'zod';
import { GROUP_STATES } from '../../../shared/dead-letters/group-state.ts';
import type { GroupState } from '../../../shared/dead-letters/group-state.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { decodeCursor, pageOf } from '../../../shared/http/paging.ts';
import { etagOf, versionOf } from '../../../shared/http/etag.ts';
import { sendJson } from '../../../shared/http/send-json.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import { changeFailureGroup, findGroups, getGroup } from '../groups.ts';
import { problem } from './dead-letters.schema.ts';
import {
  changeHeaders,
  groupChange,
  groupPage,
  groupParams,
  groupsQuery,
  groupView,
  wholeGroup,
} from './failure-groups.schema.ts';

const BODY_LIMITS = { maxBytes: 65_536, maxDepth: 4 } as const;
const problems = { 400: problem, 401: problem, 403: problem, 404: problem, 503: problem };
const cursorKey = z.tuple([z.int().min(0), z.uuid()]);

/** Adds the routes. */
export function addFailureGroupRoutes(app: App, { db }: { readonly db: Queryable }): void {
  app.get(
    '/v1/failure-groups',
    {
      schema: {
        tags: ['failure groups'],
        summary: 'List failure groups, those with the most open letters first',
        querystring: groupsQuery,
        response: { 200: groupPage, ...problems },
      },
    },
    async ({ query }, reply) => {
      const states = [query.state].flat();
      const after = decodeCursor(query.cursor, cursorKey);
      const groups = await findGroups(db, {
        states: states.includes('all') ? (Object.keys(GROUP_STATES) as GroupState[]) : (states as GroupState[]),
        minOpen: query.minOpen,
        below: after === undefined ? undefined : { open: after[0], id: after[1] },
        limit: query.limit + 1,
      });
      await sendJson(
        reply,
        JSON.stringify(pageOf(groups, query.limit, ({ openLetters, id: last }) => [openLetters, last])),
      );
    },
  );

  app.get(
    '/v1/failure-groups/:id',
    {
      schema: {
        tags: ['failure groups'],
        summary: 'Show a failure group with its youngest open letters',
        params: groupParams,
        response: { 200: wholeGroup, ...problems },
      },
    },
    async ({ params: { id } }, reply) => {
      const group = await getGroup(db, id);
      await sendJson(reply, JSON.stringify(group), { etag: etagOf(group.version) });
    },
  );

  app.patch(
    '/v1/failure-groups/:id',
    {
      ...requireRole('operator'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        tags: ['failure groups'],
        summary: 'Say that it is acknowledged, resolved or ignored; write a note; name who is on it',
        params: groupParams,
        headers: changeHeaders,
        body: rawBody(groupChange),
        response: { 200: groupView, ...problems, 412: problem },
      },
    },
    async ({ params: { id }, headers, body, actor }, reply) => {
      const change = parseBody(body, groupChange, BODY_LIMITS).value;
      const version = versionOf(headers['if-match']);
      const group = await changeFailureGroup(db, { id, version }, change, actor);
      await sendJson(reply, JSON.stringify(group), { etag: etagOf(group.version) });
    },
  );
}
