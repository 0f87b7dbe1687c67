import { expect, test } from '@jest/globals';
import { ClaimBook } from '../../../../services/worker/claim-book.ts';

test('a claim that was sent is held until its answer says that nothing was won', () => {
  const book = new ClaimBook();
  book.begin('a');
  expect(book.has('a')).toBe(true);
  book.won('a', 0);
  expect(book.has('a')).toBe(false);
});

test('a claim whose last two tasks are settled at once in two statements is finished with the next', () => {
  const book = new ClaimBook();
  book.begin('a');
  book.won('a', 2);
  const [one, other] = [book.finishedWith(['a']), book.finishedWith(['a'])];
  expect([one, other]).toEqual([[], []]);
  book.settled(['a'], one);
  book.settled(['a'], other);
  expect(book.finishedWith([])).toEqual(['a']);
  expect(book.takeFinished()).toEqual([]);
});

test('invariant 1: a worker without its lease deletes no claim of which something may still run', () => {
  const book = new ClaimBook();
  book.begin('a');
  book.won('a', 3);
  book.clear(); // the lease was taken away; the reaper finds the running tasks by the row of their claim
  const finished = book.finishedWith(['a']);
  expect(finished).toEqual([]);
  book.settled(['a'], finished);
  expect(book.takeFinished()).toEqual([]);
  expect(book.has('a')).toBe(false);
});
