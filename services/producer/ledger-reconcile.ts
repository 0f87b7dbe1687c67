/**
 * Makes a database sound that was restored from a backup, while no worker runs. What happened between the backup and now, nobody
 * knows: a task that the backup shows as open may have been run since. So each open task gets an entry in its history that says
 * so, and its next attempt a number above any that was given out meanwhile: whoever kept such a number to fence writes off with,
 * as the settles of a worker do that was cut off, is not taken in by the new one.
 */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { isTerminal, TASK_STATES } from '../../shared/tasks/state-machine.ts';
import { findLiving, liftAttempts } from './ledger-reconcile.sql.ts';
import { doToMany, previewMany } from './many.ts';
import type { ManyDone, ManyPreview, ManyRequest } from './many.ts';
import { lapseLeases, reapOrphans } from './reaper.sql.ts';
import { parseTaskFilter } from './task-filter.ts';

/** Who orders it, and where an earlier request stopped. */
export type ReconcileRequest = Pick<ManyRequest, 'actor' | 'reason' | 'from' | 'withinMs'>;

/** What was done. */
export interface ReconcileDone extends ManyDone {
  /** Attempts that ran by the backup, and were taken from their workers, which are gone. */
  readonly freed: number;
  /** Tasks whose attempt was lifted. */
  readonly lifted: number;
  /** Of these, those that were invited once more. */
  readonly invited: number;
}

/** By how much attempts are lifted: a task that is put off every ten seconds makes as many in eleven days. */
export const LIFTED_BY = 100_000;
const CLAIMS_PER_STEP = 50;
/** None dies of it: whether a handler would kill its worker is not what this is about. */
const NEVER_DEAD = 32_767;
const OPEN = TASK_STATES.filter((state) => !isTerminal(state));
const EVERYTHING = { filter: parseTaskFilter(''), text: '', states: OPEN } as const;

/** Says how many tasks are open, and does nothing. Throws `workers-alive`, and as `Queryable.query`. */
export async function previewReconcile(db: Transactional, lapseMs: number): Promise<ManyPreview> {
  await expectNoWorkers(db, lapseMs);
  return await previewMany(db, EVERYTHING);
}

/**
 * Does it, in chunks; see `doToMany`. `lapseMs`: as the reaper's. Throws `workers-alive` where a worker has renewed its lease within
 * that, `cursor-invalid`, and as `Queryable.query`; what was done until then stays done.
 */
export async function reconcileLedger(
  db: Transactional,
  request: ReconcileRequest,
  lapseMs: number,
): Promise<ReconcileDone> {
  await expectNoWorkers(db, lapseMs);
  const freed = await freeAll(db, lapseMs);
  let lifted = 0;
  let invited = 0;
  const done = await doToMany(
    db,
    { ...EVERYTHING, ...request },
    {
      action: 'ledger.reconcile',
      act: async (ids, operation) => {
        const why = `The database was restored from a backup (operation ${operation}): attempts up to this one may have run since, and are not on record.`;
        const rows = await retryConflicts(db, async () => await run(db, liftAttempts, ids, LIFTED_BY, why));
        lifted += rows.length;
        invited += rows.filter(({ is_invited: isInvited }) => isInvited).length;
      },
    },
  );
  return { ...done, freed, lifted, invited };
}

async function expectNoWorkers(db: Transactional, lapseMs: number): Promise<void> {
  const [living] = await run(db, findLiving, lapseMs);
  if (living !== undefined && living.workers > 0) {
    throw new WarrenError('workers-alive', { workers: living.workers, hosts: living.hosts });
  }
}

/** What ran by the backup waits again: its workers are gone, whatever their leases say. */
async function freeAll(db: Transactional, lapseMs: number): Promise<number> {
  await run(db, lapseLeases, lapseMs);
  let freed = 0;
  for (;;) {
    const rows = await retryConflicts(db, async () => await run(db, reapOrphans, CLAIMS_PER_STEP, NEVER_DEAD));
    freed += rows.length;
    if (rows.length === 0) return freed;
  }
}
