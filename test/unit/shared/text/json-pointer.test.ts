/** Pointers into JSON. */
import { expect, test } from '@jest/globals';
import { parsePointer, pickAt } from '../../../../shared/text/json-pointer.ts';

test.each([
  ['', []],
  ['/', ['']],
  ['/a/0/b', ['a', '0', 'b']],
  ['/a~1b/~0c/~01', ['a/b', '~c', '~1']],
  ['a', undefined],
  ['/a~', undefined],
  ['/a~2', undefined],
])('%j is read as %j', (pointer, path) => {
  expect(parsePointer(pointer)).toEqual(path);
});

test.each([
  ['', { a: 1 }, { a: 1 }],
  ['/a/1', { a: [1, { b: 2 }] }, { b: 2 }],
  ['/a/01', { a: [1, 2] }, null],
  ['/a/-', { a: [1, 2] }, null],
  ['/a/length', { a: [1, 2] }, null],
  ['/a/b', { a: 'text' }, null],
  ['/constructor', {}, null],
  ['/0', { 0: false }, false],
  ['/a', null, null],
])('%j in %j is %j', (pointer, value, found) => {
  expect(pickAt(value, parsePointer(pointer) ?? [])).toEqual(found);
});
