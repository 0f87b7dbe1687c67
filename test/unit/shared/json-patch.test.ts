/** JSON Patch and merge patch: the examples of their RFCs, and what must not change. */
import { describe, expect, test } from '@jest/globals';
import { PatchMisfit, readPatch } from '../../../shared/tasks/json-patch.ts';
import { readTree, renderTree } from '../../../shared/tasks/json-tree.ts';

const LIMITS = { maxLength: 100_000, maxDepth: 64 };
const patched = (document: string, patch: string): string =>
  renderTree(readPatch(readTree(patch))(readTree(document)), LIMITS);

describe('a tree', () => {
  test.each([
    '{"b":1,"a":{"2":true,"1":null},"__proto__":{"x":"\\u00e4\\n\\"{[,:]}"}}',
    '[9007199254740991,1.0,1e3,0.10,-0,"1"]',
    '{}',
    '"text"',
    '[[],[{}],[[1]]]',
  ])('of %s is written as it was read', (text) => {
    expect(renderTree(readTree(text), LIMITS)).toBe(text);
  });
});

/** RFC 6902, appendix A. */
describe('a JSON Patch', () => {
  test.each([
    ['A.1 adds a member', '{"foo":"bar"}', '[{"op":"add","path":"/baz","value":"qux"}]', '{"foo":"bar","baz":"qux"}'],
    [
      'A.2 adds an item',
      '{"foo":["bar","baz"]}',
      '[{"op":"add","path":"/foo/1","value":"qux"}]',
      '{"foo":["bar","qux","baz"]}',
    ],
    ['A.3 removes a member', '{"baz":"qux","foo":"bar"}', '[{"op":"remove","path":"/baz"}]', '{"foo":"bar"}'],
    [
      'A.4 removes an item',
      '{"foo":["bar","qux","baz"]}',
      '[{"op":"remove","path":"/foo/1"}]',
      '{"foo":["bar","baz"]}',
    ],
    [
      'A.5 replaces',
      '{"baz":"qux","foo":"bar"}',
      '[{"op":"replace","path":"/baz","value":"boo"}]',
      '{"baz":"boo","foo":"bar"}',
    ],
    [
      'A.6 moves a value',
      '{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}',
      '[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]',
      '{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}',
    ],
    [
      'A.7 moves an item',
      '{"foo":["all","grass","cows","eat"]}',
      '[{"op":"move","from":"/foo/1","path":"/foo/3"}]',
      '{"foo":["all","cows","eat","grass"]}',
    ],
    [
      'A.8 tests',
      '{"baz":"qux","foo":["a",2,"c"]}',
      '[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2.0}]',
      '{"baz":"qux","foo":["a",2,"c"]}',
    ],
    [
      'A.10 adds an object',
      '{"foo":"bar"}',
      '[{"op":"add","path":"/child","value":{"grandchild":{}}}]',
      '{"foo":"bar","child":{"grandchild":{}}}',
    ],
    [
      'A.11 ignores other members',
      '{"foo":"bar"}',
      '[{"op":"add","path":"/baz","value":"qux","xyz":123}]',
      '{"foo":"bar","baz":"qux"}',
    ],
    ['A.14 escapes ~', '{"/":9,"~1":10}', '[{"op":"test","path":"/~01","value":10}]', '{"/":9,"~1":10}'],
    [
      'A.16 adds to the end',
      '{"foo":["bar"]}',
      '[{"op":"add","path":"/foo/-","value":["abc","def"]}]',
      '{"foo":["bar",["abc","def"]]}',
    ],
    ['copies', '{"a":{"b":1}}', '[{"op":"copy","from":"/a","path":"/c"}]', '{"a":{"b":1},"c":{"b":1}}'],
    ['replaces the whole', '{"a":1}', '[{"op":"replace","path":"","value":{"b":2}}]', '{"b":2}'],
    ['does nothing', '{"a":1}', '[]', '{"a":1}'],
  ])('%s', (_what, document, patch, wanted) => {
    expect(patched(document, patch)).toBe(wanted);
  });

  test.each([
    [
      'A.9 another value',
      '{"baz":"qux"}',
      '[{"op":"test","path":"/baz","value":"bar"}]',
      'operation 1 (test /baz): the value there is another',
    ],
    [
      'A.12 a parent that is not there',
      '{"foo":"bar"}',
      '[{"op":"add","path":"/baz/bat","value":"qux"}]',
      'operation 1 (add /baz/bat): there is nothing at /baz',
    ],
    [
      'A.15 a text for a number',
      '{"~1":10}',
      '[{"op":"test","path":"/~01","value":"10"}]',
      'operation 1 (test /~01): the value there is another',
    ],
    [
      'nothing to remove',
      '{"a":1}',
      '[{"op":"remove","path":"/b"}]',
      'operation 1 (remove /b): there is nothing at /b',
    ],
    [
      'an index beyond the end',
      '{"a":[]}',
      '[{"op":"add","path":"/a/1","value":1}]',
      'operation 1 (add /a/1): nothing can be added at /a/1',
    ],
    [
      'an index with a zero in front',
      '{"a":[1,2]}',
      '[{"op":"remove","path":"/a/01"}]',
      'operation 1 (remove /a/01): there is nothing at /a/01',
    ],
    [
      'a member of a text',
      '{"a":"b"}',
      '[{"op":"add","path":"/a/length","value":1}]',
      'operation 1 (add /a/length): nothing can be added at /a/length',
    ],
    [
      'what every object has',
      '{}',
      '[{"op":"copy","from":"/constructor","path":"/x"}]',
      'operation 1 (copy /x): there is nothing at /constructor',
    ],
  ])('that does not fit says where: %s', (_what, document, patch, message) => {
    expect(() => patched(document, patch)).toThrow(new PatchMisfit(message));
  });

  test.each([
    ['[{"op":"add","path":"/a"}]', 'operation 1 needs a value'],
    ['[{"op":"add","value":1}]', 'operation 1 needs a path, such as /items/0/id'],
    ['[{"op":"add","path":"a","value":1}]', 'operation 1 needs a path, such as /items/0/id'],
    ['[{"op":"move","path":"/a"}]', 'operation 1 needs a from, such as /items/0'],
    ['[{"op":"move","from":"/a","path":"/a/b"}]', 'operation 1 moves a value into itself'],
    ['[{"op":"increase","path":"/a"}]', 'operation 1 needs an op of add, remove, replace, move, copy, test'],
    ['[1]', 'operation 1 must be an object'],
    ['1', 'must be a list (JSON Patch) or an object (merge patch)'],
  ])('that is none is refused before anything is tried: %s', (patch, message) => {
    expect(() => readPatch(readTree(patch))).toThrow(new PatchMisfit(message));
  });

  test('leaves what it does not touch as it was: numbers, the order of members, odd names', () => {
    const document = '{"z":1.0,"10":9007199254740991,"2":[1e2,0.10],"__proto__":{"isAdmin":true},"a":"\\u00e4"}';
    expect(patched(document, '[{"op":"replace","path":"/2/0","value":5}]')).toBe(document.replace('1e2', '5'));
    expect(({} as Record<string, unknown>)['isAdmin']).toBeUndefined();
  });
});

/** RFC 7396, appendix A. */
describe('a merge patch', () => {
  test.each([
    ['{"a":"b"}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'],
    ['{"a":"b"}', '{"a":null}', '{}'],
    ['{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'],
    ['{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'],
    ['{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'],
    ['{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'],
    ['{"e":null}', '{"a":1}', '{"e":null,"a":1}'],
    ['[1,2]', '{"a":"b","c":null}', '{"a":"b"}'],
    ['{}', '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'],
    ['{"n":1.0,"m":2}', '{"__proto__":{"x":1}}', '{"n":1.0,"m":2,"__proto__":{"x":1}}'],
  ])('%s with %s is %s', (document, patch, wanted) => {
    expect(patched(document, patch)).toBe(wanted);
  });
});

describe('a patch that makes more of a document than any memory holds', () => {
  const copies = (path: (n: number) => string, count = 60): string =>
    JSON.stringify(Array.from({ length: count }, (_none, n) => ({ op: 'copy', from: '', path: path(n) })));

  test.each([
    ['wide: a copy of the whole, doubled sixty times', copies((n) => `/a${n}`), 'more than 100000 characters'],
    ['deep: a copy of the whole into itself', copies(() => '/a', 100), 'deeper than 64 levels'],
    [
      'long: a text that is copied into a list again and again',
      JSON.stringify([
        { op: 'add', path: '/l', value: ['x'.repeat(10_000)] },
        ...Array.from({ length: 30 }, () => ({ op: 'copy', from: '/l/0', path: '/l/-' })),
      ]),
      'more than 100000 characters',
    ],
  ])('%s', (_what, patch, says) => {
    expect(() => patched('{"b":1}', patch)).toThrow(says);
  });

  test('is refused where it has too many operations, or a pointer too many steps', () => {
    expect(() => readPatch(readTree(copies((n) => `/a${n}`, 101)))).toThrow('100 operations');
    expect(() => readPatch(readTree(copies(() => '/a'.repeat(513), 1)))).toThrow('512 steps');
  });
});
