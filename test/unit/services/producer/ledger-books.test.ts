import { expect, test } from '@jest/globals';
import {
  differenceOf,
  hourOf,
  idBefore,
  instantOf,
  NO_COUNTS,
  NO_TASKS,
  standingOf,
} from '../../../../services/producer/ledger-books.ts';
import { idAtLeast } from '../../../../shared/tasks/ids.ts';

const books = { ...NO_COUNTS, accepted: 20, succeeded: 9, dead: 5, revived: 2, cancelled: 1, expired: 2 };
const standing = { succeeded: 9, dead: 3, cancelled: 1, expired: 2, inProgress: 5 };

test('accepted is succeeded, dead, cancelled, expired and in progress; a replay takes a death back', () => {
  expect(standingOf(books)).toEqual(standing);
  expect(differenceOf(books, books, standing)).toBe(0);
});

test.each([
  ['a row is missing', { succeeded: 8 }, 1],
  ['a row is too many', { dead: 4 }, 1],
  ['a row changed its state', { succeeded: 10, inProgress: 4 }, 1],
  ['two rows changed their states', { succeeded: 10, dead: 4, inProgress: 3 }, 2],
  ['a row is missing and another changed its state', { succeeded: 8, dead: 4, inProgress: 4 }, 2],
  ['nothing is there', NO_TASKS, 20],
])('%s', (_what, changed, difference) => {
  expect(differenceOf(books, books, { ...standing, ...changed })).toBe(difference);
});

test('what the books do not know is a difference', () => {
  expect(differenceOf(NO_COUNTS, NO_COUNTS, { ...NO_TASKS, succeeded: 3 })).toBe(3);
});

test('rows that were removed on purpose are none', () => {
  const retired = { ...books, retired: 9 };
  expect(differenceOf(retired, retired, { ...standing, succeeded: 0 })).toBe(0);
  expect(differenceOf(retired, retired, { ...standing, succeeded: 0, dead: 2 })).toBe(1);
});

test('what happened while rows were counted may have been seen or not', () => {
  const after = { ...books, accepted: 23, succeeded: 12, dead: 6, revived: 3 };
  for (const seen of [standing, standingOf(after), { ...standing, succeeded: 10, inProgress: 4 }]) {
    expect(differenceOf(books, after, seen)).toBe(0);
  }
  expect(differenceOf(books, after, { ...standing, succeeded: 13 })).toBe(1);
  expect(differenceOf(books, after, { ...standing, succeeded: 8 })).toBe(1);
});

test('an hour is a range of ids', () => {
  const at = new Date('2030-01-31T18:00:00Z');
  const hour = hourOf(at);
  expect(instantOf(hour)).toEqual(at);
  expect(idBefore(hour) < idAtLeast(at)).toBe(true);
  expect(idBefore(hour) > idAtLeast(new Date(at.getTime() - 1))).toBe(true);
  expect(idBefore(0)).toBe('00000000-0000-0000-0000-000000000000');
  expect(idBefore(80_000_000)).toBe('ffffffff-ffff-ffff-ffff-ffffffffffff');
});
