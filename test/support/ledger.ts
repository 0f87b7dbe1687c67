/** The ledger as tests look at it: by a comparison of their own, and by the audit of the product. */
import { expect } from '@jest/globals';
import { createLedgerAudit } from '../../services/producer/ledger-audit.ts';
import type { LedgerAuditOptions } from '../../services/producer/ledger-audit.ts';
import type { LogFields } from '../../shared/observability/log.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { openFaulty, partDeps, rows } from './core.ts';
import { eventually } from './eventually.ts';
import { compareBooks } from './fleet.sql.ts';

/** What the books say of all hours and types together. */
export async function readCounts(db: Database, type?: string): Promise<Record<string, number>> {
  const found = await rows<{ entry: string; tasks: number }>(
    db,
    `select entry, sum(tasks)::int4 as tasks from ledger_entries where $1::text is null or type = $1 group by entry`,
    type ?? null,
  );
  return Object.fromEntries(found.map(({ entry, tasks }) => [entry, tasks]));
}

/** Expects that each hour and type has in its books what the tasks' rows say, both read at one instant. */
export async function expectBalance(db: Database): Promise<void> {
  expect(await run(db, compareBooks)).toEqual([]);
}

/** A running audit. */
export interface TestAudit extends AsyncDisposable {
  readonly metrics: Metrics;
  /** What it logged, debug apart. */
  readonly lines: readonly { readonly level: string; readonly message: string; readonly facts: LogFields }[];
  /** Resolves once every hour has been looked at anew. */
  pass(): Promise<void>;
}

/** Starts one for which nothing is too young to be stranded. */
export async function openAudit(db: Database, options: Partial<LedgerAuditOptions> = {}): Promise<TestAudit> {
  const faulty = await openFaulty(db);
  const metrics = createMetrics({ service: 'test', version: '', withProcess: false });
  const lines: { level: string; message: string; facts: LogFields }[] = [];
  const saying =
    (level: string) =>
    (message: string, facts: LogFields = {}): void =>
      void lines.push({ level, message, facts });
  const log = { ...partDeps.log, error: saying('error'), warn: saying('warn'), info: saying('info') };
  const deps = { ...partDeps, log, db: faulty, metrics };
  const loop = createLedgerAudit(deps, { intervalMs: 1, strandedAfterMs: 0, ...options });
  await loop.start();
  return {
    metrics,
    lines,
    async pass() {
      // Each of the two walks may have begun its look at an hour before; a third has not.
      for (let looks = 0; looks < 3; looks += 1) {
        const [now] = await rows<{ at: Date }>(db, 'select clock_timestamp() as at');
        await eventually(async () => expect(await notComparedSince(db, now?.at)).toEqual([]), {
          withinMs: 60_000,
          everyMs: 2,
        });
      }
    },
    async [Symbol.asyncDispose]() {
      await loop.stop(systemClock.monotonicMs() + 2_000);
      await faulty[Symbol.asyncDispose]();
    },
  };
}

async function notComparedSince(db: Database, at: Date | undefined): Promise<readonly unknown[]> {
  return await rows(
    db,
    `select hour, type
       from (select distinct task_hour(id) as hour, type from tasks
             union select hour, type from ledger_entries
             union select hour, type from ledger_audits) k
      where not exists (
        select from ledger_audits a where a.hour = k.hour and a.type = k.type and a.compared_at > $1::timestamptz)`,
    at,
  );
}
