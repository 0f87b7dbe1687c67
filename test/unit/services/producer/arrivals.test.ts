/** How fast tasks come in. */
import { expect, test } from '@jest/globals';
import { arrivalRate } from '../../../../services/producer/arrivals.ts';
import type { ArrivalSpan } from '../../../../services/producer/arrivals.ts';

/** Spans of five seconds, all seen. */
const whole = (...tasks: readonly number[]): ArrivalSpan[] => tasks.map((each) => ({ tasks: each, seconds: 5 }));
const RECENT = 3;

test('an even flow is its mean', () => {
  expect(arrivalRate(whole(...Array.from({ length: 24 }, () => 50)), RECENT)).toBe(10);
  expect(arrivalRate([], RECENT)).toBe(0);
  expect(arrivalRate(whole(0, 0, 0), RECENT)).toBe(0);
});

test('a rise shows at once, but for what chance may have done', () => {
  const quiet = Array.from({ length: 21 }, () => 0);
  const rate = arrivalRate(whole(...quiet, 500, 500, 500), RECENT);
  expect(rate).toBeGreaterThan(97);
  expect(rate).toBeLessThan(100);
  // one task is no rush
  expect(arrivalRate(whole(...quiet, 0, 0, 1), RECENT)).toBeCloseTo(1 / 120);
});

test('a fall shows slowly', () => {
  const busy = Array.from({ length: 21 }, () => 500);
  expect(arrivalRate(whole(...busy, 0, 0, 0), RECENT)).toBeCloseTo((100 * 21) / 24);
});

test('of a span that was seen in part the rest is as the part', () => {
  expect(arrivalRate([{ tasks: 100, seconds: 0.05 }], RECENT)).toBeCloseTo(2_000);
});
