import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Slots } from '../../services/worker/slots.ts';

const step = fc.oneof(
  fc.record({ kind: fc.constant('take' as const), priority: fc.integer({ min: 0, max: 9 }) }),
  fc.record({ kind: fc.constant('release' as const), priority: fc.constant(0) }),
  fc.record({ kind: fc.constant('give back' as const), priority: fc.constant(0) }),
);

test('never more than the concurrency hold a slot, none is free while something waits, and the order is by priority', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 4 }), fc.array(step, { maxLength: 60 }), async (concurrency, steps) => {
      const slots = new Slots(concurrency, () => 0);
      let running = 0;
      const waiting: { readonly priority: number; readonly arrival: number }[] = [];
      const expected: number[] = [];
      const started: number[] = [];
      for (const [arrival, { kind, priority }] of steps.entries()) {
        if (kind === 'take') {
          const turn = slots.take(priority);
          if (turn === 'slot') running += 1;
          else {
            waiting.push({ priority, arrival });
            void Promise.resolve(turn).then((got) => (got === 'slot' ? started.push(arrival) : 0));
          }
        } else if (kind === 'release' && running > 0) {
          waiting.sort((a, b) => b.priority - a.priority || a.arrival - b.arrival);
          const next = waiting.shift();
          if (next === undefined) running -= 1;
          else expected.push(next.arrival);
          slots.release();
        } else if (kind === 'give back') {
          waiting.length = 0;
          slots.giveBack();
        }
        expect(slots.taken).toBe(running);
        expect(slots.waiting).toBe(waiting.length);
        expect(running).toBeLessThanOrEqual(concurrency);
        expect(waiting.length === 0 || running === concurrency).toBe(true);
      }
      await Promise.resolve();
      expect(started).toEqual(expected);
    }),
    { numRuns: 300 },
  );
});
