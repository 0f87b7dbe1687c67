/** Ranges of a download. */
import { expect, test } from '@jest/globals';
import { parseRange } from '../../../../services/producer/http/byte-range.ts';

test.each([
  [undefined, undefined],
  ['bytes=0-0', { start: 0, end: 0 }],
  ['bytes=2-', { start: 2, end: 9 }],
  ['bytes=-4', { start: 6, end: 9 }],
  ['bytes=-99', { start: 0, end: 9 }],
  ['bytes=5-99', { start: 5, end: 9 }],
  ['Bytes=1-2', { start: 1, end: 2 }],
  ['bytes=5-4', undefined],
  ['bytes=-', undefined],
  ['bytes=0-1,3-4', undefined],
  ['lines=1-2', undefined],
  ['bytes=1.5-2', undefined],
  [`bytes=${'9'.repeat(16)}-`, undefined],
])('%s of ten bytes', (header, range) => {
  expect(parseRange(header, 10)).toEqual(range);
});

test.each([
  ['bytes=10-', 10],
  ['bytes=10-20', 10],
  ['bytes=-0', 10],
  ['bytes=0-', 0],
  ['bytes=-5', 0],
])('%s of %i bytes is none that there is', (header, bytes) => {
  expect(() => parseRange(header, bytes)).toThrow(expect.objectContaining({ code: 'range-invalid', facts: { bytes } }));
});
