/** When a task may end or start, as far as that can be told. */
import { describe, expect, test } from '@jest/globals';
import {
  drainRate,
  estimateFinish,
  positionOf,
  retryAfterSeconds,
  startAtInstant,
  startByRates,
} from '../../../../services/producer/outlook.ts';
import type { LookedAt } from '../../../../services/producer/outlook.ts';

const NOW = new Date('2030-01-31T12:00:00Z');
const ago = (seconds: number): Date => new Date(NOW.getTime() - seconds * 1_000);

function running(seconds: number, fraction?: number, saidSecondsAgo = 0): LookedAt {
  const progress = fraction === undefined ? undefined : { fraction, at: ago(saidSecondsAgo) };
  return { state: 'running', now: NOW, runAt: undefined, startedAt: ago(seconds), progress };
}

describe('the end of a run', () => {
  test('follows its pace where nothing is known of its type', () => {
    expect(estimateFinish(running(30, 0.25), undefined)).toEqual({ secondsLeft: 90, at: ago(-90), from: 'pace' });
  });

  test('comes nearer while the handler is silent', () => {
    expect(estimateFinish(running(40, 0.25, 10), undefined)?.secondsLeft).toBe(80);
    expect(estimateFinish(running(400, 0.25, 370), undefined)?.secondsLeft).toBe(0);
  });

  test('follows the history of its type where the handler says nothing', () => {
    const runTimes = { p50Ms: 60_000, p90Ms: 90_000 };
    expect(estimateFinish(running(20), runTimes)).toMatchObject({ secondsLeft: 40, from: 'history' });
    expect(estimateFinish(running(70), runTimes)).toMatchObject({ secondsLeft: 20, from: 'history' });
    expect(estimateFinish(running(91), runTimes)).toBeUndefined();
  });

  test('follows both, the pace the more the further it is', () => {
    const runTimes = { p50Ms: 60_000, p90Ms: 60_000 };
    // by pace 160 s are left at 0.2 and 10 s at 0.8; by history 20 s
    expect(estimateFinish(running(40, 0.2), runTimes)).toMatchObject({ secondsLeft: 48, from: 'both' });
    expect(estimateFinish(running(40, 0.8), runTimes)).toMatchObject({ secondsLeft: 12, from: 'both' });
  });

  test('is not guessed from the first hundredth, nor of a task that does not run', () => {
    expect(estimateFinish(running(30, 0.001), undefined)).toBeUndefined();
    expect(estimateFinish({ ...running(30, 0.5), state: 'retrying' }, undefined)).toBeUndefined();
  });
});

test('a task that waits for an instant starts then', () => {
  const waiting: LookedAt = { ...running(0), state: 'scheduled', startedAt: undefined, runAt: ago(-60) };
  expect(startAtInstant(waiting)).toEqual({
    secondsP50: 60,
    secondsP90: 60,
    atP50: ago(-60),
    atP90: ago(-60),
    from: 'run-at',
  });
  expect(startAtInstant({ ...waiting, runAt: ago(5) })).toMatchObject({ secondsP50: 0 });
});

describe('the start of a task that waits for its turn', () => {
  const starts = [10, 40, 50, 50, 50, 60].map((attempts, slot) => ({ priority: 4, slot, attempts }));

  test('follows how fast its queue was drained, and nine of ten slots were at least as fast as the later one', () => {
    const rate = drainRate(starts, 4, 5);
    expect(rate).toEqual({ p50PerSecond: 10, p90PerSecond: 2 });
    expect(startByRates(NOW, 101, rate)).toEqual({
      position: 101,
      secondsP50: 10,
      secondsP90: 50,
      atP50: ago(-10),
      atP90: ago(-50),
      from: 'rates',
    });
    expect(startByRates(NOW, 1, rate)).toMatchObject({ position: 1, secondsP50: 0, secondsP90: 0 });
  });

  test('counts what goes before it, not what goes after', () => {
    const mixed = [...starts, { priority: 9, slot: 2, attempts: 100 }, { priority: 0, slot: 2, attempts: 900 }];
    expect(drainRate(mixed, 9, 5)).toEqual({ p50PerSecond: 20, p90PerSecond: 20 });
    expect(drainRate(mixed, 4, 5)?.p50PerSecond).toBe(10);
  });

  test('is not told of a queue that nobody drains, but for the place', () => {
    expect(drainRate([], 4, 5)).toBeUndefined();
    expect(startByRates(NOW, 7, undefined)).toEqual({ position: 7, from: 'rates' });
  });

  test('its place is counted, and beyond the bound of the look reckoned from what was seen', () => {
    expect(positionOf({ rowsSeen: 30, ahead: 20, seenMs: 1_000, wholeMs: 4_000, isCut: false })).toBe(21);
    expect(positionOf({ rowsSeen: 1_000, ahead: 500, seenMs: 1_000, wholeMs: 4_000, isCut: true })).toBe(2_001);
    expect(positionOf({ rowsSeen: 1_000, ahead: 500, seenMs: 0, wholeMs: 0, isCut: true })).toBe(501);
  });
});

test.each([
  ['running', 0.2, 2],
  ['running', 3.2, 4],
  ['running', 900, 5],
  ['running', undefined, 2],
  ['retrying', undefined, 5],
  ['succeeded', undefined, undefined],
  ['dead', undefined, undefined],
] as const)('a look at a %s task that ends in %s s is repeated after %s s', (state, secondsLeft, expected) => {
  const finish = secondsLeft === undefined ? undefined : ({ secondsLeft, at: NOW, from: 'pace' } as const);
  expect(retryAfterSeconds(state, finish, undefined)).toBe(expected);
});
