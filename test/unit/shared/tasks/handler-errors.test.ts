import { expect, test } from '@jest/globals';
import { WarrenError } from '../../../../shared/errors/warren-error.ts';
import { Deferred, NonRetryable, RetryAfter, handlerSignalOf } from '../../../../shared/tasks/handler-errors.ts';

test('the errors of handlers are read by name, also those of another copy of the code', () => {
  expect(handlerSignalOf(new NonRetryable('x'))).toEqual({ kind: 'non_retryable' });
  expect(handlerSignalOf({ name: 'RetryAfter', message: '', delayMs: 7 })).toEqual({ kind: 'retry_after', delayMs: 7 });
  expect(handlerSignalOf(new Deferred(500))).toEqual({ kind: 'deferred', delayMs: 500, why: 'handler' });
  const open = new WarrenError('breaker-open', { breaker: 'smtp', delayMs: 9_000 });
  expect(handlerSignalOf(open)).toEqual({ kind: 'deferred', delayMs: 9_000, why: 'breaker' });
});

test.each(['once-unknown', 'once-invalid'] as const)(
  '%s is not tried again: a further attempt changes nothing',
  (code) => {
    expect(handlerSignalOf(new WarrenError(code, { key: 'charge' }))).toEqual({ kind: 'non_retryable' });
  },
);

test.each([
  undefined,
  null,
  'x',
  new Error('x'),
  { name: 'RetryAfter' },
  { name: 'RetryAfter', delayMs: Number.NaN },
  new WarrenError('breaker-open'),
])('%p says nothing', (thrown) => {
  expect(handlerSignalOf(thrown)).toBeUndefined();
});

test('delays are whole milliseconds within bounds, and what is no number is refused where it is written', () => {
  expect(new RetryAfter(-5).delayMs).toBe(0);
  expect(new RetryAfter(1e15).delayMs).toBe(2_592_000_000);
  expect(new RetryAfter(Infinity).delayMs).toBe(2_592_000_000);
  expect(new RetryAfter(1.6).delayMs).toBe(2);
  expect(new Deferred(0).delayMs).toBe(100);
  expect(() => new RetryAfter(Number.NaN)).toThrow('number of milliseconds');
  expect(() => new Deferred('5' as unknown as number)).toThrow('number of milliseconds');
});
