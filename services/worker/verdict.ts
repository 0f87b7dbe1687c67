/** From how an attempt ended to what its task becomes. Pure. */
import { CATALOGUE } from '../../shared/errors/catalogue.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { describeError } from '../../shared/tasks/outcome.ts';
import type { AttemptError, Outcome } from '../../shared/tasks/outcome.ts';
import { retryDelayMs } from '../../shared/tasks/retry-policy.ts';
import type { RetryPolicy } from '../../shared/tasks/retry-policy.ts';

/** What the settle of an attempt that did not succeed asks for. */
export interface Verdict {
  /** Past its deadline Postgres makes `retrying` `dead`, and where cancelling was asked for nothing waits again. */
  readonly state: 'retrying' | 'dead' | 'scheduled' | 'pending' | 'cancelled';
  /** What it costs of the budget. */
  readonly failures: 0 | 1;
  /** Milliseconds until it is due, for `retrying` and `scheduled`. */
  readonly delayMs: number;
  /** The attempt's place in the history. */
  readonly outcome: 'failed' | 'timeout' | 'deferred' | 'interrupted' | 'cancelled';
  /** Reason of the dead letter, should the task die. */
  readonly reason: string;
  readonly error: AttemptError | undefined;
}

/** What the verdict depends on beside the outcome. */
export interface Budget {
  /** Failures so far, not attempts. */
  readonly failures: number;
  readonly maxAttempts: number;
  readonly policy: RetryPolicy;
}

/** Judges an attempt that did not succeed. `random` gives 0 to 1. */
export function judge(outcome: Exclude<Outcome, { kind: 'succeeded' }>, budget: Budget, random: () => number): Verdict {
  switch (outcome.kind) {
    case 'failed': {
      const failures = budget.failures + 1;
      const historical = outcome.reason === 'timeout' ? 'timeout' : 'failed';
      const error = outcome.abandoned === true ? saysItStillRuns(outcome.error) : outcome.error;
      const common = { failures: 1, outcome: historical, error } as const;
      if (!outcome.retryable) return { ...common, state: 'dead', delayMs: 0, reason: deathReasonOf(outcome.reason) };
      if (failures >= budget.maxAttempts) {
        const reason = outcome.reason === 'timeout' ? 'timeout' : 'attempts_exhausted';
        return { ...common, state: 'dead', delayMs: 0, reason };
      }
      const delayMs = outcome.delayMs ?? retryDelayMs(budget.policy, failures, random);
      return { ...common, state: 'retrying', delayMs, reason: 'deadline_passed' };
    }
    case 'deferred':
      return {
        state: 'scheduled',
        failures: 0,
        delayMs: outcome.delayMs,
        outcome: 'deferred',
        reason: 'deadline_passed',
        error: undefined,
      };
    case 'interrupted': {
      const isCancel = outcome.by === 'cancel';
      return {
        state: isCancel ? 'cancelled' : 'pending',
        failures: 0,
        delayMs: 0,
        outcome: isCancel ? 'cancelled' : 'interrupted',
        reason: 'deadline_passed',
        error:
          outcome.abandoned === true ? describeError(new WarrenError('abort-ignored', { by: outcome.by })) : undefined,
      };
    }
  }
}

/** It may overlap its successor: the history has to say so. Type and code stay what they are, for policies and for groups. */
function saysItStillRuns(error: AttemptError): AttemptError {
  return { ...error, message: `${error.message} ${CATALOGUE['abort-ignored'].title}` };
}

function deathReasonOf(reason: Extract<Outcome, { kind: 'failed' }>['reason']): string {
  return reason === 'error' ? 'non_retryable' : reason;
}
