import { expect, test } from '@jest/globals';
import { z } from 'zod';
import { decodeCursor, encodeCursor, pageOf, pageQuery } from '../../../../shared/http/paging.ts';

const key = z.tuple([z.uuid(), z.int()]);
const ID = '019a0000-0000-7000-8000-000000000000';

test('a cursor comes back as the key it was made of', () => {
  expect(decodeCursor(encodeCursor([ID, 3]), key)).toEqual([ID, 3]);
  expect(decodeCursor(undefined, key)).toBeUndefined();
});

test.each([
  [''],
  ['abc'],
  ['%%%'],
  [`${encodeCursor([ID, 3])}=`],
  [encodeCursor([ID])],
  [encodeCursor(['x', 3])],
  [encodeCursor({ __proto__: null })],
  ['a'.repeat(1_025)],
])('%j is refused', (cursor) => {
  expect(() => decodeCursor(cursor, key)).toThrow('cursor was not made by this API');
});

test('a page of limit rows has a cursor only where there is one more', () => {
  expect(pageOf([1, 2, 3], 2, (row) => row)).toEqual({ items: [1, 2], nextCursor: encodeCursor(2) });
  expect(pageOf([1, 2], 2, (row) => row)).toEqual({ items: [1, 2], nextCursor: undefined });
  expect(pageOf([], 2, (row) => row)).toEqual({ items: [], nextCursor: undefined });
});

test.each([['0'], ['201'], ['1.5'], ['x'], ['-1']])('limit %s is refused', (limit) => {
  expect(pageQuery.safeParse({ limit }).success).toBe(false);
});

test('without a limit a page has 50 rows', () => {
  expect(pageQuery.parse({})).toEqual({ limit: 50 });
});
