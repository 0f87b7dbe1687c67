/** Counts what happens to attempts, and logs each that did not simply succeed. */
import type { Logger } from '../../shared/observability/log.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import { attemptFacts } from './attempt-facts.ts';
import type { AttemptObserver } from './attempt.ts';
import type { Measures } from './measures.ts';

/** What observing needs. */
export interface ObserveDeps {
  readonly metrics: Metrics;
  readonly measures: Pick<Measures, 'ran'>;
  readonly log: Logger;
  /** Monotonic. */
  readonly nowMs: () => number;
}

/** Makes the observer of a worker. */
export function observeAttempts({ metrics, measures, log, nowMs }: ObserveDeps): AttemptObserver {
  const startedMs = new Map<string, number>();
  return {
    claimRefused: (kind) => metrics.claims.add(1, kind === 'held' ? 'not_now' : kind),
    started: (type, claim) => {
      startedMs.set(`${claim.taskId}/${claim.attempt}`, nowMs());
      metrics.claims.add(1, 'won');
      metrics.waitSeconds.observe(claim.waitMs / 1_000, type.name);
    },
    ended: (type, claim, outcome) => {
      const key = `${claim.taskId}/${claim.attempt}`;
      const ranMs = nowMs() - (startedMs.get(key) ?? nowMs());
      startedMs.delete(key);
      metrics.runSeconds.observe(ranMs / 1_000, type.name);
      metrics.attempts.add(1, type.name, labelOf(outcome));
      if (outcome.kind === 'succeeded') return measures.ran(type.name, ranMs);
      const error =
        outcome.kind === 'failed' ? { errorType: outcome.error.type, errorMessage: outcome.error.message } : {};
      log.info('attempt ended', {
        ...attemptFacts(type.name, claim),
        outcome: labelOf(outcome),
        durationMs: Math.round(ranMs),
        ...error,
      });
    },
    settled: (type, claim, _outcome, settled) => {
      metrics.settles.add(1, settled === 'fenced' ? 'fenced' : 'settled');
      if (settled === 'fenced') log.warn('settle fenced', attemptFacts(type.name, claim));
      if (settled === 'dead') log.warn('task dead', attemptFacts(type.name, claim));
    },
  };
}

function labelOf(outcome: Outcome): 'succeeded' | 'failed' | 'timeout' | 'deferred' | 'interrupted' | 'cancelled' {
  if (outcome.kind === 'failed') return outcome.reason === 'timeout' ? 'timeout' : 'failed';
  if (outcome.kind === 'interrupted') return outcome.by === 'cancel' ? 'cancelled' : 'interrupted';
  return outcome.kind;
}
