import { describe, expect, test } from '@jest/globals';
import { parseExact, renderWithRaw, sliceMember } from '../../../../shared/tasks/json.ts';
import type { ExactFault, ExactJson } from '../../../../shared/tasks/json.ts';

const LIMITS = { maxDepth: 64, maxBytes: 262_144 };
const parse = (text: string | Buffer): ExactJson =>
  parseExact(typeof text === 'string' ? Buffer.from(text) : text, LIMITS);

function refused(text: string | Buffer): ExactFault {
  const answer = parse(text);
  if (answer.kind !== 'fault') throw new Error('was accepted');
  return answer;
}

function raw(text: string, name: string): string | undefined {
  const answer = parse(text);
  if (answer.kind !== 'ok') throw new Error(`${answer.code} ${answer.field} ${answer.reason}`);
  const span = answer.members.get(name);
  return span === undefined ? undefined : sliceMember(Buffer.from(text), span).toString();
}

describe('what is accepted comes back byte for byte', () => {
  test('a member is cut out with its own spacing, escapes and number forms', () => {
    const input = '{ "a" : [ 1.0, 1e2 ,-0 ] ,\n "\\u0062": "\\u00e9é\\/" , "c":{} }';
    expect(raw(`{"type" :"x","input"\t: ${input}  , "z": null }`, 'input')).toBe(input);
  });

  test('each kind of value has its span', () => {
    const text = ' {"a":true , "b":null,"c":false\n, "d":-1.5e3,"e":"}, \\" ","f":[{}] ,"g":{"h":[]}} ';
    expect(['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => raw(text, name))).toEqual([
      'true',
      'null',
      'false',
      '-1.5e3',
      '"}, \\" "',
      '[{}]',
      '{"h":[]}',
    ]);
  });

  test('names with escapes and beyond ASCII are found by what they mean', () => {
    expect(raw('{"\\u0061\\n":1}', 'a\n')).toBe('1');
    expect(raw('{"ключ":{"é":"𝄞"}}', 'ключ')).toBe('{"é":"𝄞"}');
  });

  test('bodies that are no object have no members', () => {
    for (const text of ['null', '42', '"x"', '[]', '[{"a":1}]', ' true ']) {
      expect(parse(text)).toMatchObject({ kind: 'ok', value: JSON.parse(text) as unknown, members: new Map() });
    }
  });
});

describe('what cannot be kept is refused, and the place named', () => {
  test.each([
    ['{"input":{"user":{"ids":[1,2,3,9007199254740993]}}}', 'input.user.ids[3]'],
    ['{"n":-9223372036854775808}', 'n'],
    ['{"n":9007199254740992}', 'n'],
    ['{"n":1e400}', 'n'],
    ['{"n":-1e400}', 'n'],
    ['{"n":1e-400}', 'n'],
    ['{"odd key":[[12345678901234567.0]]}', '["odd key"][0][0]'],
    ['{"n":1.2345678901234567e16}', 'n'],
    ['12345678901234567890', 'body'],
  ])('number in %s', (text, field) => {
    expect(refused(text)).toMatchObject({ code: 'number-not-exact', field });
  });

  test('numbers that a double keeps, and fractions, pass', () => {
    const numbers =
      '[9007199254740991,-9007199254740991,1e22,1e23,1.0e2,0.1234567890123456789,0e5,-0,1E+2,123456789012345.0]';
    expect(parse(numbers).kind).toBe('ok');
  });

  test.each([
    ['{"a":"\\u0000"}', 'a'],
    ['{"a":["x","y\\u0000"]}', 'a[1]'],
    ['{"a":{"\\u0000k":1}}', 'a["\\u0000k"]'],
    ['{"a":"\\ud800"}', 'a'],
    ['{"a":"\\udc00x"}', 'a'],
    ['{"a":"\\ud800\\u0041"}', 'a'],
    ['{"\\udfff":1}', '["\\udfff"]'],
  ])('text in %s', (text, field) => {
    expect(refused(text)).toMatchObject({ code: 'text-invalid', field });
  });

  test('a literal backslash before u0000 and escaped pairs are text like any other', () => {
    const text = '{"a":"\\\\u0000","b":"\\ud834\\udd1e","c":"\\\\\\\\u0000\\""}';
    expect(parse(text)).toMatchObject({ kind: 'ok', value: { a: '\\u0000', b: '𝄞', c: '\\\\u0000"' } });
  });

  test.each([
    ['', 'is empty'],
    ['  ', 'is not valid JSON'],
    ['\uFEFF{}', 'byte order mark'],
    ['{} {}', 'is not valid JSON'],
    ['{"a":NaN}', 'is not valid JSON'],
    ['{"a":-Infinity}', 'is not valid JSON'],
    ['{"a":01}', 'is not valid JSON'],
    ["{'a':1}", 'is not valid JSON'],
    ['{"a":"\u0000"}', 'is not valid JSON'],
    ['{"a":1,}', 'is not valid JSON'],
  ])('%j is no JSON', (text, reason) => {
    const fault = refused(text);
    expect(fault).toMatchObject({ code: 'body-invalid', field: 'body' });
    expect(fault.reason).toContain(reason);
  });

  test('bytes that are no UTF-8', () => {
    expect(refused(Buffer.from([0x22, 0xff, 0x22]))).toMatchObject({ code: 'body-invalid' });
    expect(refused(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]))).toMatchObject({ code: 'body-invalid' });
  });

  test('a reason never quotes the content', () => {
    expect(JSON.stringify(refused('{"password":"hunter2" oops}'))).not.toContain('hunter2');
  });

  test.each([
    ['{"a":1,"a":1}', 'a'],
    ['{"x":[{"b":{"c":1,"\\u0063":2}}]}', 'x[0].b.c'],
    ['{"__proto__":1,"__proto__":2}', '__proto__'],
  ])('a name given twice in %s', (text, field) => {
    expect(refused(text)).toMatchObject({ code: 'body-invalid', field, reason: 'is given twice' });
  });

  test('64 levels pass, 65 do not, and half a million do not overflow', () => {
    const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels);
    expect(parse(nested(64)).kind).toBe('ok');
    expect(refused(nested(65)).code).toBe('body-too-deep');
    expect(refused('{"a":'.repeat(65) + '1' + '}'.repeat(65)).code).toBe('body-too-deep');
    const huge = parseExact(Buffer.from(nested(500_000)), { maxDepth: 64, maxBytes: 2_000_000 });
    expect(huge).toMatchObject({ kind: 'fault', code: 'body-too-deep' });
  });

  test('the limit of bytes is the last size that passes', () => {
    const text = (bytes: number): string => `"${'x'.repeat(bytes - 2)}"`;
    expect(parse(text(262_144)).kind).toBe('ok');
    expect(refused(text(262_145)).code).toBe('body-too-large');
  });
});

test('__proto__ and constructor are data and reach no prototype', () => {
  const answer = parse('{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}');
  if (answer.kind !== 'ok') throw new Error('refused');
  const merged = { ...(answer.value as object) };
  expect(Object.keys(merged)).toEqual(['__proto__', 'constructor']);
  expect(({} as Record<string, unknown>)['admin']).toBeUndefined();
  expect([...answer.members.keys()]).toEqual(['__proto__', 'constructor']);
});

test('raw members are spliced in as they are and win over members of the same name', () => {
  const text = renderWithRaw(
    { id: 'x', input: 'old', gone: undefined },
    { input: Buffer.from('{ "n": 1.0 }'), result: undefined },
  );
  expect(text).toBe('{"id":"x","input":{ "n": 1.0 }}');
  expect(renderWithRaw({}, {})).toBe('{}');
});
