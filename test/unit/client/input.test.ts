/** What the client sends of an input, and what it refuses to send. */
import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { renderInput } from '../../../client/src/input.ts';

class Money {
  readonly cents = 5;
}
const cyclic: Record<string, unknown> = { a: {} };
(cyclic['a'] as Record<string, unknown>)['up'] = cyclic;
const listed: unknown[] = [1];
const withMember = Object.assign([1], { total: 1 });
// oxlint-disable-next-line no-sparse-arrays -- because a hole is what is refused
const sparse = [1, , 2];
const deep = (levels: number): object => (levels === 0 ? {} : { a: deep(levels - 1) });

function refusalOf(input: unknown): string {
  try {
    return `sent: ${renderInput(input)}`;
  } catch (thrown) {
    const { name, code, field, reason } = thrown as Record<string, string>;
    return [name, code, field, reason].join(' | ');
  }
}

test.each<[string, unknown, string, string]>([
  ['a Date', { user: { createdAt: new Date(0) } }, 'input.user.createdAt', 'is a Date; send its toISOString()'],
  ['undefined as a member', { user: { name: undefined } }, 'input.user.name', 'is undefined, which JSON drops'],
  ['undefined in an array', { ids: [1, undefined] }, 'input.ids[1]', 'is undefined, which JSON makes null'],
  ['a hole in an array', { ids: sparse }, 'input.ids[1]', 'is undefined'],
  ['a function', { 'odd key': [{ fn: () => 1 }] }, 'input["odd key"][0].fn', 'is a function'],
  ['a symbol', { a: Symbol('s') }, 'input.a', 'is a symbol'],
  ['a member under a symbol', { a: { [Symbol('s')]: 1 } }, 'input.a[Symbol(s)]', 'is a member under a symbol'],
  ['a bigint', { a: 1n }, 'input.a', 'is a bigint'],
  ['NaN', { a: Number.NaN }, 'input.a', 'is NaN'],
  ['Infinity', { a: -Infinity }, 'input.a', 'is -Infinity'],
  ['an integer that is not exact', { a: 2 ** 53 }, 'input.a', 'is an integer beyond 2^53-1'],
  ['a Map', { a: new Map() }, 'input.a', 'is a Map'],
  ['a Set', { a: [new Set()] }, 'input.a[0]', 'is a Set'],
  ['an instance', { price: new Money() }, 'input.price', 'is an instance of Money'],
  ['an error', { a: new Error('x') }, 'input.a', 'is an instance of Error'],
  ['a promise', { a: Promise.resolve(1) }, 'input.a', 'is an instance of Promise'],
  ['a handle', { a: new AbortController().signal }, 'input.a', 'is an instance of AbortSignal'],
  ['bytes', { a: Buffer.from('x') }, 'input.a', 'is a Buffer; send bytes as base64'],
  ['a boxed text', { a: Object('x') as unknown }, 'input.a', 'is an instance of String'],
  ['a cycle', cyclic, 'input.a.up', 'refers to what it is in'],
  ['a member of an array', { a: withMember }, 'input.a.total', 'is a member of an array'],
  ['U+0000', { a: 'x\u0000' }, 'input.a', 'holds U+0000'],
  ['a lone surrogate in a name', { 'a\ud800': 1 }, 'input["a\\ud800"]', 'holds U+0000 or a lone surrogate'],
  ['65 levels', deep(64), `input${'.a'.repeat(64)}`, 'nests deeper than 64 levels'],
  ['a list for an input', listed, 'input', 'must be an object'],
  ['a text for an input', 'x', 'input', 'must be an object'],
  ['nothing for an input', undefined, 'input', 'is undefined'],
])('%s is refused by its place', (_name, input, field, reason) => {
  expect(refusalOf(input)).toContain('InputRefusedError');
  expect(refusalOf(input)).toContain(` ${field} | ${reason}`);
});

test('a thing that stands in two places is no cycle', () => {
  const shared = { n: 1 };
  expect(renderInput({ a: shared, b: [shared, shared] })).toBe('{"a":{"n":1},"b":[{"n":1},{"n":1}]}');
});

test('objects without a prototype, empty ones and 64 levels are sent', () => {
  expect(renderInput(Object.assign(Object.create(null) as object, { a: {} }))).toBe('{"a":{}}');
  expect(renderInput(deep(63))).toContain('{"a":{}}');
});

test('what is sent is what JSON.stringify writes, and reads as the same', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue({ stringUnit: 'grapheme' })), (input) => {
      // Only what cannot be stored, or not exactly, is refused of plain JSON.
      const allowed = [`sent: ${JSON.stringify(input)}`, 'refused: text-invalid', 'refused: number-not-exact'];
      expect(allowed).toContain(refusalOf(input).replace(/^InputRefusedError \| ([\w-]+) .*$/s, 'refused: $1'));
    }),
  );
});
