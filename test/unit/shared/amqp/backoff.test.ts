import { expect, test } from '@jest/globals';
import { backoffMs } from '../../../../shared/amqp/backoff.ts';

const OPTIONS = { minMs: 200, maxMs: 10_000 };

test('of a hundred clients that lose their broker at once, no tenth of the wait sees more than a third', () => {
  for (const attempts of [1, 2, 5, 20]) {
    // A random number for each client, as even as chance is on average.
    const waits = Array.from({ length: 100 }, (_, client) => backoffMs(OPTIONS, attempts, () => client / 100));
    const longest = Math.max(...waits) + 1;
    const tenths = Array.from({ length: 10 }, (_, tenth) => {
      const [from, to] = [(tenth * longest) / 10, ((tenth + 1) * longest) / 10];
      return waits.filter((wait) => wait >= from && wait < to).length;
    });
    expect(Math.max(...tenths)).toBeLessThanOrEqual(33);
    expect(longest).toBeLessThanOrEqual(OPTIONS.maxMs + 1);
  }
});

test('the longest wait doubles with each failure up to its bound', () => {
  const longest = (attempts: number): number => backoffMs(OPTIONS, attempts, () => 0.999_999);
  expect([1, 2, 3].map((attempts) => Math.ceil(longest(attempts)))).toEqual([200, 400, 800]);
  expect(Math.ceil(longest(1_000))).toBe(10_000);
});
