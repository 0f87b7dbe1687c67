/** The ledger over HTTP. */
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { sendJson } from '../../../shared/http/send-json.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Transactional } from '../../../shared/postgres/transaction.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { HOUR_MS, hourOf, instantOf } from '../ledger-books.ts';
import { previewReconcile, reconcileLedger } from '../ledger-reconcile.ts';
import { readLedger, sumOf } from '../ledger.ts';
import type { LedgerLine } from '../ledger.ts';
import { ledger, ledgerQuery, MOST_HOURS, MOST_LINES, reconcileAnswer, reconcileBody } from './ledger.schema.ts';
import { BODY_LIMITS, orderOf, renderDone, renderPreview } from './many.routes.ts';
import { problem } from './tasks.schema.ts';

/** What the routes need. */
export interface LedgerRoutesDeps {
  readonly db: Transactional;
  readonly clock: Pick<Clock, 'now'>;
  /** Milliseconds without a renewal after which a worker is taken for dead. */
  readonly lapseMs: number;
}

const DEFAULT_HOURS = 24;

/** Adds the routes. */
export function registerLedgerRoutes(app: App, deps: LedgerRoutesDeps): void {
  addLedger(app, deps);
  addReconcile(app, deps);
}

function addReconcile(app: App, { db, lapseMs }: LedgerRoutesDeps): void {
  app.post(
    '/v1/ledger/reconcile',
    {
      ...requireRole('admin'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        summary:
          'After the database was restored from a backup, and before a worker starts: lift the attempt of every open task above any given out since',
        body: rawBody(reconcileBody),
        response: { 200: reconcileAnswer, 400: problem, 401: problem, 403: problem, 409: problem, 503: problem },
      },
    },
    async ({ body, actor }, reply) => {
      const given = parseBody(body, reconcileBody, BODY_LIMITS).value;
      if (given.dryRun === true) return await sendJson(reply, renderPreview(await previewReconcile(db, lapseMs)));
      const { freed, lifted, invited, ...done } = await reconcileLedger(db, orderOf(given, actor), lapseMs);
      return await sendJson(reply, renderDone(done, { freed, lifted, invited }));
    },
  );
}

function addLedger(app: App, { db, clock }: LedgerRoutesDeps): void {
  const schema = {
    summary: 'The books per task type and hour: what was accepted, how it ended, and whether the tasks agree',
    querystring: ledgerQuery,
    response: { 200: ledger, '4xx': problem },
  };
  app.get('/v1/ledger', { ...requireRole('viewer'), schema }, async (request) => {
    const { type, from, to } = request.query;
    const hours = hoursOf(from, to ?? clock.now());
    const lines = await readLedger(db, { ...hours, type }, MOST_LINES + 1);
    if (lines.length > MOST_LINES) {
      throw new WarrenError('field-invalid', { field: 'from', reason: `gives more than ${MOST_LINES} lines` });
    }
    const comparedAt = lines.every((line) => line.comparedAt !== undefined)
      ? Math.min(...lines.map((line) => line.comparedAt?.getTime() ?? 0))
      : Infinity;
    return {
      from: instantOf(hours.from).toISOString(),
      to: instantOf(hours.before).toISOString(),
      ...(Number.isFinite(comparedAt) ? { comparedAt: new Date(comparedAt).toISOString() } : {}),
      totals: sumOf(lines),
      items: lines.map((line) => itemOf(line)),
    };
  });
}

function itemOf({ hour, comparedAt, found, ...figures }: LedgerLine): LedgerItem {
  return {
    ...figures,
    hour: hour.toISOString(),
    ...(comparedAt === undefined ? {} : { comparedAt: comparedAt.toISOString() }),
    ...(found === undefined ? {} : { found }),
  };
}

type LedgerItem = (typeof ledger)['_output']['items'][number];

/** The hours that `from` to before `to` touches. Throws `field-invalid`. */
function hoursOf(from: Date | undefined, to: Date): { readonly from: number; readonly before: number } {
  const before = Math.ceil(to.getTime() / HOUR_MS);
  const first = from === undefined ? before - DEFAULT_HOURS : hourOf(from);
  if (first >= before) throw new WarrenError('field-invalid', { field: 'from', reason: 'must be before `to`' });
  if (before - first > MOST_HOURS) {
    throw new WarrenError('field-invalid', {
      field: 'from',
      reason: `must be at most ${MOST_HOURS} hours before \`to\``,
    });
  }
  return { from: first, before };
}
