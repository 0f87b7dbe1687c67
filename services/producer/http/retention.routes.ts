/** Retention and erasing over HTTP. */
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Database } from '../../../shared/postgres/pool.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { erase } from '../erasure.ts';
import type { ErasureTarget } from '../erasure.ts';
import type { RetentionRules } from '../retention-rules.ts';
import { viewRetention } from '../retention-view.ts';
import { erasureAnswer, erasureBody, retentionAnswer } from './retention.schema.ts';
import { problem } from './tasks.schema.ts';

/** What the routes need. */
export interface RetentionRoutesDeps {
  readonly db: Database;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly rules: RetentionRules;
}

const SHOWN_NOT_ENDED = 100;
const LIMITS = { maxBytes: 131_072, maxDepth: 4 };

/** Adds the routes. */
export function registerRetentionRoutes(app: App, { db, clock, rules }: RetentionRoutesDeps): void {
  const looking = {
    summary: 'What is kept for how long, the partitions of tasks, and what the next round of retention does',
    response: { 200: retentionAnswer, '4xx': problem },
  };
  app.get('/v1/retention', { ...requireRole('viewer'), schema: looking }, async () => await viewRetention(db, rules));

  const erasing = {
    summary: 'Erase the payloads of ended tasks and dead letters, by business key or by ids',
    body: rawBody(erasureBody),
    response: { 200: erasureAnswer, '4xx': problem, 503: problem },
  };
  const options = { ...requireRole('admin'), bodyLimit: LIMITS.maxBytes, schema: erasing };
  app.post('/v1/erasures', options, async (request) => {
    const { reason, businessKey, taskIds = [], letterIds = [] } = parseBody(request.body, erasureBody, LIMITS).value;
    const target: ErasureTarget =
      businessKey === undefined
        ? { kind: 'ids', taskIds: distinct(taskIds), letterIds: distinct(letterIds) }
        : { kind: 'businessKey', businessKey };
    const { notEnded, ...answer } = await erase({ db, clock }, { target, actor: request.actor, reason });
    return { ...answer, notEnded: { count: notEnded.length, ids: notEnded.slice(0, SHOWN_NOT_ENDED) } };
  });
}

function distinct(ids: readonly string[]): readonly string[] {
  return [...new Set(ids.map((id) => id.toLowerCase()))];
}
