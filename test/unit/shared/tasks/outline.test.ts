import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { outlineOf } from '../../../../shared/tasks/outline.ts';

describe('the outline of an input', () => {
  test('keeps what is small where it stands, and says what it left out', () => {
    const rows = Array.from({ length: 5_000 }, (_, n) => ({ n }));
    expect(
      outlineOf({
        rows,
        id: 7,
        user: { name: 'ann', photo: 'x'.repeat(300), tags: ['a', 'b'] },
        done: false,
        none: null,
      }),
    ).toEqual({
      rows: { $omitted: 'array', length: 5_000 },
      id: 7,
      user: { name: 'ann', photo: { $omitted: 'string', length: 300 }, tags: ['a', 'b'] },
      done: false,
      none: null,
    });
  });

  test('shows a small member that stands behind a large one, and its members in their order', () => {
    const wide = Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`key${n}`, 'x'.repeat(100)]));
    const outline = outlineOf({ wide, tenantId: 'acme' }) as Record<string, Record<string, unknown>>;
    expect(outline['tenantId']).toBe('acme');
    expect(Object.keys(outline)).toEqual(['wide', 'tenantId']);
    expect(outline['wide']?.['$omitted']).toBeGreaterThan(9_000);
  });

  test('does not go into what nests deep', () => {
    const deep = { a: { b: { c: { d: { e: { f: 1 } } } } } };
    expect(outlineOf(deep)).toEqual({ a: { b: { c: { d: { e: { $omitted: 'object', length: 1 } } } } } });
  });

  test('is JSON of the same kind, short, and what is small stays as it is', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 7 }), (value) => {
        const outline = outlineOf(value);
        expect(JSON.stringify(outline).length).toBeLessThan(16_384);
        expect(Array.isArray(outline) || !Array.isArray(value) || value.length > 10).toBe(true);
      }),
    );
    const plain = { __proto__x: 1, constructor: 'c', list: [1, { two: 2 }], text: 'é😀' };
    expect(outlineOf(plain)).toEqual(plain);
  });

  test('takes keys that mean something to JavaScript as what they are', () => {
    const outline = outlineOf(JSON.parse('{"__proto__":{"polluted":true},"id":1}'));
    expect(JSON.stringify(outline)).toBe('{"__proto__":{"polluted":true},"id":1}');
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });
});
