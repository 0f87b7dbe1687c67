import { expect, test } from '@jest/globals';
import { idAtLeast, isUuid, newId } from '../../../../shared/tasks/ids.ts';

test('ids are UUIDv7 and rise, also within a millisecond', () => {
  const ids = Array.from({ length: 10_000 }, () => newId());
  expect(ids.every((id) => isUuid(id) && id[14] === '7')).toBe(true);
  expect(ids.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
});

test.each([
  '',
  'x',
  '00000000-0000-0000-0000-000000000000',
  'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11',
  `${newId()}\n`,
  7,
  null,
])('%j is no id', (value) => {
  expect(isUuid(value)).toBe(false);
});

test('an instant bounds the ids made then from below', () => {
  const before = idAtLeast(new Date());
  const id = newId();
  const after = idAtLeast(new Date(new Date().getTime() + 1));
  expect(isUuid(before)).toBe(true);
  expect(before <= id && id < after).toBe(true);
});

test('instants beyond the range of ids give the first and the last', () => {
  expect(idAtLeast(new Date(-1))).toBe('00000000-0000-7000-8000-000000000000');
  expect(idAtLeast(new Date(8.64e15))).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7000-8000-0{12}$/);
});
