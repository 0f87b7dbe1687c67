import { describe, expect, test } from '@jest/globals';
import { judge } from '../../../../services/worker/verdict.ts';
import type { Budget } from '../../../../services/worker/verdict.ts';
import type { AttemptError, Outcome } from '../../../../shared/tasks/outcome.ts';

const error: AttemptError = { type: 'Error', message: 'no', causes: [] };
const budget: Budget = {
  failures: 0,
  maxAttempts: 3,
  policy: { maxAttempts: 3, firstDelayMs: 1_000, maxDelayMs: 5_000 },
};
const failed = (more: Partial<Extract<Outcome, { kind: 'failed' }>> = {}): Extract<Outcome, { kind: 'failed' }> => ({
  kind: 'failed',
  reason: 'error',
  retryable: true,
  error,
  ...more,
});
/** The longest backoff that may be drawn. */
const most = (): number => 1 - Number.EPSILON;

describe('an attempt that failed', () => {
  test('is tried again after the backoff, which costs one of the budget', () => {
    expect(judge(failed(), budget, most)).toEqual({
      state: 'retrying',
      failures: 1,
      delayMs: 1_000,
      outcome: 'failed',
      reason: 'deadline_passed', // why it dies, should its deadline have passed
      error,
    });
    expect(judge(failed(), { ...budget, failures: 1 }, most).delayMs).toBe(2_000);
  });

  test('is tried again when the handler said', () => {
    expect(judge(failed({ delayMs: 77 }), budget, most).delayMs).toBe(77);
  });

  test('is dead once its budget is spent, whatever of it was spent in earlier attempts', () => {
    expect(judge(failed(), { ...budget, failures: 2 }, most)).toMatchObject({
      state: 'dead',
      failures: 1,
      reason: 'attempts_exhausted',
    });
    expect(judge(failed(), { ...budget, failures: 7 }, most).state).toBe('dead');
    expect(judge(failed(), { ...budget, maxAttempts: 1 }, most).state).toBe('dead');
  });

  test('is dead at once where trying again cannot help, with what was wrong', () => {
    const reasons = {
      error: 'non_retryable',
      non_retryable: 'non_retryable',
      timeout: 'timeout',
      invalid_input: 'invalid_input',
      result_unstorable: 'result_unstorable',
    } as const;
    for (const [reason, death] of Object.entries(reasons) as [keyof typeof reasons, string][]) {
      expect(judge(failed({ reason, retryable: false }), budget, most)).toMatchObject({ state: 'dead', reason: death });
    }
  });

  test('by timeout is a timeout in its history and in its dead letter', () => {
    expect(judge(failed({ reason: 'timeout' }), budget, most)).toMatchObject({ state: 'retrying', outcome: 'timeout' });
    expect(judge(failed({ reason: 'timeout' }), { ...budget, failures: 2 }, most)).toMatchObject({
      state: 'dead',
      outcome: 'timeout',
      reason: 'timeout',
    });
  });
});

describe('invariant 3: an attempt that did not fail', () => {
  test('and was deferred costs nothing and waits as long as was asked', () => {
    expect(judge({ kind: 'deferred', delayMs: 5_000, why: 'breaker' }, budget, most)).toMatchObject({
      state: 'scheduled',
      failures: 0,
      delayMs: 5_000,
      outcome: 'deferred',
    });
  });

  test('and was cut off by a stop or a lost lease is handed back and costs nothing', () => {
    for (const by of ['shutdown', 'lease'] as const) {
      expect(judge({ kind: 'interrupted', by }, budget, most)).toMatchObject({
        state: 'pending',
        failures: 0,
        outcome: 'interrupted',
      });
    }
  });

  test('and was cancelled is cancelled', () => {
    expect(judge({ kind: 'interrupted', by: 'cancel' }, budget, most)).toMatchObject({
      state: 'cancelled',
      failures: 0,
      outcome: 'cancelled',
    });
  });
});

test('invariant 3: an attempt whose handler ignored its abort says in the history that it may still run', () => {
  const stillRuns = 'The handler ignored its abort, and may still run beside the next attempt.';
  const timeout = failed({ reason: 'timeout', abandoned: true });
  expect(judge(timeout, budget, most).error).toEqual({ ...error, message: `no ${stillRuns}` });
  for (const by of ['shutdown', 'lease', 'cancel'] as const) {
    expect(judge({ kind: 'interrupted', by, abandoned: true }, budget, most).error).toMatchObject({
      code: 'abort-ignored',
      message: `${stillRuns} (by: ${by})`,
    });
    expect(judge({ kind: 'interrupted', by }, budget, most).error).toBeUndefined();
  }
});
