/** Results of a step of a flow, page by page. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { FROM_START, nextAfter, PAGE_BYTES } from '../../shared/flows/step-results.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { findStep, readStepResults } from './flow-results.sql.ts';

/** A page of results. */
export interface StepResultsPage {
  readonly rows: readonly RowOf<typeof readStepResults.columns>[];
  /** Number of the step after which the next page begins; `undefined` at the end. */
  readonly next: number | undefined;
}

/** At most `limit` results, and about a MiB of them. Throws `flow-not-found`, `step-not-found`, and as `Queryable.query`. */
export async function findStepResults(
  db: Queryable,
  { flowId, name }: { readonly flowId: string; readonly name: string },
  { limit, after = FROM_START }: { readonly limit: number; readonly after: number | undefined },
): Promise<StepResultsPage> {
  const rows = await run(db, readStepResults, flowId, name, after, limit, PAGE_BYTES);
  if (rows.length === 0) await refuseUnknown(db, flowId, name);
  return { rows, next: nextAfter(rows) };
}

async function refuseUnknown(db: Queryable, flowId: string, name: string): Promise<void> {
  const [flow] = await run(db, findStep, flowId, name);
  if (flow === undefined) throw new WarrenError('flow-not-found', { flowId });
  if (flow.is_known === true) return;
  throw new WarrenError('step-not-found', { field: 'name', reason: 'names no step of this flow', flowId });
}
