import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { backoffMs } from '../../shared/resilience/backoff.ts';
import { DEFAULT_RETRY, classify, retryDelayMs } from '../../shared/tasks/retry-policy.ts';

const policies = fc
  .tuple(fc.nat(86_400_000), fc.nat(2_592_000_000))
  .map(([a, b]) => ({ ...DEFAULT_RETRY, firstDelayMs: Math.min(a, b), maxDelayMs: Math.max(a, b) }));
const randoms = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

test('a delay is a whole number from a tenth of the first delay to the longest of its failure', () => {
  fc.assert(
    fc.property(policies, fc.integer({ min: 1, max: 100 }), randoms, (policy, failures, random) => {
      const delayMs = retryDelayMs(policy, failures, () => random);
      const longest = Math.min(policy.maxDelayMs, policy.firstDelayMs * 2 ** (failures - 1));
      expect(Number.isInteger(delayMs)).toBe(true);
      expect(delayMs).toBeGreaterThanOrEqual(Math.min(Math.ceil(policy.firstDelayMs / 10), longest));
      expect(delayMs).toBeLessThanOrEqual(longest);
    }),
  );
});

test('with the same draw, a later failure never waits less', () => {
  fc.assert(
    fc.property(policies, fc.integer({ min: 1, max: 99 }), randoms, (policy, failures, random) => {
      const [one, next] = [failures, failures + 1].map((count) => retryDelayMs(policy, count, () => random));
      expect(next).toBeGreaterThanOrEqual(one ?? 0);
    }),
  );
});

test('the retries of ten thousand that fail together are spread evenly over their window', () => {
  let state = 42;
  const random = (): number => (state = (state * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31;
  const buckets = new Map<number, number>();
  for (let task = 0; task < 10_000; task += 1) {
    const delayMs = backoffMs({ firstDelayMs: 60_000, maxDelayMs: 60_000, minDelayMs: 1_000 }, 1, random);
    const second = Math.floor(delayMs / 1_000);
    buckets.set(second, (buckets.get(second) ?? 0) + 1);
  }
  expect(Math.max(...buckets.values())).toBeLessThan(500);
  expect(Math.min(...buckets.keys())).toBe(1);
});

test('any error under any rules is judged without throwing, and neverOn is stronger', () => {
  const rules = fc.constantFrom(
    undefined,
    ['E1'],
    ['E2', 'Error'],
    () => true,
    () => false,
    () => JSON.parse('{') as boolean,
  );
  fc.assert(
    fc.property(fc.constantFrom('E1', 'E2', 'E3'), rules, rules, (code, retryOn, neverOn) => {
      const error = Object.assign(new Error('x'), { code });
      const policy = { ...DEFAULT_RETRY, ...(retryOn && { retryOn }), ...(neverOn && { neverOn }) };
      const matched = Array.isArray(neverOn) && (neverOn.includes(code) || neverOn.includes('Error'));
      const { retryable } = classify(error, policy);
      expect(matched ? retryable : false).toBe(false);
      expect(retryable || retryOn !== undefined || neverOn !== undefined).toBe(true);
    }),
  );
});
