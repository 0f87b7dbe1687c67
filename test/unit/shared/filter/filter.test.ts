/** The filter language: what each form means, and how faults are told. */
import { describe, expect, test } from '@jest/globals';
import { FILTER_LIMITS, parseFilter } from '../../../../shared/filter/filter.ts';
import type { FilterTerm } from '../../../../shared/filter/filter.ts';
import { LETTER_LANGUAGE } from '../../../../shared/dead-letters/letter-keys.ts';

const ID = '0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60';

function termsOf(text: string): readonly FilterTerm[] {
  const parsed = parseFilter(text, LETTER_LANGUAGE);
  if (parsed.kind === 'fault') throw new Error(`${parsed.position}: ${parsed.reason}`);
  return parsed.terms;
}

/** A term as short as it can be told. */
function told({ key, path, isNegated, values }: FilterTerm): string {
  const shown = values.map((value) => {
    switch (value.kind) {
      case 'text':
        return value.pieces.join('|');
      case 'json':
        return value.texts.join(' or ');
      case 'any':
        return 'any';
      case 'range': {
        const { from, to } = value.range;
        return `${from === undefined ? '' : `${from.isInclusive ? '[' : '('}${from.value}`};${to === undefined ? '' : `${to.value}${to.isInclusive ? ']' : ')'}`}`;
      }
    }
  });
  return `${isNegated ? 'not ' : ''}${[key, ...path].join('/')} ${shown.join(', ')}`;
}

const day = (text: string): number => Date.parse(`${text}T00:00:00Z`);

describe('a term', () => {
  test.each([
    ['reason:timeout', 'reason timeout'],
    ['type:image.*', 'type image.|'],
    ['type:*', 'type |'],
    ['type:a**b', 'type a|b'],
    ['type:"image.*"', 'type image.*'],
    ['-reason:timeout,worker_lost', 'not reason timeout, worker_lost'],
    ['error:"ECONNREFUSED"', 'error ECONNREFUSED'],
    ['error:"a \\"b\\" \\\\ \\n"', 'error a "b" \\ \n'],
    ['ECONNREFUSED', 'error ECONNREFUSED'],
    ['connect*refused', 'error connect|refused'],
    ['"not found: x"', 'error not found: x'],
    ['-"not found"', 'not error not found'],
    ['a,b', 'error a,b'],
    ['foo.bar', 'error foo.bar'],
    ['state:open,replayed', 'state open, replayed'],
    ['tag:vip', 'tag vip'],
    ['attempts:3', 'attempts [3;3]'],
    ['attempts:>=3', 'attempts [3;'],
    ['attempts:<3', 'attempts ;3)'],
    ['attempts:3..5,9', 'attempts [3;5], [9;9]'],
    ['attempts:3..', 'attempts [3;'],
    ['attempts:..5', 'attempts ;5]'],
    ['age:>1h', 'age (3600000;'],
    ['age:<=1h30m', 'age ;5400000]'],
    ['age:1.5h..2d', 'age [5400000;172800000]'],
    ['died:>2026-01-01T00:00:00Z', `died (${day('2026-01-01')};`],
    ['died:<2026-01-01T02:00:00+02:00', `died ;${day('2026-01-01')})`],
    ['died:2026-01-31', `died [${day('2026-01-31')};${day('2026-02-01')})`],
    ['died:>2026-01-31', `died [${day('2026-02-01')};`],
    ['died:<=2026-01-31', `died ;${day('2026-02-01')})`],
    ['died:2026-01-01..2026-01-31', `died [${day('2026-01-01')};${day('2026-02-01')})`],
    [`id:${ID},${ID.toUpperCase()}`, `id ${ID}, ${ID}`],
    ['input.user.id:42', 'input/user/id 42 or "42"'],
    ['input.user.id:"42"', 'input/user/id "42"'],
    ['input.ok:true,null', 'input/ok true or "true", null or "null"'],
    ['input.price:1.10', 'input/price 1.10 or "1.10"'],
    ['input.code:007', 'input/code "007"'],
    ['input.a:*', 'input/a any'],
    ['input.n:>5', 'input/n (5;'],
    ['input.n:1..5', 'input/n [1;5]'],
    ['input."a b"."c.d":x', 'input/a b/c.d "x"'],
    ['input.url:https://example.com/a', 'input/url "https://example.com/a"'],
  ])('%s', (text, expected) => {
    expect(termsOf(text).map((term) => told(term))).toEqual([expected]);
  });

  test('stands beside others with any space between', () => {
    const text =
      ' reason:timeout  type:image.*\terror:"ECONNREFUSED"\nage:>1h input.user.id:42 tag:vip attempts:>=3 disk full ';
    expect(termsOf(text).map(({ key }) => key)).toEqual([
      'reason',
      'type',
      'error',
      'age',
      'input',
      'tag',
      'attempts',
      'error',
      'error',
    ]);
  });
});

test('nothing is a filter without terms', () => {
  expect(termsOf('')).toEqual([]);
  expect(termsOf(' \n ')).toEqual([]);
});

describe('a fault says where it is and what is allowed', () => {
  test.each([
    ['type:a resaon:b', 7, /no key "resaon"; keys are state, kind, reason, .*input\.<path>; quote a text/],
    ['toString:x', 0, /no key "toString"/],
    ['type:', 5, /value is missing: type takes a name/],
    ['type:a,', 7, /value is missing/],
    ['error:""', 8, /value is missing/],
    ['""', 2, /value is missing/],
    ['-', 1, /must follow "-"/],
    ['- type:a', 1, /must follow "-"/],
    ['error:"open', 6, /not closed/],
    ['error:"a\\x"', 8, /after a backslash/],
    ['error:"a"b', 9, /space or "," must follow/],
    ['type:a"b"', 6, /space or "," must follow/],
    ['state:dead', 6, /state is one of open, replaying, replayed, discarded, all/],
    ['kind:task,x', 10, /kind is one of task, refused, foreign/],
    ['type:>a', 5, /type has no order/],
    ['attempts:three', 9, /attempts takes a number/],
    ['attempts:>', 9, /attempts takes a number/],
    ['attempts:..', 9, /attempts takes a number/],
    ['attempts:1..x', 9, /attempts takes a number/],
    ['age:1h', 4, /age takes a comparison/],
    ['age:>1', 4, /duration in d, h, m, s/],
    ['age:>1w', 4, /duration/],
    ['age:>999999999d', 4, /duration/],
    ['died:>yesterday', 5, /RFC 3339/],
    ['died:>2026-02-30', 5, /RFC 3339/],
    ['died:2026-01-01T00:00:00Z', 5, /comparison/],
    ['died:>2026-01-01T00:00:00', 5, /offset/],
    ['group:7', 6, /whole id/],
    ['input:7', 5, /a path must follow input/],
    ['input.:7', 6, /name of a member/],
    ['input.a', 7, /":" must follow input and its path/],
    ['input.a:x*', 9, /must be quoted/],
    ['input.a:>x', 8, /comparison with a number/],
    ['error:a\0b', 7, /U\+0000/],
    ['error:\ud800', 6, /surrogate/],
    [`${'a '.repeat(FILTER_LIMITS.terms)}b`, FILTER_LIMITS.terms * 2, /at most 50 terms/],
    ['a'.repeat(FILTER_LIMITS.length + 1), FILTER_LIMITS.length, /at most 4000 characters/],
    [`tag:${'a,'.repeat(FILTER_LIMITS.alternatives)}b`, 204, /at most 100 alternatives/],
    [`input${'.a'.repeat(FILTER_LIMITS.pathDepth + 1)}:1`, 46, /at most 20 steps/],
  ])('%j', (text, position, reason) => {
    expect(parseFilter(text, LETTER_LANGUAGE)).toEqual({
      kind: 'fault',
      position,
      reason: expect.stringMatching(reason) as unknown,
    });
  });
});
