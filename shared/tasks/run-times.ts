/** How long runs of a type take, as 64 weights: enough for a median that is right to a fifth, from a millisecond to weeks. */

/** Weights in one row. Each holds durations up to the square root of two of the one before. */
export const RUN_TIME_BUCKETS = 64;

/** The weight that a run of so many milliseconds adds to, from 0. */
export function runTimeBucket(ms: number): number {
  return ms <= 1 ? 0 : Math.min(Math.ceil(2 * Math.log2(ms)), RUN_TIME_BUCKETS - 1);
}

/** The duration in milliseconds that `share` (0 to 1) of the runs stay below; `undefined` where there were none. */
export function runTimeMs(weights: readonly number[], share: number): number | undefined {
  const total = runsOf(weights);
  if (!(total > 0)) return undefined;
  let below = 0;
  for (const [bucket, weight] of weights.entries()) {
    if (weight > 0 && below + weight >= share * total) {
      // Within its bucket a duration is as likely at one end as at the other.
      return 2 ** ((bucket - 1 + (share * total - below) / weight) / 2);
    }
    below += weight;
  }
  return 2 ** ((weights.length - 1) / 2);
}

/** The mean of the runs in milliseconds; `undefined` where there were none. */
export function meanRunMs(weights: readonly number[]): number | undefined {
  const total = runsOf(weights);
  if (!(total > 0)) return undefined;
  return weights.reduce((sum, weight, bucket) => sum + weight * 2 ** ((bucket - 0.5) / 2), 0) / total;
}

/** How many runs there were; one of an hour ago is half a run. */
export function runsOf(weights: readonly number[]): number {
  return weights.reduce((sum, weight) => sum + weight, 0);
}
