/** The ledger over HTTP. */
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { HOUR_MS, hourOf, instantOf } from '../ledger-books.ts';
import { readLedger, sumOf } from '../ledger.ts';
import type { LedgerLine } from '../ledger.ts';
import { ledger, ledgerQuery, MOST_HOURS, MOST_LINES } from './ledger.schema.ts';
import { problem } from './tasks.schema.ts';

/** What the route needs. */
export interface LedgerRoutesDeps {
  readonly db: Queryable;
  readonly clock: Pick<Clock, 'now'>;
}

const DEFAULT_HOURS = 24;

/** Adds the route. */
export function registerLedgerRoutes(app: App, { db, clock }: LedgerRoutesDeps): void {
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
