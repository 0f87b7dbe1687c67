/** What a handler asks of Postgres in the middle of its attempt: asked until Postgres answers, or the attempt is cut off. */
import { toError } from '../../shared/errors/to-error.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { isWorthTelling } from '../../shared/observability/repeats.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { attemptFacts } from './attempt-facts.ts';
import type { ToldAttempt } from './attempt-facts.ts';

/** The proof of an attempt: what whatever it writes must show. */
export interface AttemptProof extends ToldAttempt {
  readonly claimId: string;
  /** For the log: its task type, or the name of that. */
  readonly type?: string | { readonly name: string };
}

/** What asking needs. */
export interface AskDeps {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
}

const LONGEST_PAUSE_MS = 2_000;

/**
 * Gives what `ask` gives. An answer that was lost may have been committed, so asking again must change nothing. Throws what `ask` throws otherwise,
 * and `database-unavailable` once the signal has aborted. `what`: how the log calls it.
 */
export async function askUntilAnswered<Answer>(
  { db, clock, log, random }: AskDeps,
  proof: AttemptProof,
  { what, signal }: { readonly what: string; readonly signal: AbortSignal },
  ask: () => Promise<Answer>,
): Promise<Answer> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await retryConflicts(db, ask);
    } catch (thrown) {
      if (signal.aborted || !isWarrenError(thrown, 'database-unavailable')) throw thrown;
      if (isWorthTelling(tries + 1)) {
        const facts = attemptFacts(typeof proof.type === 'string' ? proof.type : proof.type?.name, proof);
        log.warn('handler waits for postgres', { ...facts, what, tries: tries + 1, err: toError(thrown) });
      }
      await clock.sleep(Math.min(50 * 2 ** tries, LONGEST_PAUSE_MS) * (0.5 + random() / 2), signal);
    }
  }
}
