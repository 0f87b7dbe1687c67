import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { workersWanted } from '../../services/producer/workers-wanted.ts';
import type { ScalingAim, ScalingFigures } from '../../services/producer/workers-wanted.ts';

const count = fc.oneof(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 0, max: 1_000_000 }));
const figuresOf: fc.Arbitrary<ScalingFigures> = fc.record({
  waiting: fc.option(count, { nil: undefined }),
  running: fc.integer({ min: 0, max: 5_000 }),
  arrivalPerSecond: fc.oneof(fc.constant(0), fc.double({ min: 0.001, max: 5_000, noNaN: true })),
  meanRunSeconds: fc.option(fc.double({ min: 0.001, max: 7_200, noNaN: true }), { nil: undefined }),
  slotsPerWorker: fc.integer({ min: 1, max: 100 }),
  workers: fc.integer({ min: 0, max: 300 }),
  mostRunning: fc.option(fc.integer({ min: 1, max: 5_000 }), { nil: undefined }),
  starts: fc.boolean(),
});
const aimOf: fc.Arbitrary<ScalingAim> = fc
  .record({
    sloSeconds: fc.double({ min: 0.1, max: 3_600, noNaN: true }),
    min: fc.integer({ min: 0, max: 20 }),
    more: fc.integer({ min: 0, max: 400 }),
  })
  .map(({ sloSeconds, min, more }) => ({ sloSeconds, startSeconds: 30, min, max: min + more }));

test('the answer is a whole number within the bounds, with a reason', () => {
  fc.assert(
    fc.property(figuresOf, aimOf, (figures, aim) => {
      const { workersWanted: wanted, slotsWanted, why } = workersWanted(figures, aim);
      expect(Number.isInteger(wanted)).toBe(true);
      expect(wanted).toBeGreaterThanOrEqual(aim.min);
      expect(wanted).toBeLessThanOrEqual(aim.max);
      expect(Number.isInteger(slotsWanted) && slotsWanted >= 0).toBe(true);
      expect(why.length).toBeGreaterThan(3);
    }),
    { numRuns: 2_000 },
  );
});

test('more that waits, runs or arrives, longer runs and a shorter target never want fewer workers', () => {
  fc.assert(
    fc.property(figuresOf, aimOf, fc.double({ min: 1, max: 20, noNaN: true }), (figures, aim, factor) => {
      const { waiting, running, arrivalPerSecond, meanRunSeconds: mean } = figures;
      const before = workersWanted(figures, aim).workersWanted;
      const more: readonly ScalingFigures[] = [
        ...(waiting === undefined ? [] : [{ ...figures, waiting: Math.ceil(waiting * factor) + 1 }]),
        { ...figures, running: Math.ceil(running * factor) + 1 },
        { ...figures, arrivalPerSecond: arrivalPerSecond * factor + 0.01 },
        ...(mean === undefined ? [] : [{ ...figures, meanRunSeconds: mean * factor }]),
      ];
      for (const each of more) expect(workersWanted(each, aim).workersWanted).toBeGreaterThanOrEqual(before);
      expect(
        workersWanted(figures, { ...aim, sloSeconds: aim.sloSeconds / factor }).workersWanted,
      ).toBeGreaterThanOrEqual(before);
    }),
    { numRuns: 2_000 },
  );
});

test('no fewer slots than run now are wanted, as far as the bounds let', () => {
  fc.assert(
    fc.property(figuresOf, aimOf, (figures, aim) => {
      const { workersWanted: wanted } = workersWanted(figures, aim);
      expect(wanted * figures.slotsPerWorker >= figures.running || wanted === aim.max).toBe(true);
    }),
    { numRuns: 1_000 },
  );
});

test('a fleet that follows the figure, and a load that swings by a tenth, come to rest: at most one change of direction', () => {
  fc.assert(
    fc.property(
      figuresOf,
      aimOf,
      fc.integer({ min: 0, max: 5_000 }),
      fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 2, maxLength: 40 }),
      (figures, aim, busy, swings) => {
        let { workers } = figures;
        const directions: number[] = [];
        for (const swing of swings) {
          const running = Math.round(busy * (1 + 0.1 * swing));
          const still = { ...figures, waiting: 0, arrivalPerSecond: 0, running, workers };
          const wanted = workersWanted(still, aim).workersWanted;
          if (wanted !== workers) directions.push(Math.sign(wanted - workers));
          workers = wanted;
        }
        expect(new Set(directions).size).toBeLessThanOrEqual(1);
      },
    ),
    { numRuns: 1_000 },
  );
});
