/**
 * Discards many letters at once, in chunks that are each committed alone: whatever dies in between, a letter is either open or
 * closed with its line in the audit, and the same request again closes the rest.
 */
import type { Actor } from '../../shared/http/auth.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { inChunks, LONGEST_WAIT_MS, ROWS_PER_COMMIT } from '../../shared/tasks/in-chunks.ts';
import { beginOperation } from '../../shared/tasks/operations.ts';
import { discardLetters } from './discarder.sql.ts';
import { countLetters, findLetterIds, findLetters } from './finder.ts';
import type { LetterFilter } from './letter-filter.ts';
import type { LetterSummary } from './letter-view.ts';

/** What discarding needs. */
export interface DiscardDeps {
  readonly db: Transactional;
  readonly metrics: Pick<Metrics, 'discarded'>;
}

/** What an operator wants closed. */
export interface DiscardRequest {
  readonly filter: LetterFilter;
  /** How it was asked for, for the audit: the text of the filter, or how many ids. */
  readonly asked: { readonly filter: string } | { readonly ids: number };
  readonly actor: Actor;
  /** Kept with each letter. */
  readonly reason: string;
}

/** What was done. */
export interface Discarded {
  /** Id of the line in the audit; each letter's own line names it. */
  readonly operation: string;
  /** Open letters that fitted at the start. */
  readonly selected: number;
  readonly discarded: number;
  /** True where the time was over first: the same request again closes the rest. */
  readonly isPartial: boolean;
}

/** What would be done. */
export interface DiscardPreview {
  readonly selected: number;
  readonly samples: readonly LetterSummary[];
  /** True where there may be more than were counted in time. */
  readonly isPartial: boolean;
}

const SAMPLES = 10;

/** Says what `discardMany` would close, and closes nothing. Throws as `Queryable.query`. */
export async function previewDiscard(db: Transactional, filter: LetterFilter): Promise<DiscardPreview> {
  const open = openOnly(filter);
  const { count, isPartial } = await countLetters(db, open);
  const { items } = await findLetters(db, { filter: open, limit: SAMPLES });
  return { selected: count, samples: items, isPartial };
}

/** Closes every open letter that fits. Throws as `Queryable.query`; what was closed until then stays closed. */
export async function discardMany({ db, metrics }: DiscardDeps, request: DiscardRequest): Promise<Discarded> {
  const { actor, asked, reason } = request;
  const filter = openOnly(request.filter);
  const untilMs = db.deps.clock.monotonicMs() + LONGEST_WAIT_MS;
  const { count: selected, isPartial } = await countLetters(db, filter);
  const detail = { ...asked, reason, selected, ...(isPartial ? { isPartial } : {}) };
  const operation = await beginOperation(db, { action: 'dead-letters.discard', actor, detail });
  const address = actor.address ?? null;
  let discarded = 0;
  let isWalking = false;
  const left = await inChunks(db.deps.clock, {
    find: async (below) => await findLetterIds(db, { filter, limit: ROWS_PER_COMMIT, below, isWalking }),
    act: async (page) => {
      isWalking ||= page.isPartial;
      if (page.items.length === 0) return;
      const closed = await retryConflicts(
        db,
        async () => await run(db, discardLetters, page.items, actor.name, actor.role, reason, operation, address),
      );
      discarded += closed.length;
      metrics.discarded.add(closed.length);
    },
    untilMs,
  });
  return { operation, selected, discarded, isPartial: left !== undefined };
}

/** A letter that is closed or on its way back is nobody's to discard. */
function openOnly({ terms }: LetterFilter): LetterFilter {
  const values = [{ kind: 'text' as const, pieces: ['open'] }];
  return { terms: [...terms, { key: 'state', path: [], isNegated: false, values }] };
}
