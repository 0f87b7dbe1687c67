/** How long runs take, out of 64 weights. */
import { expect, test } from '@jest/globals';
import { meanRunMs, RUN_TIME_BUCKETS, runTimeBucket, runTimeMs, runsOf } from '../../../../shared/tasks/run-times.ts';

function weigh(durationsMs: readonly number[]): number[] {
  const weights = Array.from({ length: RUN_TIME_BUCKETS }, () => 0);
  for (const ms of durationsMs) weights[runTimeBucket(ms)] = (weights[runTimeBucket(ms)] ?? 0) + 1;
  return weights;
}

test.each([1.2, 7, 130, 2_000, 61_000, 3_600_000, 86_400_000])(
  'the median of runs that all take %d ms is told to within its bucket',
  (ms) => {
    const weights = weigh(Array.from({ length: 100 }, () => ms));
    expect(Math.abs((runTimeMs(weights, 0.5) ?? 0) - ms) / ms).toBeLessThan(0.42);
    expect((runTimeMs(weights, 0.9) ?? 0) >= (runTimeMs(weights, 0.5) ?? 0)).toBe(true);
  },
);

test('median and ninth decile of evenly spread durations are told to a fifth', () => {
  const weights = weigh(Array.from({ length: 1_000 }, (_, n) => n + 1));
  expect(Math.abs((runTimeMs(weights, 0.5) ?? 0) - 500)).toBeLessThan(100);
  expect(Math.abs((runTimeMs(weights, 0.9) ?? 0) - 900)).toBeLessThan(180);
});

test('the mean of evenly spread durations is told to a tenth, of few long ones among many short ones to a fifth', () => {
  expect(Math.abs((meanRunMs(weigh(Array.from({ length: 1_000 }, (_, n) => n + 1))) ?? 0) - 500)).toBeLessThan(50);
  const mixed = weigh([...Array.from({ length: 90 }, () => 10), ...Array.from({ length: 10 }, () => 60_000)]);
  expect(Math.abs((meanRunMs(mixed) ?? 0) - 6_009) / 6_009).toBeLessThan(0.2);
  expect(runsOf(mixed)).toBe(100);
});

test('nothing is told of a type that never ran', () => {
  expect(meanRunMs(weigh([]))).toBeUndefined();
  expect(runTimeMs(weigh([]), 0.5)).toBeUndefined();
  expect(runTimeMs([], 0.5)).toBeUndefined();
});

test('durations beyond both ends are kept at the ends', () => {
  expect([runTimeBucket(0), runTimeBucket(0.3), runTimeBucket(1e15)]).toEqual([0, 0, RUN_TIME_BUCKETS - 1]);
});
