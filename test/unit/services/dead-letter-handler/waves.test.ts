/** Sizes of waves, what stops them, and which versions are waited for. */
import { expect, test } from '@jest/globals';
import { isInRange, isVersionRange } from '../../../../services/dead-letter-handler/replay-versions.ts';
import { stopLimit, waveSize } from '../../../../services/dead-letter-handler/waves.ts';

test('waves grow by five, are one, or have the sizes of the list, and never more than there are items', () => {
  const sizes = (waves: Parameters<typeof waveSize>[0]): number[] =>
    [1, 2, 3, 4, 40].map((wave) => waveSize(waves, wave, 100_000));
  expect(sizes('growing')).toEqual([1, 5, 25, 125, 100_000]);
  expect(sizes('none')).toEqual(Array(5).fill(100_000));
  expect(sizes([2, 10])).toEqual([2, 10, 10, 10, 10]);
});

test('without a number of its own a replay stops at three failures, all of a small wave, one in twenty of a large one', () => {
  expect([0, 1, 2, 3, 5, 60, 100, 10_000].map((sent) => stopLimit(null, sent))).toEqual([1, 1, 2, 3, 3, 3, 5, 500]);
  expect(stopLimit(7, 2)).toBe(7);
});

test.each([
  ['1.4.0', '>=1.4.0', true],
  ['v1.4.0', '>=1.4.0', true],
  ['1.5.0-beta.1', '>=1.4.0', true],
  ['1.4.0-rc.1', '>=1.4.0', false],
  ['1.3.9', '>=1.4.0', false],
  ['2.0.0', '^1.4', false],
  ['dev', '>=0.0.0', false],
  ['', '*', false],
])('version %p is in %p: %p', (version, range, wanted) => {
  expect(isInRange(version, range)).toBe(wanted);
});

test('what is no range of versions is told apart', () => {
  expect(['>=1.4.0', '1.x', '1.2.3 || ^2'].map((text) => isVersionRange(text))).toEqual([true, true, true]);
  expect(['', ' ', 'soon', '>>1'].map((text) => isVersionRange(text))).toEqual([false, false, false, false]);
});
