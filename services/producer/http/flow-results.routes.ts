/** The API of what the steps of a flow gave. */
import { z } from 'zod';
import { decodeCursor, encodeCursor } from '../../../shared/http/paging.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import { renderWithRaw } from '../../../shared/tasks/json.ts';
import { findStepResults } from '../flow-results.ts';
import type { StepResultsPage } from '../flow-results.ts';
import { withoutNull } from '../without-null.ts';
import { resultsPage, resultsQuery, stepParams } from './flows.schema.ts';
import { idOf } from './ids.ts';
import { documented, problem } from './tasks.schema.ts';

const JSON_TYPE = 'application/json; charset=utf-8';
/** Number of a step. */
const resultsCursor = z.int().min(0).max(2_147_483_647);

/** Adds the route. */
export function registerFlowResults(app: App, { db }: { readonly db: Queryable }): void {
  const schema = {
    summary: 'What the members of a group, or a single step, gave, in their order',
    params: stepParams,
    querystring: resultsQuery,
    response: documented({ 200: resultsPage, '4xx': problem }),
  };
  app.get('/v1/flows/:id/steps/:name/results', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const { id, name } = request.params;
    const { limit, cursor } = request.query;
    const after = decodeCursor(cursor, resultsCursor);
    const page = await findStepResults(db, { flowId: idOf(id), name }, { limit, after });
    return await reply.type(JSON_TYPE).send(renderPage(page));
  });
}

/** As JSON text: results are written as they were stored. */
function renderPage({ rows, next }: StepResultsPage): string {
  const items = rows.map(({ member, task_id: taskId, state, result }) =>
    renderWithRaw(withoutNull({ member, taskId, state }), { result: result ?? undefined }),
  );
  const more = next === undefined ? {} : { nextCursor: encodeCursor(next) };
  return renderWithRaw(more, { items: `[${items.join(',')}]` });
}
