/** Discards many dead letters: those of a filter, or those that are named. */
import type { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { sendJson } from '../../../shared/http/send-json.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import { discardMany, previewDiscard } from '../discarder.ts';
import type { DiscardDeps, DiscardRequest } from '../discarder.ts';
import { isEmpty, parseLetterFilter } from '../letter-filter.ts';
import { problem } from './dead-letters.schema.ts';
import { discardManyAnswer, discardManyBody } from './discards.schema.ts';

/** Ten thousand ids and a reason. */
const BODY_LIMITS = { maxBytes: 524_288, maxDepth: 4 } as const;

/** Adds the route. */
export function addDiscardRoutes(app: App, deps: DiscardDeps): void {
  app.post(
    '/v1/dead-letters/discard',
    {
      ...requireRole('operator'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        tags: ['dead letters'],
        summary: 'Close many unrun: those of a filter, or those that are named',
        body: rawBody(discardManyBody),
        response: { 200: discardManyAnswer, 400: problem, 401: problem, 403: problem, 503: problem },
      },
    },
    async ({ body, actor }, reply) => {
      const given = parseBody(body, discardManyBody, BODY_LIMITS).value;
      const { filter, asked } = selectionOf(given);
      if (given.dryRun === true) {
        const preview = await previewDiscard(deps.db, filter);
        await sendJson(reply, JSON.stringify({ dryRun: true, ...preview }));
        return;
      }
      if (given.reason === undefined) throw new WarrenError('field-invalid', { field: 'reason', reason: 'is missing' });
      const done = await discardMany(deps, { filter, asked, actor, reason: given.reason });
      await sendJson(reply, JSON.stringify({ dryRun: false, ...done }));
    },
  );
}

/** Throws `field-invalid` for what would select everything by mistake. */
function selectionOf({
  filter: text,
  ids,
  all,
}: z.output<typeof discardManyBody>): Pick<DiscardRequest, 'filter' | 'asked'> {
  if (ids !== undefined) {
    if (text !== undefined) {
      throw new WarrenError('field-invalid', {
        field: 'ids',
        reason: 'must not stand beside filter; give one of them',
      });
    }
    const values = [...new Set(ids.map((id) => id.toLowerCase()))].map((id) => ({
      kind: 'text' as const,
      pieces: [id],
    }));
    return { filter: { terms: [{ key: 'id', path: [], isNegated: false, values }] }, asked: { ids: values.length } };
  }
  const filter = parseLetterFilter(text ?? '');
  if (isEmpty(filter) && all !== true) {
    throw new WarrenError('field-invalid', {
      field: 'filter',
      reason: 'selects every open dead letter; if that is meant, add "all": true',
    });
  }
  return { filter, asked: { filter: text ?? '' } };
}
