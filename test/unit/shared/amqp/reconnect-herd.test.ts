import { expect, test } from '@jest/globals';
import { backoffMs } from '../../../../shared/amqp/backoff.ts';
import { loadConfig } from '../../../../shared/config/load.ts';

const CLIENTS = 100;

/** Numbers from 0 to 1 that are the same for a seed (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

test('a broker that was away for ten seconds or more sees at most 30 % of a fleet come back in any second', () => {
  const { reconnectMinMs: minMs, reconnectMaxMs: maxMs } = loadConfig({ user: 'worker', env: {} }).config.amqp;
  for (const awayMs of [10_000, 30_000, 60_000, 300_000]) {
    for (let seed = 1; seed <= 50; seed += 1) {
      const random = seeded(seed);
      const perSecond = new Map<number, number>();
      for (let client = 0; client < CLIENTS; client += 1) {
        let atMs = 0;
        for (let failures = 1; atMs < awayMs; failures += 1) atMs += backoffMs({ minMs, maxMs }, failures, random);
        const second = Math.floor((atMs - awayMs) / 1_000);
        perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
      }
      expect(Math.max(...perSecond.values())).toBeLessThanOrEqual(0.3 * CLIENTS);
    }
  }
});
